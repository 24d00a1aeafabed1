"""Barriers (B1-B6): where a chain's inputs wait for each other, and when a round is complete.

Two pure parts. `Aligner` belongs to a chain: it pauses an input whose barrier has come until every
input's has. `BarrierCoordinator` belongs to the job: one round at a time, complete when every
planned chain has answered it, and failed when its deadline passes or a chain cannot answer.

Invariants: an incomplete set of answers never completes a round; an answer to another round, or of
another generation, changes nothing; a failed round leaves no input paused.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from arkflow_kernel.envelope import Barrier, RoundKind
from arkflow_kernel.errors import ChannelError
from arkflow_kernel.ids import NO_CHECKPOINT, ChainId, ChannelId, CheckpointId, MonotonicMs
from arkflow_kernel.snapshot import ChainSnapshot, RoundAnswer


class Aligner:
    """Which inputs of a chain wait for a barrier on the others (B1, B2).

    There are no exempt inputs: an input whose data have ended still delivers barriers.
    """

    def __init__(self, inputs: Iterable[ChannelId]) -> None:
        self._last = dict.fromkeys(inputs, NO_CHECKPOINT)
        self._round = NO_CHECKPOINT
        self._arrived: set[ChannelId] = set()
        self._over = NO_CHECKPOINT
        self.swallowed = 0

    @property
    def aligning(self) -> CheckpointId:
        """The round that some inputs wait for; 0 for none."""
        return self._round

    def paused(self, channel: ChannelId) -> bool:
        """Whether nothing may be taken off this input now."""
        return channel in self._arrived

    def missing(self) -> list[ChannelId]:
        """Inputs whose barrier the others wait for."""
        return [c for c in self._last if c not in self._arrived] if self._arrived else []

    def delivered(self, channel: ChannelId, barrier: Barrier) -> bool:
        """A barrier was taken off an input. True if it was the last one of its round: seal now.

        Raises `ChannelError` for a round that the input has already delivered, or passed.
        """
        round_id = barrier.round_id
        if round_id <= self._last[channel]:
            raise ChannelError(
                f"channel {channel} delivered the barrier of round {round_id} "
                f"after that of round {self._last[channel]}"
            )
        self._last[channel] = round_id
        if round_id <= self._over or round_id < self._round:
            self.swallowed += 1
            return False
        if round_id > self._round:  # it supersedes the one that was being aligned
            self._round = round_id
            self._arrived.clear()
        self._arrived.add(channel)
        if len(self._arrived) < len(self._last):
            return False
        self.over(round_id)
        return True

    def over(self, upto: CheckpointId) -> None:
        """Rounds up to this one have failed, or are aligned: their inputs go on."""
        self._over = max(self._over, upto, key=int)
        if self._round <= self._over:
            self._round = NO_CHECKPOINT
            self._arrived.clear()

    def validate(self) -> None:
        """Assert that inputs are paused only for a round that others still owe."""
        assert bool(self._arrived) == (self._round != NO_CHECKPOINT)
        assert len(self._arrived) < max(1, len(self._last))
        assert self._round == NO_CHECKPOINT or self._round > self._over


class Ack(Enum):
    """What became of an answer to a round (B4): a result, never an error."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    STALE = "stale"
    UNKNOWN = "unknown"


@dataclass
class Round:
    """A round that is open. `answers` holds the snapshots so far."""

    number: CheckpointId
    kind: RoundKind
    opened_ms: MonotonicMs
    deadline_ms: MonotonicMs
    savepoint: str | None = None
    closing: bool = False
    answers: dict[ChainId, RoundAnswer] = field(default_factory=dict)


class BarrierCoordinator:
    """The rounds of one attempt, one at a time (B4, B5).

    Nothing here looks through all chains for one event: there may be thousands (K8).
    """

    def __init__(
        self, chains: Iterable[ChainId], *, last: CheckpointId = NO_CHECKPOINT, timeout_ms: int
    ) -> None:
        self._chains = dict.fromkeys(chains)
        self._last = last
        self._timeout_ms = timeout_ms
        self._missing: dict[ChainId, None] = {}
        self._declined: tuple[ChainId, RoundAnswer] | None = None
        self.current: Round | None = None

    def open(
        self,
        kind: RoundKind,
        now_ms: MonotonicMs,
        *,
        savepoint: str | None = None,
        closing: bool = False,
    ) -> Round:
        """Open the next round; only when none is open. `closing`: nothing follows it."""
        assert self.current is None, "one round at a time"
        self._last = CheckpointId(self._last + 1)
        due_ms = MonotonicMs(now_ms + self._timeout_ms)
        self.current = Round(self._last, kind, now_ms, due_ms, savepoint, closing)
        self._missing, self._declined = dict(self._chains), None
        return self.current

    def answered(self, chain: ChainId, answer: RoundAnswer) -> Ack:
        """A chain says what became of a round in it."""
        current = self.current
        if chain not in self._chains or answer.checkpoint > self._last:
            return Ack.UNKNOWN
        if current is None or answer.checkpoint != current.number:
            return Ack.STALE
        if chain in current.answers:
            return Ack.DUPLICATE
        current.answers[chain] = answer
        del self._missing[chain]
        if answer.snapshot is None and self._declined is None:
            self._declined = chain, answer
        return Ack.ACCEPTED

    @property
    def missing(self) -> tuple[ChainId, ...]:
        """Chains that have not answered the open round."""
        return tuple(self._missing)

    @property
    def declined(self) -> tuple[ChainId, RoundAnswer] | None:
        """The first chain that could not answer the open round with a snapshot."""
        return self._declined

    def snapshots(self) -> tuple[ChainSnapshot, ...] | None:
        """All snapshots of the open round in the order of the plan; None while one is missing."""
        if self.current is None or self._missing or self._declined is not None:
            return None
        answers = (self.current.answers[chain] for chain in self._chains)
        return tuple(answer.snapshot for answer in answers if answer.snapshot is not None)

    def expired(self, now_ms: MonotonicMs) -> bool:
        """Whether the open round has passed its deadline while answers are missing (B5)."""
        current = self.current
        return current is not None and bool(self._missing) and now_ms >= current.deadline_ms

    def close(self) -> Round:
        """The open round is over: completed, or failed."""
        assert self.current is not None
        closed, self.current = self.current, None
        self._missing, self._declined = {}, None
        return closed

    def deadline_ms(self) -> MonotonicMs | None:
        """When the open round fails."""
        return self.current.deadline_ms if self._missing and self.current is not None else None


__all__ = ["Ack", "Aligner", "BarrierCoordinator", "Round"]
