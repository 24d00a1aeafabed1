"""Whether a record fits a plan, and what each chain of the plan restores of it (M2, M6, S9).

A record is taken apart by operator and put together again by the new plan's chains. An operator of
unchanged parallelism hands over subtask by subtask; a keyed one of another parallelism hands over
key groups: every new subtask gets the runs that overlap its range, with clipped limits (S6).
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from arkflow_kernel.ids import ChainId, EventTimeMs, JobId, OperatorId
from arkflow_kernel.job_plan_record import JobPlan, PlannedChain, plan_of
from arkflow_kernel.job_record import CheckpointEntry, ClaimEntry
from arkflow_kernel.plan import ChainPlan, ExecutionGraph
from arkflow_kernel.snapshot import ChainSnapshot, LaneSnapshot, ObjectRef, RunRef, StateSnapshot

STATE_FORMAT_VERSION: Final = 1
"""The newest format of a state's runs that this release reads (S9)."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What a record gives to a plan. `refusals` say why it must not: then nothing is restored."""

    refusals: tuple[str, ...] = ()
    chains: tuple[ChainSnapshot, ...] = ()
    notes: tuple[str, ...] = ()


def inconsistency(entry: CheckpointEntry, claim: ClaimEntry | None) -> str | None:
    """Why a record cannot be a whole cut of its own plan, or None (M2).

    `claim` is that of the record's generation; None for a savepoint, which stands alone.
    """
    held = [(chain.chain, chain.tasks) for chain in entry.record.chains]
    planned = entry.plan if claim is None else claim.plan
    doubled = [chain for chain, times in Counter(held).items() if times > 1]
    if doubled:
        return f"it lists chain '{doubled[0][0]}' more than once"
    if missing := sorted(chain for chain, _ in planned.tasks - set(held)):
        return f"it lacks the planned tasks of the chains {_names(missing)}"
    if foreign := sorted(chain for chain, _ in set(held) - planned.tasks):
        return f"it lists tasks of the chains {_names(foreign)}, which its own claim does not plan"
    listed = entry.objects
    for chain in entry.record.chains:
        for state in chain.states:
            for run in state.runs:
                if listed.get(run.object, -1) < run.offset + run.length:
                    return f"run {run.run} lies outside of every object that it lists"
    return None


def fit(
    entry: CheckpointEntry,
    graph: ExecutionGraph,
    *,
    job: JobId | None = None,
    allow_dropped_state: bool = False,
) -> Fit:
    """Judge a record by a plan, and give each of the plan's chains its part (M6).

    `job`: the job that the record has to be of; None: any, then it leaves no tokens (X4).
    """
    checks = _Checks(entry, plan_of(graph), allow_dropped_state)
    if job is not None and entry.job != job:
        checks.refusals.append(
            f"it is of job '{entry.job}', this is job '{job}': give each job a folder of its own, "
            "or start from a savepoint of the other job"
        )
    checks.formats()
    checks.dropped()
    checks.sources()
    for chain in graph.chains:
        checks.stateful(chain)
    snapshots = [] if checks.refusals else list(checks.mapped(graph))
    if checks.refusals:
        return Fit(tuple(checks.refusals))
    if job is None:
        snapshots = [replace(chain, lanes=()) for chain in snapshots]
    checks.news()
    return Fit((), tuple(snapshots), tuple(checks.notes))


class _Checks:
    """Compares the plan of a record, `old`, with the new one."""

    def __init__(self, entry: CheckpointEntry, new: JobPlan, allow_dropped_state: bool) -> None:
        self._record = entry.record
        self._old = entry.plan
        self._new = new
        self._allow_dropped = allow_dropped_state
        self._snapshots = {chain.chain: chain for chain in entry.record.chains}
        self._had = {each.operator: each for each in entry.plan.operators()}
        self._has = {each.operator: each for each in new.operators()}
        self.refusals: list[str] = []
        self.notes: list[str] = []

    def formats(self) -> None:
        """`max_parallelism` and the versions of state."""
        if self._old.max_parallelism != self._new.max_parallelism:
            self.refusals.append(
                f"its max_parallelism is {self._old.max_parallelism}, the job's is now "
                f"{self._new.max_parallelism}: set it back, it cannot change while state is kept"
            )
        newer = {
            (state.operator, state.format_version)
            for _, state in self._states()
            if state.format_version > STATE_FORMAT_VERSION
        }
        self.refusals += [
            f"the state of operator '{operator}' has format version {version}, this release reads "
            f"up to {STATE_FORMAT_VERSION}: use the release that wrote it, or a newer one"
            for operator, version in sorted(newer)
        ]

    def dropped(self) -> None:
        """State and unpublished rows that the new plan has no operator for."""
        lost: dict[OperatorId, str] = {}
        for _, state in self._states():
            now = self._has.get(state.operator)
            if now is None or not now.stateful:
                how = "is not in the job any more" if now is None else "keeps no state any more"
                lost[state.operator] = f"operator '{state.operator}' {how}; its state"
        for chain in self._record.chains:
            for lane in chain.lanes:
                now = self._has.get(lane.sink)
                if lane.tokens and (now is None or not now.exactly_once):
                    lost[lane.sink] = f"sink '{lane.sink}' is no exactly-once sink of the job any "
                    lost[lane.sink] += "more; its rows that are not published yet"
        for what in lost.values():
            if self._allow_dropped:
                self.notes.append(f"{what}: dropped, as --allow-dropped-state says")
            else:
                self.refusals.append(
                    f"{what} would be lost: put it back under the same id, or start with "
                    "--allow-dropped-state"
                )

    def sources(self) -> None:
        """Splits are handed over subtask by subtask, so a source keeps its parallelism."""
        for operator in self._has.values():
            if operator.role != "source" or operator.operator not in self._had:
                continue
            before = len(self._old.hosts(operator.operator))
            now = len(self._new.hosts(operator.operator))
            if before != now and self._splits(operator.operator):
                self.refusals.append(
                    f"source '{operator.operator}' had {before} subtasks, the job plans {now}: its "
                    "splits cannot be handed over; set its parallelism back"
                )

    def stateful(self, plan: ChainPlan) -> None:
        """An operator's state must be the one that it asks for."""
        for operator in plan.operators:
            if operator.state is None:
                continue
            states = [state for _, state in self._states(operator.operator)]
            keyed = any(state.key_fields for state in states)
            for state in states:
                before = state.namespace, state.key_fields
                now = operator.state.namespace, operator.state.key_fields
                if keyed and not state.key_fields:  # what it counts beside its keys (N6)
                    before = state.namespace, operator.state.key_fields
                if before != now:
                    self._differs(operator.operator, "state", _by_key(*before), _by_key(*now))
                elif state.shape != operator.state.shape:
                    kept, wanted = _shape(state.shape), _shape(operator.state.shape)
                    self._differs(operator.operator, "state as", kept, wanted)

    def _differs(self, operator: OperatorId, what: str, before: str, now: str) -> None:
        text = (
            f"operator '{operator}' kept its {what} {before}, now it is {now}: set it back, or "
            "give the operator another id"
        )
        if text not in self.refusals:
            self.refusals.append(text)

    def news(self) -> None:
        """What starts from nothing although something is restored."""
        for operator in self._has.values():
            known = self._had.get(operator.operator)
            if operator.stateful and (known is None or not known.stateful):
                self.notes.append(f"operator '{operator.operator}' is new and starts empty")
            elif known is None:
                begins = " and starts at its beginning" if operator.role == "source" else ""
                self.notes.append(f"{operator.role} '{operator.operator}' is new{begins}")
        for known in self._had.values():
            if known.role == "source" and known.operator not in self._has:
                self.notes.append(
                    f"source '{known.operator}' is not in the job any more; its positions were "
                    "dropped"
                )

    def mapped(self, graph: ExecutionGraph) -> Iterator[ChainSnapshot]:
        """The parts of the record by the new plan's chains; chains without a part are left out."""
        inputs = {each.channel: each for chain in self._record.chains for each in chain.inputs}
        for planned, plan in zip(self._new.chains, graph.chains, strict=True):
            before = [c for c in self._old.chains if _share(c, planned)]
            if not before:
                continue
            snapshots = [self._snapshots[chain.chain] for chain in before]
            finished = {snapshot.finished for snapshot in snapshots}
            if len(finished) > 1:
                self.refusals.append(
                    f"chain '{planned.chain}' would join operators that were finished with others "
                    "that were not: keep them in chains of their own"
                )
            states = tuple(self._states_for(planned))
            read = self._read_by(planned)
            yield ChainSnapshot(
                chain=planned.chain,
                tasks=planned.tasks,
                sources=() if read is None else read.sources,
                times=() if read is None else read.times,
                watermark=_lowest_watermark(snapshots),
                inputs=tuple(inputs[c.channel] for c in plan.inputs if c.channel in inputs),
                finished=finished == {True},
                states=states,
                lanes=tuple(self._lanes_for(planned)),
                objects=self._objects_of(states),
            )

    def _states(
        self, operator: OperatorId | None = None
    ) -> Iterator[tuple[PlannedChain, StateSnapshot]]:
        for chain in self._old.chains:
            for state in self._snapshots[chain.chain].states:
                if operator in (None, state.operator):
                    yield chain, state

    def _splits(self, source: OperatorId) -> bool:
        hosts = self._old.hosts(source)
        return any(self._snapshots[chain.chain].sources for chain in hosts)

    def _read_by(self, chain: PlannedChain) -> ChainSnapshot | None:
        """The chain that had the source of this one, and so its splits and their event times."""
        for operator in chain.operators:
            for host in self._old.hosts(operator.operator):
                if operator.role == "source" and host.subtask == chain.subtask:
                    return self._snapshots[host.chain]
        return None

    def _states_for(self, chain: PlannedChain) -> Iterator[StateSnapshot]:
        for operator in chain.operators:
            if not operator.stateful:
                continue
            same = len(self._old.hosts(operator.operator)) == chain.parallelism
            joined: dict[StateSnapshot, list[RunRef]] = {}
            for host, state in self._states(operator.operator):
                if not same:
                    runs = tuple(_clipped(state.runs, chain.first_group, chain.last_group))
                elif host.subtask == chain.subtask:
                    runs = state.runs
                else:
                    continue
                joined.setdefault(replace(state, runs=()), []).extend(runs)
            for bare, found in joined.items():
                yield replace(bare, runs=tuple(found))

    def _lanes_for(self, chain: PlannedChain) -> Iterator[LaneSnapshot]:
        """Subtask i of n takes the lanes l with l mod n = i (X5)."""
        sinks = {each.operator for each in chain.operators if each.exactly_once}
        for snapshot in self._record.chains:
            for lane in snapshot.lanes:
                if lane.sink in sinks and lane.lane % chain.parallelism == chain.subtask:
                    yield lane

    def _objects_of(self, states: tuple[StateSnapshot, ...]) -> tuple[ObjectRef, ...]:
        needed = {run.object for state in states for run in state.runs}
        found = {ref.name: ref for chain in self._record.chains for ref in chain.objects}
        return tuple(ref for name, ref in found.items() if name in needed)


def _lowest_watermark(chains: Iterable[ChainSnapshot]) -> EventTimeMs | None:
    """What all operators of a chain that was made of these have had; None if one had nothing."""
    found = [chain.watermark for chain in chains]
    known = [watermark for watermark in found if watermark is not None]
    return min(known) if known and len(known) == len(found) else None


def _share(old: PlannedChain, new: PlannedChain) -> bool:
    """Whether an old chain's part belongs to a new one: they share an operator, and rows."""
    names = {each.operator for each in old.operators}
    shared = any(each.operator in names for each in new.operators)
    if old.parallelism == new.parallelism:
        return shared and old.subtask == new.subtask
    return shared and old.first_group <= new.last_group and new.first_group <= old.last_group


def _clipped(runs: tuple[RunRef, ...], first: int, last: int) -> Iterator[RunRef]:
    for run in runs:
        low, high = max(run.first_group, first), min(run.last_group, last)
        if low <= high:
            yield replace(run, first_group=low, last_group=high)


def _by_key(namespace: str, key_fields: tuple[str, ...]) -> str:
    return f"in namespace '{namespace}' by ({', '.join(key_fields)})"


def _shape(shape: str) -> str:
    return shape or "a count of the rows of each key"


def _names(names: list[ChainId]) -> str:
    return ", ".join(f"'{name}'" for name in names)


__all__ = ["STATE_FORMAT_VERSION", "Fit", "fit", "inconsistency"]
