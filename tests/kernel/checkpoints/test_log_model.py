"""Rival coordinators on one log, with faults and crashes between any two calls (M1, M2, M5).

Each call of a coordinator is cut into file calls; before any of them a rival may do a whole call of
its own, the store may fail or leave an outcome open, or the process may die.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arkflow_kernel.checkpoint_ports import LogFiles
from arkflow_kernel.errors import FencedError, StoreError
from arkflow_kernel.ids import CheckpointId
from arkflow_kernel.job_log import JobLog
from arkflow_kernel.job_record import CheckpointEntry, ClaimEntry, Entry, Unreadable, decode
from arkflow_kernel.snapshot import CheckpointRecord, Claim, RestoreChoice, RestoreKind
from arkflow_kernel.testing.log_world import LogWorld, graph_of, record_of
from arkflow_kernel.testing.sim_files import FileFault, SimFiles

GRAPH = graph_of(retention=2)
STEPS = ("claim", "append", "append", "collect", "scratch", "new", "crash")
FAULTS = (*FileFault, "crash", "rival", "rival")


class CrashError(Exception):
    """The process is gone, between two file calls."""


@dataclass
class Coordinator:
    """One process: its log, the generation that it believes in, and the records it was promised."""

    log: JobLog
    claim: Claim | None = None
    last: int = 0


@dataclass
class Rivals:
    """Three coordinators on one store, and everything that was ever seen of the log."""

    data: st.DataObject
    world: LogWorld = field(default_factory=LogWorld)
    alive: dict[int, Coordinator] = field(default_factory=dict)
    busy: set[int] = field(default_factory=set)
    seen: dict[int, bytes] = field(default_factory=dict)
    effective: list[int] = field(default_factory=list)
    promised: set[int] = field(default_factory=set)

    def step(self, number: int, what: str) -> None:
        """One call of one coordinator, unless it is in the middle of one."""
        if number in self.busy:
            return
        who = self.alive.get(number)
        if who is None or what == "new":
            who = self.alive[number] = Coordinator(self.world.log(GRAPH, files=self._files(number)))
        self.busy.add(number)
        try:
            self._perform(who, what)
        except CrashError:
            self.alive.pop(number, None)
        except (StoreError, FencedError):
            who.claim = who.claim if what != "claim" else None
        finally:
            self.busy.discard(number)
            self.look()

    def look(self) -> None:
        """What was written never changes, but for what the retention drops; nothing live goes."""
        files = self.world.store.files
        now = {int(path[4:-5]): data for path, data in files.items() if path.startswith("log/")}
        for slot, data in now.items():
            assert self.seen.setdefault(slot, data) == data, f"slot {slot} was rewritten"
        dropped = set(self.seen) - set(now)
        assert all(isinstance(decode(self.seen[slot]), CheckpointEntry) for slot in dropped)
        for slot in now:
            entry = decode(now[slot])
            if isinstance(entry, CheckpointEntry):
                lost = [name for name in entry.objects if f"objects/{name}" not in files]
                assert not lost, f"slot {slot} lists objects that were collected"

    def history(self) -> list[tuple[int, Entry]]:
        """Every entry that was ever there, by slot."""
        entries = ((slot, decode(self.seen[slot])) for slot in sorted(self.seen))
        return [(slot, entry) for slot, entry in entries if not isinstance(entry, Unreadable)]

    def _perform(self, who: Coordinator, what: str) -> None:
        if what in ("claim", "scratch"):
            kind = RestoreKind.SCRATCH if what == "scratch" else RestoreKind.NEWEST
            who.claim = None
            who.claim = who.log.claim(RestoreChoice(kind), {})
            who.last = who.claim.last_checkpoint
            self.effective.append(who.claim.generation)
            self._check_restored(who.claim)
        elif who.claim is not None and what == "append":
            who.last += 1
            record = record_of(GRAPH, who.claim.generation, who.last)
            self._append(who, record)
        elif what == "collect":
            who.log.collect()
        elif what == "crash":
            raise CrashError

    def _append(self, who: Coordinator, record: CheckpointRecord) -> None:
        self.world.upload(record)
        who.log.append(record)
        self.promised.add(record.generation * 1_000 + record.checkpoint)

    def _check_restored(self, claim: Claim) -> None:
        """It is the newest record below the claim, or nothing after a start from scratch."""
        self.look()
        entries = self.history()
        mine = max(
            slot
            for slot, entry in entries
            if isinstance(entry, ClaimEntry) and entry.generation == claim.generation
        )
        newest: CheckpointId | None = None
        for slot, entry in entries:
            if slot < mine and isinstance(entry, CheckpointEntry):
                newest = entry.record.checkpoint
            elif slot <= mine and isinstance(entry, ClaimEntry) and entry.base is not None:
                newest = None
        assert (claim.restored.checkpoint if claim.restored else None) == newest

    def _files(self, number: int) -> LogFiles:
        def before(call: str) -> FileFault | None:
            fault = self.data.draw(st.none() | st.none() | st.sampled_from(FAULTS), label=call)
            if isinstance(fault, FileFault):
                return None if call.startswith("pause") else fault
            if fault == "crash":
                raise CrashError
            if fault == "rival":
                rival = self.data.draw(st.sampled_from([n for n in (0, 1, 2) if n != number]))
                for _ in range(self.data.draw(st.integers(1, 4))):
                    self.step(rival, self.data.draw(st.sampled_from(STEPS)))
            return None

        return SimFiles(self.world.store, before=before)


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(st.data(), st.lists(st.tuples(st.integers(0, 2), st.sampled_from(STEPS)), max_size=25))
def test_whatever_rivals_and_faults_do_the_log_keeps_its_promises(
    data: st.DataObject, steps: list[tuple[int, str]]
) -> None:
    rivals = Rivals(data)
    for number, what in steps:
        rivals.step(number, what)
    rivals.world.store.land(100)
    rivals.look()
    entries = rivals.history()
    assert [slot for slot, _ in entries] == list(range(1, len(entries) + 1)), "slots have gaps"
    assert len(rivals.effective) == len(set(rivals.effective)), "a generation was claimed twice"
    generation, checkpoint = 0, 0
    written = set()
    for _, entry in entries:
        if isinstance(entry, ClaimEntry):
            generation = max(generation, entry.generation)
            continue
        assert entry.record.generation == generation, "an older generation added a record"
        assert entry.record.checkpoint > checkpoint
        checkpoint = entry.record.checkpoint
        written.add(entry.record.generation * 1_000 + checkpoint)
    assert rivals.promised <= written, "a record that was promised is not there"


@pytest.mark.parametrize("rivals", [2, 3])
def test_of_coordinators_that_claim_at_once_one_is_left(rivals: int) -> None:
    world = LogWorld()
    waiting = [world.log(GRAPH) for _ in range(rivals - 1)]
    claims: list[Claim] = []

    def before(call: str) -> FileFault | None:
        if call.startswith("create") and waiting:
            claims.append(waiting.pop().claim(RestoreChoice(), {}))
        return None

    last = world.log(GRAPH, files=SimFiles(world.store, before=before))
    claims.append(last.claim(RestoreChoice(), {}))
    assert [claim.generation for claim in claims] == list(range(1, rivals + 1))
    world.checkpoint(last, GRAPH, claims[-1])
    assert world.slots() == list(range(1, rivals + 2))
