"""What the simulation found, by hand: seeds mean something else when the kit changes."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.ids import CheckpointId, WallMs
from arkflow_kernel.job_log import JobLog
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.snapshot import (
    NEWEST,
    ChainSnapshot,
    CheckpointRecord,
    Claim,
    ObjectRef,
)
from arkflow_kernel.testing.cut_scenario import draw_cut_scenario
from arkflow_kernel.testing.dice import Dice
from arkflow_kernel.testing.sim_store import OBJECTS, SimFiles, SimStore, Trouble


class _Way:
    """A good way to the store; at the chosen point somebody else acts, once."""

    def __init__(self) -> None:
        self.points: Counter[str] = Counter()
        self.acts: dict[tuple[str, int], Callable[[], None]] = {}

    def trouble(self, verb: str) -> Trouble:
        del verb
        return Trouble.NONE

    def reached(self, point: str) -> None:
        self.points[point] += 1
        act = self.acts.pop((point, self.points[point]), None)
        if act is not None:
            act()


def _graph() -> ExecutionGraph:
    graph = draw_cut_scenario(Dice(1)).graph
    assert graph.checkpoint is not None
    return replace(graph, checkpoint=replace(graph.checkpoint, retention=1))


def _log(graph: ExecutionGraph, store: SimStore, way: _Way, name: str) -> JobLog:
    files = SimFiles(store, way)
    return JobLog(graph, files, nonce=name, coordinator=name, wall_ms=lambda: WallMs(0))


def _write(log: JobLog, graph: ExecutionGraph, store: SimStore, claim: Claim, number: int) -> None:
    """A record that lists one object of its own; what it replaces is collected."""
    name = f"{claim.generation}-{graph.chains[0].chain}-{number}.arrow"
    store.files[OBJECTS + name] = b"state"
    objects = {graph.chains[0].chain: (ObjectRef(name, 5, "checksum"),)}
    chains = tuple(
        ChainSnapshot(plan.chain, plan.tasks, objects=objects.get(plan.chain, ()))
        for plan in graph.chains
    )
    checkpoint = CheckpointId(number)
    log.append(CheckpointRecord(claim.generation, checkpoint, RoundKind.PERIODIC, chains))
    log.collect()


def test_a_claimer_that_sleeps_while_a_running_job_drops_the_record_it_looks_at_starts() -> None:
    """M1, M2: it refused, and told its user to start from scratch."""
    graph, store = _graph(), SimStore()
    running = _log(graph, store, _Way(), "running")
    claim = running.claim(NEWEST, {})
    _write(running, graph, store, claim, 1)
    way = _Way()
    # The claimer has seen record 1 in its listing, and is about to look for its objects.
    way.acts["before list", 2] = lambda: _write(running, graph, store, claim, 2)
    restored = _log(graph, store, way, "claimer").claim(NEWEST, {}).restored
    assert restored is not None
    assert restored.checkpoint == 2
    assert not way.acts
