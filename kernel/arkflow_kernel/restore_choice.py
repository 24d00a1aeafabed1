"""What a claim restores: decided from the slots below it, before it is made (M2, M3, M6, X4)."""

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from functools import cached_property

from arkflow_kernel.checkpoint_ports import LogFiles
from arkflow_kernel.errors import RestoreError
from arkflow_kernel.ids import NO_CHECKPOINT, CheckpointId, Generation, OperatorId
from arkflow_kernel.job_plan_record import lost_lanes
from arkflow_kernel.job_record import (
    Base,
    CheckpointEntry,
    ClaimEntry,
    Defect,
    Entry,
    Unreadable,
)
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.restore_checks import fit, inconsistency
from arkflow_kernel.savepoint_files import (
    OBJECT_FOLDER,
    Savepoint,
    SavepointFiles,
    missing_object,
)
from arkflow_kernel.slot_log import SlotLog, slot_path
from arkflow_kernel.snapshot import Epoch, RestoreChoice, RestoredJob, RestoreKind


@dataclass(frozen=True, slots=True)
class Decision:
    """What the next claim restores, and the numbers that it takes.

    `generation` is the lowest that it may take. `base`: the claim is a base for later ones.
    `savepoint` has to be brought in under the names of generation `brought_by` (None: that of the
    claim itself). `slot` is that of the restored record.
    """

    generation: Generation
    last_checkpoint: CheckpointId
    restored: RestoredJob | None = None
    base: Base | None = None
    savepoint: Savepoint | None = None
    brought_by: Generation | None = None
    slot: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Failed:
    """Candidates that cannot be restored, newest first: what, its number if known, why."""

    what: list[str] = field(default_factory=list)
    newest: CheckpointId | None = None
    sinks: set[OperatorId] = field(default_factory=set)

    def add(self, what: str, why: str, entry: CheckpointEntry | None = None) -> None:
        self.what.append(f"{what} cannot be restored: {why}")
        if entry is not None:
            self.newest = self.newest or entry.record.checkpoint
            self.sinks.update(entry.plan.exactly_once)


class History:
    """Facts about the slots below a claim. Reads each slot once, newest first, as far as needed."""

    def __init__(self, log: SlotLog, slots: Seq[int], files: LogFiles) -> None:
        self._log = log
        self._slots = slots
        self._files = files

    def entries(self, below: int | None = None) -> Iterator[tuple[int, Entry | Unreadable]]:
        """Slots and what they hold, newest first; below a slot. Raises `RestoreError` on S9."""
        for slot in reversed(self._slots):
            if below is not None and slot >= below:
                continue
            entry = self._log.read(slot)
            if isinstance(entry, Unreadable) and entry.defect is Defect.NEWER:
                raise RestoreError(
                    f"{slot_path(slot)} was written by a newer release: {entry.why}; start the job "
                    "with that release, or give it another checkpoint folder"
                )
            if entry is not None:
                yield slot, entry

    def records(self) -> Iterator[tuple[int, CheckpointEntry]]:
        """The checkpoint records, newest first."""
        for slot, entry in self.entries():
            if isinstance(entry, CheckpointEntry):
                yield slot, entry

    def numbers(self) -> tuple[Generation, CheckpointId, Entry | None]:
        """Highest generation and checkpoint, and the newest entry; a burnt slot counts as one."""
        burnt = 0
        for _, entry in self.entries():
            if isinstance(entry, Unreadable):
                burnt += 1
                continue
            if isinstance(entry, ClaimEntry):
                generation, checkpoint = entry.generation, entry.last_checkpoint
            else:
                generation, checkpoint = entry.record.generation, entry.record.checkpoint
            return Generation(generation + burnt), CheckpointId(checkpoint + burnt), entry
        return Generation(burnt), CheckpointId(burnt), None

    def defect(self, entry: CheckpointEntry) -> str | None:
        """Why a record of the log is no usable cut, or None (M2)."""
        generation = entry.record.generation
        claims = (e for _, e in self.entries() if isinstance(e, ClaimEntry))
        claim = next((claim for claim in claims if claim.generation == generation), None)
        if claim is None:
            return f"the claim of its generation {generation} cannot be read"
        return inconsistency(entry, claim) or missing_object(entry.objects, self._sizes)

    @cached_property
    def _sizes(self) -> dict[str, int]:
        """All objects of the job, in one listing."""
        return self._files.sizes(OBJECT_FOLDER)


class Chooser:
    """Decides for one claim. Raises `RestoreError` if the job must not start so."""

    def __init__(
        self,
        graph: ExecutionGraph,
        history: History,
        savepoints: SavepointFiles,
        choice: RestoreChoice,
        unusable: Mapping[CheckpointId, str],
    ) -> None:
        self._graph = graph
        self._history = history
        self._savepoints = savepoints
        self._choice = choice
        self._unusable = unusable
        generation, self._last, newest = history.numbers()
        self._free = Decision(Generation(generation + 1), self._last)
        if newest is not None and newest.job != graph.job:
            raise RestoreError(
                f"the log in the job's folder is of job '{newest.job}', this is job '{graph.job}': "
                "give each job a folder of its own"
            )

    def decide(self, recovery: str) -> Decision:
        """By what the user said; `recovery` is the job's own setting, for a start without a word.

        `latest_checkpoint`, `latest_savepoint` or `fail` (M3).
        """
        choice = self._choice
        plain = choice.kind is RestoreKind.NEWEST
        if choice.must_not_exist or (plain and recovery == "fail"):
            self._refuse_records()
        match choice.kind:
            case RestoreKind.SCRATCH:
                decision = self._scratch()
            case RestoreKind.CHECKPOINT:
                decision = self._checkpoint(choice.checkpoint)
            case RestoreKind.SAVEPOINT:
                decision = self._chosen_savepoint(self._savepoints.read(choice.savepoint))
            case RestoreKind.NEWEST if recovery == "latest_savepoint":
                decision = self._latest_savepoint()
            case RestoreKind.NEWEST:
                decision = self._newest()
        if choice.must_exist and decision.restored is None:
            raise RestoreError(
                f"there is nothing to resume: job '{self._graph.job}' has no checkpoint; start it "
                "with `run`"
            )
        return decision

    def _refuse_records(self) -> None:
        for slot, entry in self._history.entries():
            if not isinstance(entry, ClaimEntry):
                what = (
                    f"checkpoint {entry.record.checkpoint}"
                    if isinstance(entry, CheckpointEntry)
                    else slot_path(slot)
                )
                raise RestoreError(
                    f"job '{self._graph.job}' has a checkpoint already ({what}), and it was asked "
                    "to start only without one (`recovery: fail`): resume it, or start it with "
                    "--from-scratch"
                )

    def _scratch(self) -> Decision:
        notes: tuple[str, ...] = ()
        sinks = self._sinks()
        if sinks and any(True for _ in self._history.records()):
            notes = (f"it starts from scratch: {_told(sinks)} will repeat what was published",)
        return replace(self._free, base=Base(RestoreKind.SCRATCH), notes=notes)

    def _checkpoint(self, wanted: CheckpointId) -> Decision:
        found = self._find(wanted)
        if found is None:
            known = [str(entry.record.checkpoint) for _, entry in self._history.records()]
            raise RestoreError(
                f"job '{self._graph.job}' has no checkpoint {wanted}; it has: "
                f"{', '.join(known) or 'none'}"
            )
        slot, entry = found
        if (why := self._defect(entry)) is not None:
            raise RestoreError(f"checkpoint {wanted} cannot be restored: {why}; choose another one")
        self._refuse_duplicates(entry, f"checkpoint {wanted}")
        base = Base(RestoreKind.CHECKPOINT, checkpoint=wanted)
        return replace(self._from_record(slot, entry), base=base)

    def _latest_savepoint(self) -> Decision:
        savepoint = self._savepoints.newest()
        if savepoint is not None:
            return self._chosen_savepoint(savepoint)
        for _ in self._history.records():
            raise RestoreError(
                f"job '{self._graph.job}' is to start from its latest savepoint (`recovery: "
                "latest_savepoint`) and has none, but it has checkpoints: set `recovery: "
                "latest_checkpoint`, or start it with --from-scratch"
            )
        return self._newest()

    def _chosen_savepoint(self, savepoint: Savepoint) -> Decision:
        if savepoint.entry.job == self._graph.job:
            self._refuse_duplicates(savepoint.entry, f"savepoint '{savepoint.name}'")
        base = Base(RestoreKind.SAVEPOINT, savepoint=savepoint.name)
        return replace(self._from_savepoint(savepoint), base=base)

    def _newest(self) -> Decision:
        failed = _Failed()
        below: int | None = None
        for slot, entry in self._history.entries():
            if below is not None and slot >= below:
                continue
            if isinstance(entry, Unreadable):
                failed.add(slot_path(slot), entry.why)
                continue
            if isinstance(entry, ClaimEntry):
                if entry.base is None:
                    continue
                if entry.base.kind is RestoreKind.SCRATCH:
                    return self._after(failed, self._free)
                if entry.base.kind is RestoreKind.SAVEPOINT:
                    decision = self._from_base(entry, failed)
                    if decision is not None:
                        return self._after(failed, decision)
                    break
                found = self._find(entry.base.checkpoint)
                if found is None:
                    failed.add(f"checkpoint {entry.base.checkpoint}", "its record is missing")
                    break
                slot, entry = found
                below = slot
                assert isinstance(entry, CheckpointEntry)
            if (why := self._defect(entry)) is not None:
                failed.add(f"checkpoint {entry.record.checkpoint}", why, entry)
                continue
            return self._after(failed, self._from_record(slot, entry))
        return self._nothing(failed)

    def _from_base(self, claim: ClaimEntry, failed: _Failed) -> Decision | None:
        assert claim.base is not None
        name = claim.base.savepoint
        savepoint = self._savepoints.read(name)
        if (why := self._unusable.get(savepoint.entry.record.checkpoint)) is not None:
            failed.add(f"savepoint '{name}'", why, savepoint.entry)
            return None
        return replace(self._from_savepoint(savepoint), brought_by=claim.generation)

    def _after(self, failed: _Failed, decision: Decision) -> Decision:
        """A decision that passes over newer records: only without exactly-once sinks (M2)."""
        if not failed.what:
            return decision
        restored = decision.restored
        sinks = sorted(failed.sinks | set(self._sinks()))
        if not sinks:
            told = "nothing" if restored is None else restored.source
            notes = (*(f"{each}; {told} is restored instead" for each in failed.what),)
            return replace(decision, notes=notes + decision.notes)
        older = NO_CHECKPOINT if restored is None else restored.checkpoint
        flag = f"`--from-checkpoint {older} --accept-duplicates`" if older else "`--from-scratch`"
        raise RestoreError(
            f"{'; '.join(failed.what)}. To start from "
            f"{'nothing' if restored is None else restored.source} would repeat up to "
            f"{max(1, self._last - older)} epochs in {_told(sinks)}; to do so, start with {flag}"
        )

    def _nothing(self, failed: _Failed) -> Decision:
        if not failed.what:
            return self._free
        raise RestoreError(
            f"job '{self._graph.job}' has completed checkpoints, and none of them can be restored: "
            f"{'; '.join(failed.what)}. Repair the store, or start with --from-scratch, which "
            "forgets all state and positions"
        )

    def _find(self, wanted: CheckpointId) -> tuple[int, CheckpointEntry] | None:
        records = self._history.records()
        return next((found for found in records if found[1].record.checkpoint == wanted), None)

    def _defect(self, entry: CheckpointEntry) -> str | None:
        return self._unusable.get(entry.record.checkpoint) or self._history.defect(entry)

    def _from_record(self, slot: int, entry: CheckpointEntry) -> Decision:
        what = f"checkpoint {entry.record.checkpoint}"
        return replace(self._restored(entry, what, own=True), slot=slot)

    def _from_savepoint(self, savepoint: Savepoint) -> Decision:
        entry, what = savepoint.entry, f"savepoint '{savepoint.name}'"
        if (why := inconsistency(entry, None) or savepoint.missing()) is not None:
            raise RestoreError(f"{what} cannot be restored: {why}; choose another one")
        own = entry.job == self._graph.job
        decision = replace(self._restored(entry, what, own=own), savepoint=savepoint)
        if not own and (sinks := self._sinks()):
            note = f"{what} is of job '{entry.job}': {_told(sinks)} will publish again what that "
            decision = replace(
                decision, notes=(*decision.notes, f"{note}job published after the savepoint")
            )
        # Names of runs and objects carry generations: those to come are above all that came.
        return replace(
            decision,
            generation=max(decision.generation, Generation(entry.record.generation + 1), key=int),
            last_checkpoint=max(decision.last_checkpoint, entry.record.checkpoint, key=int),
        )

    def _restored(self, entry: CheckpointEntry, what: str, *, own: bool) -> Decision:
        judged = fit(
            entry,
            self._graph,
            job=self._graph.job if own else None,
            allow_dropped_state=self._choice.allow_dropped_state,
        )
        if judged.refusals:
            raise RestoreError(
                f"{what} does not fit job '{self._graph.job}': " + "; ".join(judged.refusals)
            )
        record = entry.record
        restored = RestoredJob(
            record.checkpoint, record.kind, what, judged.chains, entry.created_at
        )
        return replace(self._free, restored=restored, notes=judged.notes)

    def _refuse_duplicates(self, entry: CheckpointEntry, what: str) -> None:
        """X4: a start before epochs that readers have seen repeats them."""
        sinks = sorted({*self._sinks(), *entry.plan.exactly_once})
        if not sinks or self._choice.accept_duplicates:
            return
        if self._published_since(entry):
            raise RestoreError(
                f"{what} is older than what was published: {_told(sinks)} would repeat up to "
                f"{max(1, self._last - entry.record.checkpoint)} epochs; if that is acceptable, "
                "add `--accept-duplicates`"
            )

    def _published_since(self, base: CheckpointEntry) -> bool:
        """Whether epochs after a record were published, or may have been.

        Lanes without a subtask leave the records (X5), and old records go with the retention: where
        those that are kept do not reach back to the base, fewer subtasks are reason enough.
        """
        start = Epoch(base.record.generation, base.record.checkpoint)
        plans, newer = [], False
        for _, entry in self._history.entries():
            if isinstance(entry, Unreadable):
                return True
            if isinstance(entry, CheckpointEntry):
                if entry.record.checkpoint <= start.checkpoint:
                    return False
                if _published_after(entry, start):
                    return True
                newer = True
            elif entry.generation > start.generation:
                plans.append(entry.plan)
        return newer and lost_lanes([*plans, base.plan])

    def _sinks(self) -> list[OperatorId]:
        sinks = (sink for chain in self._graph.chains for sink in chain.sinks)
        return sorted({sink.operator for sink in sinks if sink.exactly_once})


def _published_after(entry: CheckpointEntry, start: Epoch) -> bool:
    """Whether a record shows epochs after this one that were, or may have been published."""
    lanes = [lane for chain in entry.record.chains for lane in chain.lanes]
    epochs = [token.epoch for lane in lanes for token in lane.tokens]
    epochs += [lane.published_upto for lane in lanes if lane.published_upto is not None]
    return any(epoch > start for epoch in epochs)


def _told(sinks: Seq[OperatorId]) -> str:
    return f"the exactly-once sinks {', '.join(repr(str(sink)) for sink in sinks)}"


__all__ = ["Chooser", "Decision", "History"]
