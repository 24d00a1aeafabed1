"""Whether a record fits a plan, and what each chain of the plan restores of it (M2, M6, S9).

A record is taken apart by operator and put together again by the new plan's chains. An operator of
unchanged parallelism hands over subtask by subtask; a keyed one of another parallelism hands over
key groups: every new subtask gets the runs that overlap its range, with clipped limits (S6). A
source hands over splits: every subtask gets the positions and times of all of them, for what it
will read is decided when its splits have been listed (K5). Nothing looks through all chains of the
record for each one of the plan: there may be thousands (K8).
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from arkflow_kernel.ids import ChainId, EventTimeMs, JobId, OperatorId, SplitId
from arkflow_kernel.job_plan_record import JobPlan, PlannedChain, plan_of
from arkflow_kernel.job_record import CheckpointEntry, ClaimEntry
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.ports import SplitPosition
from arkflow_kernel.snapshot import (
    ChainSnapshot,
    LaneSnapshot,
    ObjectRef,
    RunRef,
    SplitTime,
    StateSnapshot,
)
from arkflow_kernel.timestamps import had_by_all

STATE_FORMAT_VERSION: Final = 1
"""The newest format of a state's runs that this release reads (S9)."""

_Runs = dict[StateSnapshot, list[RunRef]]  # by the state that they are of, without its runs


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
    if (twice := _read_twice(entry, planned)) is not None:
        return twice
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
    checks.stateful(graph)
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
        self._old_hosts = entry.plan.hosts()
        self._new_hosts = new.hosts()
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
            for states in self._states.values()
            for _, state in states
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
        for operator in self._states:
            now = self._has.get(operator)
            if now is None or not now.stateful:
                how = "is not in the job any more" if now is None else "keeps no state any more"
                lost[operator] = f"operator '{operator}' {how}; its state"
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

    def stateful(self, graph: ExecutionGraph) -> None:
        """An operator's state must be the one that it asks for."""
        operators = {each.operator: each for plan in graph.chains for each in plan.operators}
        for operator in operators.values():
            if operator.state is None:
                continue
            states = [state for _, state in self._states.get(operator.operator, ())]
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
        before = {planned.chain: self._before(planned) for planned in self._new.chains}
        finished = self._finished(before, graph)
        for planned, plan in zip(self._new.chains, graph.chains, strict=True):
            if not before[planned.chain]:
                continue
            states = tuple(self._handed_over.get(planned.chain, ()))
            source = _source_of(planned)
            sources, times = ((), ()) if source is None else self._splits[source]
            yield ChainSnapshot(
                chain=planned.chain,
                tasks=planned.tasks,
                sources=sources,
                times=times,
                watermark=self._watermark(planned, before[planned.chain]),
                inputs=tuple(inputs[c.channel] for c in plan.inputs if c.channel in inputs),
                finished=planned.chain in finished,
                states=states,
                lanes=tuple(self._lanes.get(planned.chain, ())),
                objects=self._objects_of(states),
            )

    def _before(self, chain: PlannedChain) -> tuple[ChainSnapshot, ...]:
        """What a new chain is made of: subtask by subtask while their number stays; else what owned
        its key groups, or all subtasks of a source, for any of their splits may become its own.
        """
        found: list[PlannedChain] = []
        for each in chain.operators:
            hosts = self._old_hosts.get(each.operator, ())
            moved = each.role == "source" and len(hosts) != chain.parallelism
            found += hosts if moved else _overlapping(hosts, chain.first_group, chain.last_group)
        return tuple(self._snapshots[name] for name in dict.fromkeys(old.chain for old in found))

    def _watermark(
        self, chain: PlannedChain, before: tuple[ChainSnapshot, ...]
    ) -> EventTimeMs | None:
        """The watermark that a new chain has had; None if it is not known.

        Without state, that is the lowest of all subtasks: splits move between those of a source
        (K5), and what is said behind one must not be ahead of a split that is its own now.
        """
        if any(each.stateful for each in chain.operators):
            return had_by_all(snapshot.watermark for snapshot in before)
        known = (each.operator for each in chain.operators if each.operator in self._old_hosts)
        return had_by_all(self._watermarks[operator] for operator in known)

    @cached_property
    def _watermarks(self) -> dict[OperatorId, EventTimeMs | None]:
        """What all subtasks of each operator have had."""
        return {
            operator: had_by_all(self._snapshots[host.chain].watermark for host in hosts)
            for operator, hosts in self._old_hosts.items()
        }

    def _finished(
        self, before: Mapping[ChainId, tuple[ChainSnapshot, ...]], graph: ExecutionGraph
    ) -> set[ChainId]:
        """New chains that are finished: all that they are made of was, and so is all before them.

        Of several subtasks of a source some may be through while others are not, and with them
        chains behind them: these go on, for they may be given rows that are left (B8).
        """
        live = {name for name, old in before.items() if not all(c.finished for c in old)}
        live |= {p.chain for p in graph.chains if p.source is not None and not before[p.chain]}
        feeding = {plan.chain: {c.source for c in plan.inputs} for plan in graph.chains}
        while fed := {name for name in before if name not in live and feeding[name] & live}:
            live |= fed
        for name in (name for name in before if name in live):
            if any(old.finished and old.states for old in before[name]):
                self.refusals.append(
                    f"chain '{name}' would join operators that were finished with others that were "
                    "not: keep them in chains of their own"
                )
        return before.keys() - live

    @cached_property
    def _states(self) -> Mapping[OperatorId, list[tuple[int, StateSnapshot]]]:
        """The record's states of each operator, with the subtask that kept them."""
        found: defaultdict[OperatorId, list[tuple[int, StateSnapshot]]] = defaultdict(list)
        for chain in self._old.chains:
            for state in self._snapshots[chain.chain].states:
                found[state.operator].append((chain.subtask, state))
        return found

    @cached_property
    def _splits(self) -> dict[OperatorId, tuple[tuple[SplitPosition, ...], tuple[SplitTime, ...]]]:
        """The splits of each source of the new plan, whoever read them, and their event times."""
        found = {}
        for source in (each.operator for each in self._has.values() if each.role == "source"):
            read = [self._snapshots[host.chain] for host in self._old_hosts.get(source, ())]
            found[source] = (
                tuple(position for snapshot in read for position in snapshot.sources),
                tuple(time for snapshot in read for time in snapshot.times),
            )
        return found

    @cached_property
    def _handed_over(self) -> Mapping[ChainId, list[StateSnapshot]]:
        """What each new chain gets of the states."""
        found: defaultdict[ChainId, list[StateSnapshot]] = defaultdict(list)
        for operator in (each.operator for each in self._has.values() if each.stateful):
            for chain, runs in self._runs_of(operator).items():
                found[chain] += (replace(bare, runs=tuple(runs[bare])) for bare in runs)
        return found

    def _runs_of(self, operator: OperatorId) -> dict[ChainId, _Runs]:
        hosts, states = self._new_hosts[operator], self._states.get(operator, [])
        if len(self._old_hosts.get(operator, ())) == hosts[0].parallelism:
            kept: defaultdict[int, _Runs] = defaultdict(dict)
            for subtask, state in states:
                kept[subtask].setdefault(replace(state, runs=()), []).extend(state.runs)
            return {host.chain: kept[host.subtask] for host in hosts}
        bare = [replace(state, runs=()) for _, state in states]
        kinds = dict.fromkeys(bare)
        found: dict[ChainId, _Runs] = {host.chain: {each: [] for each in kinds} for host in hosts}
        for each, (_, state) in zip(bare, states, strict=True):
            for run in state.runs:
                for host in _overlapping(hosts, run.first_group, run.last_group):
                    found[host.chain][each].append(_clipped(run, host))
        return found

    @cached_property
    def _lanes(self) -> Mapping[ChainId, list[LaneSnapshot]]:
        """Subtask i of n takes the lanes l with l mod n = i (X5)."""
        found: defaultdict[ChainId, list[LaneSnapshot]] = defaultdict(list)
        hosts = {sink: self._new_hosts[sink] for sink in self._new.exactly_once}
        lanes = [lane for snapshot in self._record.chains for lane in snapshot.lanes]
        for lane in (lane for lane in lanes if lane.sink in hosts):
            subtask = lane.lane % len(hosts[lane.sink])
            found[hosts[lane.sink][subtask].chain].append(lane)
        return found

    @cached_property
    def _objects(self) -> dict[str, tuple[int, ObjectRef]]:
        """The record's objects by name, with their places among them."""
        refs = {ref.name: ref for chain in self._record.chains for ref in chain.objects}
        return {name: (place, ref) for place, (name, ref) in enumerate(refs.items())}

    def _objects_of(self, states: tuple[StateSnapshot, ...]) -> tuple[ObjectRef, ...]:
        needed = {run.object for state in states for run in state.runs}
        found = sorted(self._objects[name] for name in needed if name in self._objects)
        return tuple(ref for _, ref in found)


def _read_twice(entry: CheckpointEntry, plan: JobPlan) -> str | None:
    """K5: a split in two parts of a record would be read twice, or go on at the wrong place."""
    readers: dict[tuple[OperatorId, SplitId], ChainId] = {}
    sources = {chain.chain: source for chain in plan.chains if (source := _source_of(chain))}
    for chain in entry.record.chains:
        for position in chain.sources if chain.chain in sources else ():
            split = sources[chain.chain], position.split
            other = readers.setdefault(split, chain.chain)
            if other != chain.chain:
                return f"split '{position.split}' is in the chains {_names([other, chain.chain])}"
    return None


def _source_of(chain: PlannedChain) -> OperatorId | None:
    """The source of a chain, if it has one."""
    return next((each.operator for each in chain.operators if each.role == "source"), None)


def _overlapping(hosts: tuple[PlannedChain, ...], first: int, last: int) -> Iterator[PlannedChain]:
    """Of all chains of an operator, by subtask, those that own some of these key groups."""
    start = bisect_left(hosts, first, key=lambda host: host.last_group)
    for place in range(start, len(hosts)):
        if hosts[place].first_group > last:
            return
        yield hosts[place]


def _clipped(run: RunRef, host: PlannedChain) -> RunRef:
    first, last = max(run.first_group, host.first_group), min(run.last_group, host.last_group)
    return replace(run, first_group=first, last_group=last)


def _by_key(namespace: str, key_fields: tuple[str, ...]) -> str:
    return f"in namespace '{namespace}' by ({', '.join(key_fields)})"


def _shape(shape: str) -> str:
    return shape or "a count of the rows of each key"


def _names(names: list[ChainId]) -> str:
    return ", ".join(f"'{name}'" for name in names)


__all__ = ["STATE_FORMAT_VERSION", "Fit", "fit", "inconsistency"]
