"""The log of one job: claims, records, fencing, savepoints, retention (M1, M2, M3, M5, M6, X4).

One `JobLog` is one coordinator. Its first claim takes the slot after the highest one; from then on
it writes only the slot after the last one that it wrote, its later claims too. If somebody else was
there first, a later generation runs the job, and nothing more is written here.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from arkflow_kernel.checkpoint_ports import LogFiles
from arkflow_kernel.errors import FencedError, ProtocolError, RestoreError, StoreError
from arkflow_kernel.ids import NO_CHECKPOINT, CheckpointId, Generation, WallMs
from arkflow_kernel.job_plan_record import plan_of
from arkflow_kernel.job_record import (
    CheckpointEntry,
    ClaimEntry,
    Unreadable,
    encode,
    listed_objects,
)
from arkflow_kernel.log_sweeps import dropped_records, left_by_older, live_objects
from arkflow_kernel.plan import CheckpointPlan, ExecutionGraph
from arkflow_kernel.restore_choice import Chooser, Decision, History
from arkflow_kernel.savepoint_files import (
    OBJECT_FOLDER,
    SAVEPOINT_FOLDER,
    OpenFiles,
    SavepointFiles,
    with_brought_objects,
)
from arkflow_kernel.slot_log import SlotLog, slot_path
from arkflow_kernel.snapshot import (
    CheckpointRecord,
    Claim,
    RestoreChoice,
    RestoredJob,
    RestoreKind,
)


class JobLog:
    """A `CheckpointLog` over the files of one job. What is not deterministic is handed in.

    `nonce` is unique for ever; `coordinator` names the process for users; `url` is that of the
    job's folder; `open_files` gives the files below another URL. `continued`: another `JobLog` of
    the same run made claims before, so the user's choice of a start was followed already. `run`
    names the run in its nonces: a coordinator that continues it does not take the job back from
    another run that claimed it meanwhile (D7).
    """

    def __init__(
        self,
        graph: ExecutionGraph,
        files: LogFiles,
        *,
        nonce: str,
        coordinator: str,
        wall_ms: Callable[[], WallMs],
        url: str | None = None,
        open_files: OpenFiles | None = None,
        continued: bool = False,
        run: str = "",
    ) -> None:
        self._graph = graph
        self._policy = graph.checkpoint or CheckpointPlan()
        self._plan = plan_of(graph)
        self._files = files
        self._run = f"{run}-" if run else ""
        self._nonce = f"{self._run}{nonce}"
        self._coordinator = coordinator
        self._wall_ms = wall_ms
        self._url = _url(graph) if url is None else url.rstrip("/")
        self._log = SlotLog(files)
        self._savepoints = SavepointFiles(files, open_files)
        self._continued = continued
        self._fenced: FencedError | None = None
        self._slot = 0  # the last one written here; 0: none yet
        self._lowest = Generation(1)  # what the next claim may be at the lowest
        self._generation: Generation | None = None  # None: no claim, or it was not finished
        self._last = NO_CHECKPOINT
        self._restored_slot: int | None = None
        self._restored_objects: frozenset[str] = frozenset()
        self._unsaved: dict[CheckpointId, int] = {}
        self._swept = Generation(0)

    def claim(
        self,
        choice: RestoreChoice,
        unusable: Mapping[CheckpointId, str],
        graph: ExecutionGraph | None = None,
    ) -> Claim:
        """See `CheckpointLog.claim`. What the choice says of the start counts once in a run.

        Also raises `FencedError`: somebody else claimed the job since the last claim made here.
        """
        if graph is not None:
            self._replan(graph)
        self._generation = None
        while True:
            slots = self._log.slots()
            self._fence_if_behind(slots)
            try:
                decision = self._decide(slots, choice, unusable)
            except RestoreError:
                if self._log.slots() == slots:
                    raise
                continue  # a running job wrote on, and dropped what was looked at here
            generation = max(decision.generation, self._lowest, key=int)
            slot = slots[-1] + 1 if slots else 1
            entry = ClaimEntry(
                self._graph.job,
                self._graph.version,
                generation,
                self._nonce,
                self._coordinator,
                self._wall_ms(),
                decision.last_checkpoint,
                self._plan,
                decision.base,
            )
            if self._log.write(slot, encode(entry)) is not None:
                continue  # for a later claim this ends in the fence above
            self._lowest = Generation(generation + 1)
            if self._slot:
                self._slot = slot  # ours, whatever fails from here on
            if not self._in_a_gap(slot, generation):
                self._slot = slot
                return self._claimed(generation, decision)

    def append(self, record: CheckpointRecord) -> None:
        """See `CheckpointLog.append`."""
        self._check(record)
        if record.checkpoint <= self._last:
            raise ProtocolError(f"checkpoint {record.checkpoint} after checkpoint {self._last}")
        slot = self._slot + 1
        if self._log.write(slot, encode(self._entry(record))) is not None:
            raise self._fence(slot)
        self._slot = slot
        self._last = record.checkpoint
        self._restored_slot, self._restored_objects = None, frozenset()
        if record.savepoint is not None:
            self._unsaved[record.checkpoint] = slot

    def save(self, record: CheckpointRecord) -> str:
        """See `CheckpointLog.save`. `StoreError` if there is another savepoint of that name."""
        self._check(record)
        if (
            not record.savepoint
            or set(record.savepoint) & set("/\\:")
            or record.savepoint[0] == "."
        ):
            raise StoreError(
                f"a savepoint cannot be called '{record.savepoint}': use letters, digits, '-', '_'"
            )
        copied = record.without_tokens()
        self._savepoints.write(record.savepoint, self._entry(copied))
        self._unsaved.pop(record.checkpoint, None)
        place = f"{SAVEPOINT_FOLDER}/{record.savepoint}"
        return f"{self._url}/{place}" if self._url else place

    def collect(self) -> None:
        """See `CheckpointLog.collect`. Does nothing before the first claim."""
        if self._fenced is not None:
            raise self._fenced
        if self._generation is None:
            return
        slots = self._log.slots()
        self._fence_if_behind(slots)
        read = ((slot, self._log.read(slot)) for slot in slots)
        records = {slot: each for slot, each in read if isinstance(each, CheckpointEntry)}
        pinned = set(self._unsaved.values())
        if self._restored_slot is not None:
            pinned.add(self._restored_slot)
        sweep = dropped_records(records, self._policy.retention, pinned)
        for slot in sweep.slots:
            self._log.drop(slot)
            records.pop(slot)
        self._delete(sweep.objects)
        if self._swept < self._generation:
            live = live_objects(records) | self._restored_objects
            names = self._files.sizes(OBJECT_FOLDER)
            self._delete(left_by_older(names, self._generation, live))
            if not self._restored_objects:  # else once more after the first record
                self._swept = self._generation

    def close(self) -> None:
        """See `CheckpointLog.close`."""
        self._files.close()

    def _replan(self, graph: ExecutionGraph) -> None:
        """The next claim is of this plan, and so are the records after it (K2)."""
        if graph.job != self._graph.job:
            raise ProtocolError(f"a plan of job '{graph.job}' in the log of '{self._graph.job}'")
        self._graph = graph
        self._plan = plan_of(graph)

    def _decide(
        self, slots: list[int], choice: RestoreChoice, unusable: Mapping[CheckpointId, str]
    ) -> Decision:
        recovery = self._policy.recovery
        if self._slot or self._continued:
            kind = RestoreKind.NEWEST
            choice = replace(choice, kind=kind, must_exist=False, must_not_exist=False)
            recovery = "latest_checkpoint"
        history = History(self._log, slots, self._files)
        return Chooser(self._graph, history, self._savepoints, choice, unusable).decide(recovery)

    def _in_a_gap(self, slot: int, generation: Generation) -> bool:
        """Whether records above a claim show that its slot was a gap, left by the retention.

        That is so if their writer ran on, unfenced, while this claimer slept. Such a claim is void.
        """
        above = (self._log.read(each) for each in self._log.slots() if each > slot)
        return any(
            isinstance(each, CheckpointEntry) and each.record.generation < generation
            for each in above
        )

    def _claimed(self, generation: Generation, decision: Decision) -> Claim:
        self._last = decision.last_checkpoint
        self._unsaved.clear()
        self._restored_slot = decision.slot
        restored = decision.restored
        self._restored_objects = _objects(restored)
        if restored is not None and decision.savepoint is not None:
            names = generation if decision.brought_by is None else decision.brought_by
            restored = replace(restored, chains=with_brought_objects(restored.chains, names))
            self._restored_objects = _objects(restored)
            self._savepoints.bring_in(decision.savepoint, names)
        self._generation = generation
        return Claim(generation, restored, decision.last_checkpoint, decision.notes)

    def _check(self, record: CheckpointRecord) -> None:
        if self._fenced is not None:
            raise self._fenced
        if record.generation != self._generation:
            raise ProtocolError(
                f"a record of generation {record.generation}, claimed is {self._generation}"
            )
        held = [(chain.chain, chain.tasks) for chain in record.chains]
        if len(held) != len(self._plan.chains) or set(held) != self._plan.tasks:
            raise ProtocolError(f"record {record.checkpoint} does not hold every planned chain")

    def _entry(self, record: CheckpointRecord) -> CheckpointEntry:
        job, version = self._graph.job, self._graph.version
        return CheckpointEntry(job, version, self._nonce, self._wall_ms(), self._plan, record)

    def _delete(self, objects: tuple[str, ...]) -> None:
        for name in objects:
            self._files.delete(f"{OBJECT_FOLDER}/{name}")

    def _fence_if_behind(self, slots: list[int]) -> None:
        """Once a slot is ours, the last one must be ours too."""
        if self._fenced is not None:
            raise self._fenced
        if self._slot and slots and slots[-1] > self._slot:
            raise self._fence(self._slot + 1)
        if self._continued and self._run and not self._slot:
            claims = ((slot, self._log.read(slot)) for slot in reversed(slots))
            newest = next(((s, e) for s, e in claims if isinstance(e, ClaimEntry)), None)
            if newest is not None and not newest[1].nonce.startswith(self._run):
                raise self._fence(newest[0])

    def _fence(self, slot: int) -> FencedError:
        """Somebody else wrote our next slot. Whole files only come into being, so it was not us."""
        entry = self._log.read(slot)
        if isinstance(entry, ClaimEntry):
            who = f"generation {entry.generation} was claimed by {entry.coordinator}"
        elif isinstance(entry, Unreadable):
            who = f"somebody else wrote it, but it cannot be read: {entry.why}"
        else:
            who = "somebody else wrote it"
        self._fenced = FencedError(
            f"job '{self._graph.job}' is run by another coordinator: at {slot_path(slot)} {who}. "
            f"This one (generation {self._generation}, {self._coordinator}) writes nothing more; "
            "run a job in one place only"
        )
        return self._fenced


def _objects(restored: RestoredJob | None) -> frozenset[str]:
    return frozenset() if restored is None else frozenset(listed_objects(restored.chains))


def _url(graph: ExecutionGraph) -> str:
    root = None if graph.checkpoint is None else graph.checkpoint.root
    return "" if root is None else f"{root.rstrip('/')}/{graph.job}"


__all__ = ["JobLog"]
