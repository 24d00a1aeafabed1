"""A record taken apart and given to the chains of another plan (M2, M6, S6, X5)."""

from dataclasses import replace

from arkflow_kernel.ids import EventTimeMs, JobId, SplitId, SubtaskIndex, TaskId, WallMs
from arkflow_kernel.job_plan_record import plan_of
from arkflow_kernel.job_record import CheckpointEntry
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.ports import SplitPosition
from arkflow_kernel.restore_checks import Fit, fit, inconsistency
from arkflow_kernel.snapshot import CheckpointRecord, SplitTime
from arkflow_kernel.testing.log_world import graph_of, record_of

JOB = JobId("orders")


def entry_of(graph: ExecutionGraph, record: CheckpointRecord | None = None) -> CheckpointEntry:
    record = record or record_of(graph, 1, 1)
    return CheckpointEntry(JOB, 1, "nonce", WallMs(1), plan_of(graph), record)


def runs(found: Fit) -> dict[str, list[tuple[str, int, int]]]:
    return {
        chain.chain: [
            (run.run, run.first_group, run.last_group) for s in chain.states for run in s.runs
        ]
        for chain in found.chains
    }


def test_the_same_plan_gets_the_same_snapshots() -> None:
    graph = graph_of(sinks=("files",))
    entry = entry_of(graph)
    assert fit(entry, graph, job=JOB) == Fit((), entry.record.chains, ())
    assert inconsistency(entry, None) is None


def test_event_time_goes_with_the_sources_and_is_the_lowest_of_what_is_joined() -> None:
    """B0, W3: else rows that were late before a restart were not after it."""
    two = graph_of(counts=2)
    record = record_of(two, 1, 1)
    read, *counts = record.chains
    times = (SplitTime(SplitId("a"), EventTimeMs(70)),)
    read = replace(read, times=times, watermark=EventTimeMs(60))
    counts = [
        replace(chain, watermark=EventTimeMs(at))
        for chain, at in zip(counts, (50, 40), strict=True)
    ]
    entry = entry_of(two, replace(record, chains=(read, *counts)))
    assert fit(entry, two, job=JOB).chains == entry.record.chains
    one = fit(entry, graph_of(counts=1), job=JOB).chains
    assert [chain.watermark for chain in one] == [60, 40]
    assert one[0].times == times
    unknown = replace(record, chains=(read, counts[0], replace(counts[1], watermark=None)))
    assert fit(entry_of(two, unknown), graph_of(counts=1), job=JOB).chains[1].watermark is None


def test_a_state_without_keys_beside_a_keyed_one_fits_and_alone_does_not() -> None:
    """M6, N6: windows that let the oldest go count the rows of a pane, whatever their keys."""
    graph = graph_of(counts=1)
    record = record_of(graph, 1, 1)
    read, count = record.chains
    rows = replace(count.states[0], name="rows", key_fields=(), runs=())
    beside = replace(record, chains=(read, replace(count, states=(*count.states, rows))))
    assert fit(entry_of(graph, beside), graph, job=JOB).refusals == ()
    alone = replace(record, chains=(read, replace(count, states=(rows,))))
    refusals = fit(entry_of(graph, alone), graph, job=JOB).refusals
    assert ["in namespace 'default' by (), now" in told for told in refusals] == [True]


def test_every_new_chain_gets_the_runs_that_overlap_its_key_groups() -> None:
    """S6: limits are clipped, whatever the parallelism becomes."""
    two = graph_of(counts=2)
    assert runs(fit(entry_of(two), graph_of(counts=3), job=JOB)) == {
        "in-0": [],
        "count-0": [("1-count-0-1", 0, 41)],
        "count-1": [("1-count-0-1", 42, 63), ("1-count-1-1", 64, 84)],
        "count-2": [("1-count-1-1", 85, 127)],
    }
    found = fit(entry_of(two), graph_of(counts=1), job=JOB)
    assert runs(found)["count-0"] == [("1-count-0-1", 0, 63), ("1-count-1-1", 64, 127)]
    assert [ref.name for ref in found.chains[1].objects] == [
        "1-count-0-1.arrow",
        "1-count-1-1.arrow",
    ]


def test_key_groups_are_neither_lost_nor_doubled_by_any_change() -> None:
    for before in (1, 2, 3, 7, 128):
        record = entry_of(graph_of(counts=before))
        for after in (1, 2, 5, 64, 128):
            found = fit(record, graph_of(counts=after), job=JOB)
            groups = [
                group
                for ranges in runs(found).values()
                for _, first, last in ranges
                for group in range(first, last + 1)
            ]
            assert sorted(groups) == list(range(128))


def test_lanes_go_to_the_subtask_that_owns_them() -> None:
    """X5: lane l belongs to subtask l mod n."""
    record = entry_of(graph_of(counts=3, sinks=("files",)))
    found = fit(record, graph_of(counts=2, sinks=("files",)), job=JOB)
    assert [[lane.lane for lane in chain.lanes] for chain in found.chains] == [[], [0, 2], [1]]


def test_a_chain_that_was_cut_in_two_keeps_its_parts() -> None:
    whole = graph_of(counts=1, extra="sums")
    chain = whole.chains[1]
    first = replace(chain, operators=chain.operators[:1], sinks=())
    second = replace(chain, chain=type(chain.chain)("sums-0"), operators=chain.operators[1:])
    found = fit(entry_of(whole), replace(whole, chains=(whole.chains[0], first, second)), job=JOB)
    assert found.refusals == ()
    assert {c.chain: [s.operator for s in c.states] for c in found.chains} == {
        "in-0": [],
        "count-0": ["count"],
        "sums-0": ["sums"],
    }
    assert found.chains[0].sources == entry_of(whole).record.chains[0].sources


def test_finished_and_unfinished_chains_cannot_be_joined() -> None:
    graph = graph_of()
    record = record_of(graph, 1, 1)
    chains = (*record.chains[:2], replace(record.chains[2], finished=True))
    entry = entry_of(graph, replace(record, chains=chains))
    assert [chain.finished for chain in fit(entry, graph, job=JOB).chains] == [False, False, True]
    (told,) = fit(entry, graph_of(counts=1), job=JOB).refusals
    assert told.startswith("chain 'count-0' would join operators that were finished with others")


def test_a_newer_format_of_state_is_refused() -> None:
    """S9"""
    graph = graph_of()
    record = record_of(graph, 1, 1)
    last = record.chains[2]
    newer = replace(last, states=(replace(last.states[0], format_version=2),))
    entry = entry_of(graph, replace(record, chains=(*record.chains[:2], newer)))
    assert fit(entry, graph, job=JOB).refusals == (
        "the state of operator 'count' has format version 2, this release reads up to 1: use the "
        "release that wrote it, or a newer one",
    )


def test_a_source_that_is_gone_and_one_that_is_new_are_told() -> None:
    found = fit(entry_of(graph_of()), graph_of(source="kafka"), job=JOB)
    assert found.notes == (
        "source 'kafka' is new and starts at its beginning",
        "source 'in' is not in the job any more; its positions were dropped",
    )


def test_a_run_outside_of_what_its_record_lists_makes_it_unusable() -> None:
    """M2"""
    graph = graph_of()
    record = record_of(graph, 1, 1)
    last = replace(record.chains[2], objects=())
    entry = entry_of(graph, replace(record, chains=(*record.chains[:2], last)))
    assert inconsistency(entry, None) == (
        "run 1-count-1-1 lies outside of every object that it lists"
    )
    twice = replace(record, chains=(*record.chains[:2], record.chains[1]))
    assert inconsistency(entry_of(graph, twice), None) == "it lists chain 'count-0' more than once"


# --- sources with several subtasks ---------------------------------------------------------------


def sources_of(parallelism: int, graph: ExecutionGraph | None = None) -> ExecutionGraph:
    """The job with so many subtasks of its source `in`."""
    graph = graph_of() if graph is None else graph
    read, *rest = graph.chains
    chains = [
        replace(
            read,
            chain=type(read.chain)(f"in-{i}"),
            tasks=(TaskId(f"in-{i}"),),
            subtask=SubtaskIndex(i),
            parallelism=parallelism,
        )
        for i in range(parallelism)
    ]
    return replace(graph, chains=(*chains, *rest))


def read_by(parallelism: int) -> CheckpointRecord:
    """Subtask i has read split `s<i>`, at time 10 * (i + 1), and has said a time below."""
    record = record_of(sources_of(parallelism), 1, 1)
    chains = list(record.chains)
    for i in range(parallelism):
        split = SplitId(f"s{i}")
        chains[i] = replace(
            chains[i],
            sources=(SplitPosition(split, {"row": i}),),
            times=(SplitTime(split, EventTimeMs(10 * (i + 1))),),
            watermark=EventTimeMs(10 * (i + 1) - 5),
        )
    return replace(record, chains=tuple(chains))


def test_every_subtask_of_a_source_gets_the_splits_and_times_of_all() -> None:
    """K5: which are its own is decided when the source was listed."""
    for before, after in ((1, 3), (3, 1), (3, 3), (2, 5), (5, 2)):
        record = read_by(before)
        entry = entry_of(sources_of(before), record)
        assert inconsistency(entry, None) is None
        found = fit(entry, sources_of(after), job=JOB)
        assert found.refusals == ()
        reading = found.chains[:after]
        assert [chain.chain for chain in reading] == [f"in-{i}" for i in range(after)]
        for chain in reading:
            assert chain.sources == tuple(p for c in record.chains for p in c.sources)
            assert chain.times == tuple(t for c in record.chains for t in c.times)
            assert chain.watermark == 5, "no split that it may get is behind what it says"


def test_subtasks_of_a_source_that_were_finished_stay_so_only_while_their_number_does() -> None:
    """B8: and then all of them must have been."""
    record = read_by(2)
    first = replace(record.chains[0], finished=True)
    entry = entry_of(sources_of(2), replace(record, chains=(first, *record.chains[1:])))

    def finished(parallelism: int) -> list[bool]:
        chains = fit(entry, sources_of(parallelism), job=JOB).chains
        return [chain.finished for chain in chains[:parallelism]]

    assert finished(2) == [True, False]
    assert finished(3) == [False] * 3
    assert finished(1) == [False]
    both = [replace(chain, finished=True) for chain in record.chains[:2]]
    entry = entry_of(sources_of(2), replace(record, chains=(*both, *record.chains[2:])))
    assert finished(3) == [True] * 3


def test_a_split_in_the_parts_of_two_chains_makes_a_record_unusable() -> None:
    """M2, K5"""
    record = read_by(2)
    twice = replace(record.chains[1], sources=record.chains[0].sources)
    chains = (record.chains[0], twice, *record.chains[2:])
    entry = entry_of(sources_of(2), replace(record, chains=chains))
    assert inconsistency(entry, None) == "split 's0' is in the chains 'in-0', 'in-1'"
