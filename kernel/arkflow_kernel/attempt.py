"""The chains of one attempt of a job: who is ready, connected, ended, overdue (D1, D2, D4).

A part of `coordinator.py`. It holds facts and finds out what they mean together, and what the
chains are to know: one control state for all, that only grows (B2). What is to be done is the
coordinator's decision.

Which failure counts: the first one, but a broken channel only says that its peer failed, so any
other failure of the same attempt takes its place. What a chain says after the attempt was given up
counts for nothing.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from arkflow_kernel.errors import ActorLostError, ArkflowError, ChannelError
from arkflow_kernel.ids import LATEST, ChainId, EventTimeMs, Generation, MonotonicMs
from arkflow_kernel.limits import HEARTBEAT_TIMEOUT_MS
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.protocol import (
    ChainEnded,
    ChainOutcome,
    ChainReport,
    ControlState,
    Desired,
    KillChain,
    OutcomeKind,
    SendControl,
    Slowest,
    deadline,
)

_RANK = {kind: rank for rank, kind in enumerate(OutcomeKind)}  # the worst is the last


@dataclass(slots=True)
class ChainFacts:
    """What the coordinator knows of one chain in this attempt."""

    ready: bool = False
    connected: bool = False
    outcome: ChainOutcome | None = None
    heard_ms: MonotonicMs | None = None
    timed: bool = False
    watermark: EventTimeMs | None = None
    kill_at_ms: MonotonicMs | None = None
    killed: ArkflowError | None = None

    @property
    def alive(self) -> bool:
        """It has not ended."""
        return self.outcome is None


@dataclass
class Attempt:
    """One attempt. `failure` is what ended it, None while nothing did."""

    generation: Generation
    chains: dict[ChainId, ChainFacts]
    control: ControlState
    failure: ArkflowError | None = None
    culprit: ChainId | None = None
    given_up: bool = field(default=False)

    @classmethod
    def of(cls, generation: Generation, chains: Iterable[ChainPlan]) -> "Attempt":
        """A new attempt: nothing is known of its chains."""
        facts = {
            plan.chain: ChainFacts(timed=plan.source is not None and plan.source.time is not None)
            for plan in chains
        }
        return cls(generation, facts, ControlState(generation))

    # --- what chains are to know ---------------------------------------------------------------

    def note(self, desired: Desired) -> None:
        """Chains are to know what is wanted with their first control state."""
        self.control = self.control.merged(ControlState(self.generation, desired))

    def tell(self, control: ControlState) -> list[SendControl]:
        """Chains are to know this too; what to send to whom."""
        self.control = self.control.merged(control)
        return [SendControl(name, self.control) for name, chain in self.alive() if chain.ready]

    def want(self, desired: Desired) -> list[SendControl]:
        """What the coordinator wants of all chains; what to send to whom."""
        return self.tell(ControlState(self.generation, desired))

    def give_up(self, now_ms: MonotonicMs, timeout_ms: int) -> list[SendControl]:
        """It is to end: its chains are cancelled, and killed if they do not follow (D4)."""
        self.given_up = True
        for _, chain in self.alive():
            if chain.kill_at_ms is None:
                chain.kill_at_ms = MonotonicMs(now_ms + timeout_ms)
        return self.want(Desired.CANCEL)

    def is_news(self, event: ChainReport | ChainEnded) -> bool:
        """Whether the chain is of this attempt and has not ended."""
        chain = self.chains.get(event.chain)
        return event.generation == self.generation and chain is not None and chain.alive

    def kills(self, now_ms: MonotonicMs, timeout_ms: int) -> Iterator[KillChain]:
        """Chains that are to be killed now (D2, D4); one that does not end is killed again."""
        for name, chain in list(self.silent(now_ms)):
            seconds = HEARTBEAT_TIMEOUT_MS / 1000
            text = f"the process of chain '{name}' did not answer for {seconds:.0f} s; it is killed"
            chain.killed = ActorLostError(text)
            yield KillChain(name, self.generation)
        for name, chain in list(self.overdue(now_ms)):
            chain.kill_at_ms = MonotonicMs(now_ms + timeout_ms)
            yield KillChain(name, self.generation)

    # --- what is known of them -----------------------------------------------------------------

    def connected(self, chain: ChainId, now_ms: MonotonicMs) -> bool:
        """A chain has its channels. True if it was the last one: all count as heard of now."""
        self.chains[chain].connected = True
        if self.given_up or not self.all_connected:
            return False
        for facts in self.chains.values():
            facts.heard_ms = now_ms
        return True

    def heard(self, event: ChainReport) -> bool:
        """A chain reports. True if it is to be told the control state in return."""
        chain = self.chains[event.chain]
        if chain.heard_ms is not None:
            chain.heard_ms = event.at.now_ms
        chain.timed &= not event.drained
        chain.watermark = LATEST if event.statistics.idle else event.statistics.watermark
        self._note_slowest()
        return chain.heard_ms is not None or self.given_up

    def _note_slowest(self) -> None:
        """The lowest watermark of the sources, once all are known; what is idle does not count."""
        timed = [(chain.watermark, name) for name, chain in self.alive() if chain.timed]
        known = [Slowest(mark, name) for mark, name in timed if mark is not None]
        active = [each for each in known if each.time_ms != LATEST]
        if active and len(known) == len(timed):
            told = ControlState(self.generation, slowest=min(active))
            self.control = self.control.merged(told)

    @property
    def all_ready(self) -> bool:
        """Every chain is built and opened."""
        return all(chain.ready for chain in self.chains.values())

    @property
    def all_connected(self) -> bool:
        """Every chain has its channels."""
        return all(chain.connected for chain in self.chains.values())

    @property
    def in_order(self) -> bool:
        """Every chain runs, or has ended as it was told to; some still do."""
        return self.all_connected and not self.given_up and not self.over

    @property
    def over(self) -> bool:
        """Every chain has ended."""
        return not any(chain.alive for chain in self.chains.values())

    @property
    def ready_count(self) -> int:
        """How many chains are ready."""
        return sum(chain.ready for chain in self.chains.values())

    def alive(self) -> Iterator[tuple[ChainId, ChainFacts]]:
        """Chains that have not ended."""
        return ((name, chain) for name, chain in self.chains.items() if chain.alive)

    def ended(self, name: ChainId, outcome: ChainOutcome) -> bool:
        """A chain ended. True if the attempt failed by it, which it had not before."""
        chain = self.chains[name]
        expected = self.given_up and chain.kill_at_ms is not None
        chain.outcome, chain.kill_at_ms = outcome, None
        if outcome.kind is not OutcomeKind.FAILED:
            return False
        error = chain.killed or outcome.error
        assert error is not None, "a failed chain has an error"
        if self._consequence(error, expected=expected):
            chain.outcome = ChainOutcome(OutcomeKind.CANCELLED, None, outcome.frontier)
            return False
        first = self.failure is None
        if first or isinstance(self.failure, ChannelError):
            self.failure, self.culprit = error, name
        return first

    def failed(self, error: ArkflowError) -> None:
        """It failed for a reason that is no chain's end."""
        if self.failure is None or isinstance(self.failure, ChannelError):
            self.failure, self.culprit = error, None

    def overdue(self, now_ms: MonotonicMs) -> Iterator[tuple[ChainId, ChainFacts]]:
        """Chains that did not end in time after they were told to (D4)."""
        for name, chain in self.alive():
            if chain.kill_at_ms is not None and now_ms >= chain.kill_at_ms:
                yield name, chain

    def silent(self, now_ms: MonotonicMs) -> Iterator[tuple[ChainId, ChainFacts]]:
        """Chains that were not heard of for too long (D2)."""
        for name, chain in self.alive():
            silent = chain.heard_ms is not None and chain.killed is None
            if silent and now_ms - _ms(chain.heard_ms) >= HEARTBEAT_TIMEOUT_MS:
                yield name, chain

    def deadline_ms(self) -> MonotonicMs | None:
        """When somebody will be overdue or silent for too long."""
        kills = (chain.kill_at_ms for _, chain in self.alive())
        heard = (
            MonotonicMs(_ms(chain.heard_ms) + HEARTBEAT_TIMEOUT_MS)
            for _, chain in self.alive()
            if chain.heard_ms is not None and chain.killed is None
        )
        return deadline(*kills, *heard)

    def worst(self) -> OutcomeKind:
        """The worst end of a chain, of an attempt that is over and did not fail by itself."""
        kinds = [chain.outcome.kind for chain in self.chains.values() if chain.outcome is not None]
        worst = max(kinds, key=_RANK.__getitem__)
        return OutcomeKind.CANCELLED if worst is OutcomeKind.FAILED else worst

    def failure_text(self) -> str:
        """What failed, for people."""
        who = "" if self.culprit is None else f"chain '{self.culprit}' failed: "
        return f"{who}{self.failure}"

    def _consequence(self, error: ArkflowError, *, expected: bool) -> bool:
        """Whether the error only follows from what was decided already: no cause of anything."""
        if not self.given_up:
            return False
        lost = isinstance(error, ActorLostError) and not isinstance(self.failure, ChannelError)
        return isinstance(error, ChannelError) or (expected and lost)


def _ms(value: MonotonicMs | None) -> MonotonicMs:
    assert value is not None
    return value


__all__ = ["Attempt", "ChainFacts"]
