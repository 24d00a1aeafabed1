"""The chains of one attempt of a job: who is ready, connected, ended, overdue (D1, D2, D4).

A part of `coordinator.py`. It holds facts and finds out what they mean together, and what the
chains are to know: one control state for all, that only grows (B2). What is to be done is the
coordinator's decision.

Which failure counts: the first one, but a broken channel only says that its peer failed, so any
other failure of the same attempt takes its place. What a chain says after the attempt was given up
counts for nothing.

Nothing here looks through all chains because of one of them: there may be thousands (K8). Who is
still to do something, and who was heard of longest ago, is kept up to date instead.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import takewhile

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

    outcome: ChainOutcome | None = None
    killed: ArkflowError | None = None

    @property
    def alive(self) -> bool:
        """It has not ended."""
        return self.outcome is None


class SourceTimes:
    """The lowest watermark of an attempt's sources (W12). LATEST: idle, it counts for nothing."""

    def __init__(self, sources: Iterable[ChainId]) -> None:
        self._marks: dict[ChainId, EventTimeMs | None] = dict.fromkeys(sources)
        self._unknown = len(self._marks)
        self._lowest: list[Slowest] = []  # a heap; what is no longer so is dropped when it is seen

    def says(self, source: ChainId, mark: EventTimeMs | None) -> None:
        """A source told how far it has come; None: not yet. One that is gone says nothing."""
        before = self._marks.get(source, LATEST)
        if source not in self._marks or mark == before:
            return
        self._unknown += (mark is None) - (before is None)
        self._marks[source] = mark
        if mark is not None and mark != LATEST:
            heappush(self._lowest, Slowest(mark, source))
            if len(self._lowest) > 2 * len(self._marks):
                self._lowest = [each for each in self._lowest if self._holds(each)]
                heapify(self._lowest)

    def gone(self, source: ChainId) -> None:
        """It has ended, or its data have."""
        if self._marks.pop(source, LATEST) is None:
            self._unknown -= 1

    def slowest(self) -> Slowest | None:
        """The lowest of all that are not idle; None while one has not said, or all are idle."""
        while self._lowest and not self._holds(self._lowest[0]):
            heappop(self._lowest)
        return self._lowest[0] if self._lowest and not self._unknown else None

    def _holds(self, told: Slowest) -> bool:
        return self._marks.get(told.chain) == told.time_ms


class Attempt:
    """One attempt. `failure` is what ended it, None while nothing did."""

    def __init__(self, generation: Generation, chains: Iterable[ChainPlan]) -> None:
        plans = tuple(chains)
        self.generation = generation
        self.chains = {plan.chain: ChainFacts() for plan in plans}
        self.control = ControlState(generation)
        self.failure: ArkflowError | None = None
        self.culprit: ChainId | None = None
        self.given_up = False
        self._alive = dict(self.chains)
        self._building = set(self.chains)
        self._connecting = set(self.chains)
        self._heard: dict[ChainId, MonotonicMs] = {}  # of those that are watched, the oldest first
        self._kills: dict[ChainId, MonotonicMs] = {}  # when chains are to be killed, the next first
        self._times = SourceTimes(
            plan.chain for plan in plans if plan.source is not None and plan.source.time is not None
        )

    # --- what chains are to know ---------------------------------------------------------------

    def note(self, desired: Desired) -> None:
        """Chains are to know what is wanted with their first control state."""
        self.control = self.control.merged(ControlState(self.generation, desired))

    def tell(self, control: ControlState) -> list[SendControl]:
        """Chains are to know this too; what to send to whom."""
        self.control = self.control.merged(control)
        ready = (name for name in self._alive if name not in self._building)
        return [SendControl(name, self.control) for name in ready]

    def want(self, desired: Desired) -> list[SendControl]:
        """What the coordinator wants of all chains; what to send to whom."""
        return self.tell(ControlState(self.generation, desired))

    def give_up(self, now_ms: MonotonicMs, timeout_ms: int) -> list[SendControl]:
        """It is to end: its chains are cancelled, and killed if they do not follow (D4)."""
        self.given_up = True
        for name in self._alive:
            self._kills.setdefault(name, MonotonicMs(now_ms + timeout_ms))
        return self.want(Desired.CANCEL)

    def is_news(self, event: ChainReport | ChainEnded) -> bool:
        """Whether the chain is of this attempt and has not ended."""
        chain = self.chains.get(event.chain)
        return event.generation == self.generation and chain is not None and chain.alive

    def kills(self, now_ms: MonotonicMs, timeout_ms: int) -> Iterator[KillChain]:
        """Chains that are to be killed now (D2, D4); one that does not end is killed again."""
        for name in self.silent(now_ms):
            seconds = HEARTBEAT_TIMEOUT_MS / 1000
            text = f"the process of chain '{name}' did not answer for {seconds:.0f} s; it is killed"
            self.chains[name].killed = ActorLostError(text)
            del self._heard[name]
            yield KillChain(name, self.generation)
        for name in self.overdue(now_ms):
            del self._kills[name]
            self._kills[name] = MonotonicMs(now_ms + timeout_ms)
            yield KillChain(name, self.generation)

    # --- what is known of them -----------------------------------------------------------------

    def ready(self, chain: ChainId) -> bool:
        """A chain is built and opened. True if it was the last one."""
        self._building.discard(chain)
        return self.all_ready

    def connected(self, chain: ChainId, now_ms: MonotonicMs) -> bool:
        """A chain has its channels. True if it was the last one: all count as heard of now."""
        self._connecting.discard(chain)
        if self.given_up or not self.all_connected:
            return False
        self._heard = dict.fromkeys(self._alive, now_ms)
        return True

    def heard(self, event: ChainReport) -> bool:
        """A chain reports. True if it is to be told the control state in return."""
        name = event.chain
        if self._heard.pop(name, None) is not None:
            self._heard[name] = event.at.now_ms
        if event.drained:
            self._times.gone(name)
        mark = LATEST if event.statistics.idle else event.statistics.watermark
        self._times.says(name, mark)
        slowest = self._times.slowest()
        if slowest is not None and slowest > self.control.slowest:
            self.control = replace(self.control, slowest=slowest)
        return self.all_connected or self.given_up

    @property
    def all_ready(self) -> bool:
        """Every chain is built and opened."""
        return not self._building

    @property
    def all_connected(self) -> bool:
        """Every chain has its channels."""
        return not self._connecting

    @property
    def in_order(self) -> bool:
        """Every chain runs, or has ended as it was told to; some still do."""
        return self.all_connected and not self.given_up and not self.over

    @property
    def over(self) -> bool:
        """Every chain has ended."""
        return not self._alive

    @property
    def ready_count(self) -> int:
        """How many chains are ready."""
        return len(self.chains) - len(self._building)

    def ended(self, name: ChainId, outcome: ChainOutcome) -> bool:
        """A chain ended. True if the attempt failed by it, which it had not before."""
        chain = self.chains[name]
        expected = self.given_up and name in self._kills
        chain.outcome = outcome
        del self._alive[name]
        self._heard.pop(name, None)
        self._kills.pop(name, None)
        self._times.gone(name)
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

    def overdue(self, now_ms: MonotonicMs) -> list[ChainId]:
        """Chains that did not end in time after they were told to (D4)."""
        return list(takewhile(lambda name: now_ms >= self._kills[name], self._kills))

    def silent(self, now_ms: MonotonicMs) -> list[ChainId]:
        """Chains that were not heard of for too long (D2)."""
        since_ms = now_ms - HEARTBEAT_TIMEOUT_MS
        return list(takewhile(lambda name: self._heard[name] <= since_ms, self._heard))

    def deadline_ms(self) -> MonotonicMs | None:
        """When somebody will be overdue or silent for too long."""
        kill_ms = next(iter(self._kills.values()), None)
        heard_ms = next(iter(self._heard.values()), None)
        silent_ms = None if heard_ms is None else MonotonicMs(heard_ms + HEARTBEAT_TIMEOUT_MS)
        return deadline(kill_ms, silent_ms)

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


__all__ = ["Attempt", "ChainFacts", "SourceTimes"]
