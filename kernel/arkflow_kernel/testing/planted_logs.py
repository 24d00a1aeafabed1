"""Planted bugs of checkpoints in a job: rounds, claims, records, retention. And the list of all."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from arkflow_kernel.attempt import Attempt
from arkflow_kernel.barrier import Ack, BarrierCoordinator
from arkflow_kernel.errors import StoreError, UnknownOutcomeError
from arkflow_kernel.ids import NO_CHECKPOINT, ChainId, CheckpointId
from arkflow_kernel.job_log import JobLog
from arkflow_kernel.job_record import CheckpointEntry, encode
from arkflow_kernel.log_sweeps import live_objects
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.protocol import ChainEnded, ChainReport, CoordinatorCommand, CoordinatorEvent
from arkflow_kernel.restore_choice import Decision
from arkflow_kernel.savepoint_files import OBJECT_FOLDER
from arkflow_kernel.slot_log import slot_path
from arkflow_kernel.snapshot import (
    ChainSnapshot,
    CheckpointRecord,
    Claim,
    RestoreChoice,
    RoundAnswer,
)
from arkflow_kernel.testing.planted_cuts import CUT_BUGS
from arkflow_kernel.testing.planted_jobs import PlantedCoordinator
from arkflow_kernel.testing.sim_world import Machines

# --- rounds ------------------------------------------------------------------------------------


class _PlantedRounds(PlantedCoordinator):
    """A coordinator, whose rounds are of another class."""

    def handle(self, event: CoordinatorEvent) -> list[CoordinatorCommand]:
        assert self._rounds is not None
        return super().handle(event)


class _TrustingRounds(BarrierCoordinator):
    def answered(self, chain: ChainId, answer: RoundAnswer) -> Ack:
        current = self.current
        if current is not None and answer.snapshot is not None:
            answer = replace(answer, checkpoint=current.number)
        return super().answered(chain, answer)


class AcceptsStaleAnswers(_PlantedRounds):
    """An answer to an older round counts for the one that is open (B4)."""

    part = ("_rounds._rounds", _TrustingRounds)


class _WelcomingAttempt(Attempt):
    def is_news(self, event: ChainReport | ChainEnded) -> bool:
        chain = self.chains.get(event.chain)
        if isinstance(event, ChainEnded):
            return super().is_news(event)
        return chain is not None and chain.alive


class AcceptsOldGenerations(PlantedCoordinator):
    """A report of an attempt before counts (B4)."""

    part = ("_attempt", _WelcomingAttempt)


class _HastyCompletion(BarrierCoordinator):
    def snapshots(self) -> tuple[ChainSnapshot, ...] | None:
        current = self.current
        if current is None or len(current.answers) < max(1, len(self._chains) - 1):
            return None
        found = [answer.snapshot for answer in current.answers.values()]
        return tuple(snapshot for snapshot in found if snapshot is not None)


class CompletesWithoutOne(_PlantedRounds):
    """A round completes though one chain did not answer (B4)."""

    part = ("_rounds._rounds", _HastyCompletion)


# --- the log -----------------------------------------------------------------------------------


class WritesWithoutTheFence(JobLog):
    """A record goes into the next free slot, whoever wrote the one before (M1)."""

    def append(self, record: CheckpointRecord) -> None:
        while self._log.write(self._slot + 1, encode(self._entry(record))) is not None:
            self._slot += 1
        self._slot += 1
        self._last = record.checkpoint


class FailsWithUnknownOutcome(JobLog):
    """A record whose fate is not known counts as not written (M1)."""

    def append(self, record: CheckpointRecord) -> None:
        try:
            made = self._files.create(slot_path(self._slot + 1), encode(self._entry(record)))
        except UnknownOutcomeError as error:
            raise StoreError("the record could not be written") from error
        if not made:
            raise self._fence(self._slot + 1)
        self._slot += 1
        self._last = record.checkpoint


class FallsBack(JobLog):
    """A claim restores the record before the newest, below epochs that are published (M2)."""

    def _decide(
        self, slots: list[int], choice: RestoreChoice, unusable: Mapping[CheckpointId, str]
    ) -> Decision:
        records = [s for s in slots if isinstance(self._log.read(s), CheckpointEntry)]
        older = [slot for slot in slots if len(records) < 2 or slot != records[-1]]
        return super()._decide(older, choice, unusable)


class ForgetsNumbers(JobLog):
    """Rounds are counted anew after a claim."""

    def claim(
        self,
        choice: RestoreChoice,
        unusable: Mapping[CheckpointId, str],
        graph: ExecutionGraph | None = None,
    ) -> Claim:
        return replace(super().claim(choice, unusable, graph), last_checkpoint=NO_CHECKPOINT)


class DecidesBeforeTheClaim(JobLog):
    """What is restored is decided once, though another claim or record came first (M1)."""

    _first: Decision | None = None

    def _decide(
        self, slots: list[int], choice: RestoreChoice, unusable: Mapping[CheckpointId, str]
    ) -> Decision:
        if self._first is None or self._generation is not None:
            self._first = super()._decide(slots, choice, unusable)
        return self._first


class CollectsByListing(JobLog):
    """Whatever a listing shows and no record lists is deleted (M5)."""

    def collect(self) -> None:
        super().collect()
        read = ((slot, self._log.read(slot)) for slot in self._log.slots())
        records = {slot: each for slot, each in read if isinstance(each, CheckpointEntry)}
        live = live_objects(records)
        names = self._files.sizes(OBJECT_FOLDER)
        self._delete(tuple(name for name in sorted(names) if name not in live))


class CollectsLiveObjects(JobLog):
    """What a dropped record lists is deleted, though a kept one lists it too (M5)."""

    def _delete(self, objects: tuple[str, ...]) -> None:
        super()._delete(objects)
        read = ((slot, self._log.read(slot)) for slot in self._log.slots())
        records = [each for _, each in read if isinstance(each, CheckpointEntry)]
        if len(records) > 1:
            super()._delete(tuple(records[0].objects))


LOG_BUGS: tuple[type[Any], ...] = (
    AcceptsStaleAnswers,
    AcceptsOldGenerations,
    CompletesWithoutOne,
    ForgetsNumbers,
    WritesWithoutTheFence,
    FailsWithUnknownOutcome,
    FallsBack,
    DecidesBeforeTheClaim,
    CollectsByListing,
    CollectsLiveObjects,
)


PLANTED_CUTS: dict[str, Machines] = {
    kind.__name__: Machines.planted(kind) for kind in (*CUT_BUGS, *LOG_BUGS)
}
"""Name of each planted bug, and the machines that have it."""

__all__ = ["PLANTED_CUTS"]
