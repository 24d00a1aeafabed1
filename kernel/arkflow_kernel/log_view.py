"""A job's log as a user sees it: every slot, the savepoints, and what a start would restore now.

Reads only. Whether a record fits the job's present plan is judged at a start (M6), not here.
"""

from dataclasses import dataclass

from arkflow_kernel.checkpoint_ports import LogFiles
from arkflow_kernel.errors import RestoreError
from arkflow_kernel.ids import CheckpointId, Generation, JobId, WallMs
from arkflow_kernel.job_record import CheckpointEntry, ClaimEntry, Defect, Entry, Unreadable
from arkflow_kernel.restore_checks import inconsistency
from arkflow_kernel.restore_choice import History
from arkflow_kernel.savepoint_files import SavepointFiles
from arkflow_kernel.slot_log import SlotLog, slot_path
from arkflow_kernel.snapshot import CheckpointPhases, RestoreKind


@dataclass(frozen=True, slots=True)
class RecordView:
    """A checkpoint record, or a savepoint's. Bytes and milliseconds; `created_at` since 1970.

    `tokens`: epochs that were not published yet. `unusable` says why it cannot be restored.
    """

    kind: str
    generation: Generation
    checkpoint: CheckpointId
    created_at: WallMs
    total_bytes: int
    new_bytes: int
    phases: CheckpointPhases
    tokens: int
    savepoint: str | None = None
    unusable: str | None = None


@dataclass(frozen=True, slots=True)
class ClaimView:
    """A claim. `base` says where it begins if a user said so."""

    generation: Generation
    coordinator: str
    created_at: WallMs
    base: str | None = None


@dataclass(frozen=True, slots=True)
class SlotView:
    """One slot of the log: a record, a claim, or `unreadable`, which says why."""

    slot: int
    record: RecordView | None = None
    claim: ClaimView | None = None
    unreadable: str | None = None


@dataclass(frozen=True, slots=True)
class LogView:
    """A log. `restores` is what a start without a word would restore, `refused` why it would not.

    Both None: a start begins from nothing. `broken_savepoints` says by name why one is none.
    """

    job: JobId | None
    slots: tuple[SlotView, ...]
    savepoints: tuple[RecordView, ...]
    broken_savepoints: dict[str, str]
    restores: str | None = None
    refused: str | None = None


def read_log(files: LogFiles) -> LogView:
    """Everything that the log of a job says. Raises `StoreError` if it cannot be read."""
    log = SlotLog(files)
    there = {slot: entry for slot in log.slots() if (entry := log.read(slot)) is not None}
    newer = [slot for slot, entry in there.items() if _newer(entry)]
    history = History(log, [slot for slot in there if slot not in newer], files)
    slots = tuple(_slot(slot, entry, history) for slot, entry in there.items())
    savepoints, broken = _savepoints(files)
    jobs = [entry.job for entry in there.values() if not isinstance(entry, Unreadable)]
    restores, refused = _restores(history)
    if newer:
        why = next(each.unreadable for each in slots if each.slot == newer[-1])
        restores, refused = None, f"{slot_path(newer[-1])}: {why}"
    return LogView(jobs[-1] if jobs else None, slots, savepoints, broken, restores, refused)


def _newer(entry: object) -> bool:
    return isinstance(entry, Unreadable) and entry.defect is Defect.NEWER


def _slot(slot: int, entry: Entry | Unreadable, all_: History) -> SlotView:
    if isinstance(entry, Unreadable):
        return SlotView(slot, unreadable=entry.why)
    if isinstance(entry, CheckpointEntry):
        return SlotView(slot, record=_record(entry, all_.defect(entry)))
    base = None if entry.base is None else _base(entry)
    claim = ClaimView(entry.generation, entry.coordinator, entry.created_at, base)
    return SlotView(slot, claim=claim)


def _record(entry: CheckpointEntry, unusable: str | None, name: str | None = None) -> RecordView:
    record = entry.record
    lanes = [lane for chain in record.chains for lane in chain.lanes]
    return RecordView(
        kind=record.kind.value,
        generation=record.generation,
        checkpoint=record.checkpoint,
        created_at=entry.created_at,
        total_bytes=entry.total_bytes,
        new_bytes=record.phases.new_bytes,
        phases=record.phases,
        tokens=sum(len(lane.tokens) for lane in lanes),
        savepoint=name or record.savepoint,
        unusable=unusable,
    )


def _base(claim: ClaimEntry) -> str:
    assert claim.base is not None
    match claim.base.kind:
        case RestoreKind.CHECKPOINT:
            return f"checkpoint {claim.base.checkpoint}"
        case RestoreKind.SAVEPOINT:
            return f"savepoint '{claim.base.savepoint}'"
    return "nothing"


def _savepoints(files: LogFiles) -> tuple[tuple[RecordView, ...], dict[str, str]]:
    reader = SavepointFiles(files, None)
    found: list[RecordView] = []
    broken: dict[str, str] = {}
    for name in reader.names():
        try:
            savepoint = reader.read(name)
        except RestoreError as error:
            broken[name] = str(error)
            continue
        unusable = inconsistency(savepoint.entry, None) or savepoint.missing()
        found.append(_record(savepoint.entry, unusable, name))
    return tuple(found), broken


def _restores(history: History) -> tuple[str | None, str | None]:
    """What the newest candidate is; a newer one that cannot be restored goes before it (M2)."""
    passed: list[str] = []
    sinks: set[str] = set()
    found: str | None = None
    for slot, entry in history.entries():
        if isinstance(entry, Unreadable):
            passed.append(f"{slot_path(slot)} cannot be restored: {entry.why}")
        elif isinstance(entry, CheckpointEntry):
            sinks.update(entry.plan.exactly_once)
            name = f"checkpoint {entry.record.checkpoint}"
            if (why := history.defect(entry)) is None:
                found = name
                break
            passed.append(f"{name} cannot be restored: {why}")
        elif entry.base is not None:
            found = _base(entry)
            break
    if passed and (sinks or found is None):
        told = f"; {found} is the next older one" if found is not None else ""
        return None, f"{'; '.join(passed)}{told}"
    return (None if found == "nothing" else found), None


__all__ = ["ClaimView", "LogView", "RecordView", "SlotView", "read_log"]
