"""The ground truth of a simulated job in checkpoint mode, and what must hold of it at every step.

It sees every byte that reaches the store and every row that a sink shows, over all runs of the job,
zombies included, and compares them with the oracle. It asks no machine.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NoReturn, Protocol

from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.errors import RestoreError
from arkflow_kernel.ids import Generation, OperatorId
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.ports import SplitPosition
from arkflow_kernel.protocol import AppendRecord, ClaimGeneration
from arkflow_kernel.snapshot import ChainSnapshot, CheckpointRecord, Claim, Epoch, SinkToken
from arkflow_kernel.testing.cut_history import Known, Past, check_mapped, check_same
from arkflow_kernel.testing.cut_oracle import NOTHING, Cut, Oracle, cut_of
from arkflow_kernel.testing.cut_states import StateReader
from arkflow_kernel.testing.lineage import Lineage, ViolationError
from arkflow_kernel.testing.scenario import Scenario
from arkflow_kernel.testing.sim_epochs import Counted, Lane
from arkflow_kernel.testing.sim_rows import KEYS, SPLIT_ROWS
from arkflow_kernel.testing.sim_store import OBJECTS, SimStore, checksum_of

_SLOT: Final = re.compile(r"log/\d+\.json")


class Coordinating(Protocol):
    """One coordinator process; `generation` is what its last claim gave it."""

    generation: Generation


@dataclass(frozen=True, eq=False)
class LogCall:
    """What a coordinator's log thread is at work on; `graph` is the plan that it claims, or has."""

    process: Coordinating
    command: object
    graph: ExecutionGraph


class Truth:
    """What became of one job, over all of its runs."""

    def __init__(self, scenario: Scenario, store: SimStore, probes: "Counter[str]") -> None:
        self.scenario, self.store, self._probes = scenario, store, probes
        self.oracle = self._made_oracle()
        self.records: list[Known] = []
        self._failed: set[tuple[int, int]] = set()
        self._listed: set[tuple[Lane, Epoch]] = set()
        self.lanes: dict[Lane, dict[Epoch, list[Counted]]] = {}
        self.visible: dict[OperatorId, Counter[int]] = {}
        self.last_claim: Coordinating | None = None
        self.since_claim = 0
        self._bases: dict[Coordinating, Known | None] = {}
        self._pasts: dict[Coordinating, Past] = {}
        self._oracles = [(scenario.graph, self.oracle)]
        self._counted: dict[tuple[str, int, int], int] = {}
        self._states = StateReader(store)
        self._proved: set[str] = set()
        graph = scenario.graph
        sinks = {sink.operator: sink for plan in graph.chains for sink in plan.sinks}
        self._once = [name for name, sink in sinks.items() if sink.exactly_once]
        self._least = [name for name, sink in sinks.items() if not sink.exactly_once]
        assert graph.checkpoint is not None
        self._retention = graph.checkpoint.retention
        store.created, store.deleted = self._created, self._deleted

    def _made_oracle(self) -> Oracle:
        return Oracle(self.scenario)

    @property
    def newest(self) -> Known | None:
        """The newest record of the log."""
        return self.records[-1] if self.records else None

    @property
    def cut(self) -> Cut:
        """The cut of the newest record."""
        return self.records[-1].cut if self.records else NOTHING

    # --- the store -----------------------------------------------------------------------------

    def _created(self, path: str, data: bytes, by: object) -> None:
        del data
        if _SLOT.fullmatch(path) is None or not isinstance(by, LogCall):
            return
        if isinstance(by.command, ClaimGeneration):
            self._claims(path, by.process)
        elif isinstance(by.command, AppendRecord):
            if self.last_claim is not by.process:
                _fail("a coordinator wrote a record after the claim of another (M1)")
            record, past = by.command.record, self._pasts[by.process]
            self._recorded(Known(record, cut_of(record.chains), path, past))

    def _claims(self, path: str, process: Coordinating) -> None:
        """A claim counts if it is above everything: in a gap of the retention it is void (M1)."""
        if all(other < path for other in self.store.files if _SLOT.fullmatch(other)):
            self.last_claim, self.since_claim = process, 0
            self._bases[process] = self.newest
        else:
            self._probes["claim in a gap"] += 1

    def check_claim(self, process: Coordinating, claim: Claim, graph: ExecutionGraph) -> Cut:
        """A claim restores the newest record below it (M2); the cut where it begins."""
        base, restored = self._bases[process], claim.restored
        if base is None or restored is None:
            if base is not None or restored is not None:
                _fail(f"a claim restores {restored}, the newest record is {base} (M2)")
            self._pasts[process] = Past(graph, self._oracle_of(graph))
            return NOTHING
        record = base.record
        if restored.checkpoint != record.checkpoint:
            _fail(f"a claim restores {restored.source}, not checkpoint {record.checkpoint} (M2)")
        if claim.last_checkpoint < record.checkpoint:
            _fail(f"the last checkpoint is {record.checkpoint}, not {claim.last_checkpoint}")
        self._probes["restored"] += 1
        self._probes["restored tokens"] += restored.tokens > 0
        self._pasts[process] = self._continued(base, restored.chains, graph)
        return base.cut

    def _continued(
        self, base: Known, restored: tuple[ChainSnapshot, ...], graph: ExecutionGraph
    ) -> Past:
        """A plan goes on behind a record: the plan that made it, or another one."""
        begins = cut_of(restored)
        if begins.places != base.cut.places:
            _fail(f"a claim restores {begins}, the record has {base.cut} (M2)")
        if base.past.graph == graph:
            check_same(base, restored)
            if begins.finished == base.cut.finished:
                return base.past
        else:
            self._probes["restored to another plan"] += 1
            check_mapped(base, restored, graph, self._states)
        return Past(graph, self._oracle_of(graph), base, begins)

    def _oracle_of(self, graph: ExecutionGraph) -> Oracle:
        known = next((oracle for plan, oracle in self._oracles if plan == graph), None)
        if known is None:
            known = Oracle(self.scenario.under(graph))
            self._oracles.append((graph, known))
        return known

    def check_refusal(self, error: RestoreError, graph: ExecutionGraph) -> None:
        """No start is refused while every object of the newest record is there, but for one of a
        plan that joins what was finished with what was not.
        """
        newest = self.newest
        if newest is not None and newest.past.graph != graph and "were finished" in str(error):
            unfinished = newest.past.chains() - newest.cut.finished
            if newest.cut.finished and unfinished:
                self._probes["refused: joins finished chains"] += 1
                return
        _fail(f"a start was refused: {error}")

    def _deleted(self, path: str) -> None:
        """What is deleted may be listed by no record that is kept (M5)."""
        kept = [known for known in self.records if known.path in self.store.files]
        kept = kept[-self._retention :]
        self._probes["deleted"] += 1
        if any(known.path == path for known in kept):
            _fail(f"{path} is deleted, and one of the newest {self._retention} records (M5)")
        if path.startswith(OBJECTS):
            name = path[len(OBJECTS) :]
            for known in kept:
                if any(ref.name == name for ref in known.refs()):
                    number = known.record.checkpoint
                    _fail(f"{path} is deleted, and record {number} lists it (M5)")
        elif _SLOT.fullmatch(path) and not any(k.path == path for k in self.records):
            _fail(f"{path} is deleted, and is a claim or burnt (M1)")

    # --- records -------------------------------------------------------------------------------

    def _recorded(self, known: Known) -> None:
        """A record is about to be in the log: it must be a function of its cut alone (B0)."""
        record, cut = known.record, known.cut
        assert self.last_claim is not None
        if record.generation != self.last_claim.generation:
            _fail(f"a record of generation {record.generation}, claimed {self.last_claim}")
        if self.newest is not None and record.checkpoint <= self.newest.record.checkpoint:
            _fail(f"checkpoint {record.checkpoint} after {self.newest.record.checkpoint}")
        if (record.generation, record.checkpoint) in self._failed:
            _fail(f"checkpoint {record.checkpoint} was declared failed, and appears (M1)")
        names, chains = [snapshot.chain for snapshot in record.chains], known.past.chains()
        if len(names) != len(set(names)) or set(names) != chains:
            _fail(f"checkpoint {record.checkpoint} has the chains {names} (B4)")
        before = self.cut
        finished = known.past.begins.finished
        if self.newest is not None and self.newest.past is known.past:
            finished = before.finished
        back = [s for s, place in before.places.items() if cut.places.get(s, 0) < place]
        if back or not finished <= cut.finished:
            _fail(f"checkpoint {record.checkpoint} goes back in splits {back}")
        if record.kind is RoundKind.FINAL and cut.finished != chains:
            _fail(f"the final checkpoint has unfinished chains: {chains - cut.finished}")
        self._check_objects(known)
        self._check_sinks(known)
        for operator in self.oracle.stateful:
            found, expected = self._states.counts(record, operator), known.counts(operator)
            if found != expected:
                _fail(f"state of {operator} at {cut} is {found}, not {expected} (B0)")
        self.records.append(known)
        self.since_claim += 1
        for snapshot in record.chains:
            for lane in snapshot.lanes:
                self._listed |= {((t.sink, t.lane), t.epoch) for t in lane.tokens}
        self._probes[f"record {record.kind.value}"] += 1

    def declared_failed(self, record: CheckpointRecord) -> None:
        """A round is declared failed: its record is not there and never will be (M1)."""
        number = (record.generation, record.checkpoint)
        if any((k.record.generation, k.record.checkpoint) == number for k in self.records):
            _fail(f"checkpoint {record.checkpoint} is declared failed, its record is there (M1)")
        self._failed.add(number)

    def _check_objects(self, known: Known) -> None:
        """Every object of a record is there, and is what was written (M1)."""
        for ref in known.refs():
            data = self.store.files.get(OBJECTS + ref.name)
            if data is None or len(data) != ref.size:
                _fail(f"checkpoint {known.record.checkpoint} lists {ref.name}, which is not there")
            if ref.name not in self._proved:
                if checksum_of(data) != ref.checksum:
                    _fail(f"checkpoint {known.record.checkpoint} lists {ref.name}: torn (M1)")
                self._proved.add(ref.name)

    def _check_sinks(self, known: Known) -> None:
        """What is published and what the record lists are together the rows of its cut (X1, F4)."""
        rows: dict[OperatorId, list[int]] = {name: self.shown(name) for name in self._once}
        for snapshot in known.record.chains:
            for lane in snapshot.lanes:
                epochs = [token.epoch for token in lane.tokens]
                if epochs != sorted(set(epochs)):
                    _fail(f"tokens of {lane.sink} {lane.lane} are out of order: {epochs}")
                published = self.lanes.get((lane.sink, lane.lane), {})
                for token in lane.tokens:
                    if token.epoch not in published:
                        rows[lane.sink] += [row for row, _ in self._staged(token)]
        for name, found in rows.items():
            self._compare(f"checkpoint {known.record.checkpoint}: {name}", name, found, known)
        for name in self._least:
            missing = Counter(known.written(name))
            missing -= self.visible.get(name, Counter())
            if missing:
                _fail(f"{name} has not confirmed {sorted(missing)[:5]} before the cut (F4)")

    def _staged(self, token: SinkToken) -> list[Counted]:
        rows: list[Counted] = []
        for staged in token.objects:
            rows += json.loads(self.store.files[OBJECTS + staged.object.name])
        return rows

    def shown(self, sink: OperatorId) -> list[int]:
        """The rows that an exactly-once sink has published, in no order."""
        return [
            row
            for (name, _), epochs in self.lanes.items()
            if name == sink
            for rows in epochs.values()
            for row, _ in rows
        ]

    def _compare(self, what: str, sink: OperatorId, found: list[int], known: Known | None) -> None:
        expected = [] if known is None else known.written(sink)
        if sorted(found) != expected:
            lost, more = Counter(expected), Counter(found)
            text = f"lost {sorted(lost - more)[:8]}, too many {sorted(more - lost)[:8]}"
            _fail(f"{what}: {text} at {NOTHING if known is None else known.cut}")

    # --- rows ----------------------------------------------------------------------------------

    def show(self, token: SinkToken, rows: list[Counted]) -> None:
        """A sink publishes an epoch: once, after its record, in the order of its lane (X1)."""
        lane = token.sink, token.lane
        epochs = self.lanes.setdefault(lane, {})
        known = epochs.get(token.epoch)
        if known is not None:
            self._probes["published again"] += 1
            if known != rows:
                _fail(f"epoch {token.epoch} of {lane} is published again with other rows")
            return
        if (lane, token.epoch) not in self._listed:
            _fail(f"epoch {token.epoch} of {lane} is published before any record lists it (X1)")
        if epochs and token.epoch < max(epochs):
            _fail(f"epoch {token.epoch} of {lane} is published after {max(epochs)} (X1)")
        epochs[token.epoch] = rows
        self._judge_counts(rows)

    def _judge_counts(self, rows: list[Counted]) -> None:
        """No two rows of a key have the same running count."""
        for row, counts in rows:
            key = row % SPLIT_ROWS % KEYS
            for operator, count in counts:
                if self._counted.setdefault((operator, key, count), row) != row:
                    _fail(f"two rows of key {key} were counted as {count} by {operator}")

    def wrote(self, sink: OperatorId, rows: list[int]) -> None:
        """An at-least-once sink has confirmed rows."""
        self.visible.setdefault(sink, Counter()).update(rows)

    # --- starts and ends -----------------------------------------------------------------------

    def check_start(self, process: Coordinating) -> None:
        """Before any source of an attempt reads, all that its record lists is published (X1)."""
        for name in self._once:
            self._compare(f"at the start: {name}", name, self.shown(name), self._bases[process])

    def check_savepoint(self, name: str) -> None:
        """A savepoint that was reported has its record, and every object that it needs (X4)."""
        prefix = f"savepoints/{name}/"
        held = [path for path in self.store.files if path.startswith(prefix)]
        if not any(path.endswith(".json") for path in held):
            _fail(f"savepoint '{name}' was reported and holds {held}")
        record = next(k.record for k in self.records if k.record.savepoint == name)
        for snapshot in record.chains:
            for ref in snapshot.objects:
                data = [self.store.files[path] for path in held if path.endswith(ref.name)]
                if not data or checksum_of(data[0]) != ref.checksum:
                    _fail(f"savepoint '{name}' lacks object {ref.name}")
        self._probes["savepoint saved"] += 1

    def check_over(self) -> None:
        """Nothing will follow: everything before the newest cut is published, nothing else is."""
        for name in self._once:
            self._compare(f"in the end: {name}", name, self.shown(name), self.newest)

    def check_finished(self, *, drained: bool) -> None:
        """The job is finished: every row went through, unless a user drained it."""
        self.check_over()
        newest = self.newest
        if newest is None or newest.record.kind is not RoundKind.FINAL:
            _fail("the job finished without a final record (T3)")
        if not drained and self.cut.places != self.oracle.ends:
            _fail(f"the job finished at {self.cut.places}, its splits end at {self.oracle.ends}")


class CutLineage(Lineage):
    """Positions may stand only where a completed record has its cut (F4). Rows are not followed."""

    def __init__(self, truth: Truth) -> None:
        super().__init__({})
        self._truth = truth

    def submitted(self, rows: Iterable[int], split: int, end: int) -> None:
        """Nothing follows from it."""

    def started(self, rows: Iterable[int]) -> None:
        """Nothing follows from it."""

    def copied(self, rows: Iterable[int]) -> None:
        """Nothing follows from it."""

    def done(self, rows: Iterable[int]) -> None:
        """Nothing follows from it."""

    def check_positions(self, positions: Iterable[SplitPosition], what: str) -> None:
        """No position stands past the newest completed cut."""
        if not self._truth.cut.contains(positions):
            _fail(f"{what} {tuple(positions)} is past the cut {self._truth.cut} (F4)")

    def check_stopped_at(self, positions: Iterable[SplitPosition]) -> None:
        """The record of the last round says it."""


def _fail(message: str) -> NoReturn:
    raise ViolationError(message)


__all__ = ["CutLineage", "Known", "LogCall", "Truth"]
