"""`CommitFrontier` against a sorted set, `SettlementQueue` against a list (F1, F3, F5)."""

from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.commit import CommitFrontier, SettledRange, SettlementQueue
from arkflow_kernel.ids import Sequence, SplitId

SPLIT = SplitId("s")


def _tracked(count: int, pairs_max: int = 4096) -> CommitFrontier:
    frontier = CommitFrontier(SPLIT, pairs_max=pairs_max)
    for n in range(1, count + 1):
        frontier.track(Sequence(n), {"row": n}, ended=n == count)
        frontier.validate()
    return frontier


def _contiguous(settled: set[int]) -> int:
    upto = 0
    while upto + 1 in settled:
        upto += 1
    return upto


ranges = st.tuples(st.integers(1, 30), st.integers(1, 30)).map(sorted)


@given(st.lists(ranges, max_size=20))
def test_a_frontier_exposes_what_a_sorted_set_would(settles: list[list[int]]) -> None:
    frontier, settled = _tracked(30), set[int]()
    for first, last in settles:
        before = frontier.exposed
        moved = frontier.settle(Sequence(first), Sequence(last))
        frontier.validate()
        settled.update(range(first, last + 1))
        upto = _contiguous(settled)
        assert frontier.settled == upto
        assert moved == (frontier.exposed != before)
        if upto == 0:
            assert frontier.exposed is None
        else:
            assert frontier.exposed is not None
            assert frontier.exposed.position == {"row": upto}
            assert frontier.exposed.ended == (upto == 30)


@given(st.lists(ranges, max_size=20), st.integers(4, 9))
def test_a_full_frontier_is_older_but_never_wrong(settles: list[list[int]], most: int) -> None:
    frontier, settled = _tracked(30, pairs_max=most), set[int]()
    for first, last in settles:
        frontier.settle(Sequence(first), Sequence(last))
        frontier.validate()
        settled.update(range(first, last + 1))
    upto = _contiguous(settled)
    row = 0 if frontier.exposed is None else frontier.exposed.position["row"]
    assert isinstance(row, int)
    assert row <= upto
    if upto == 30:
        assert frontier.exposed is not None
        assert frontier.exposed.ended, "the end of a split is never thinned away"


def test_a_settled_successor_never_exposes_past_a_gap() -> None:
    frontier = _tracked(3)
    assert not frontier.settle(Sequence(2), Sequence(3))
    assert frontier.exposed is None
    assert frontier.settle(Sequence(1), Sequence(1))
    assert frontier.exposed is not None
    assert frontier.exposed.position == {"row": 3}


def test_repeats_change_nothing() -> None:
    frontier = _tracked(3)
    frontier.settle(Sequence(1), Sequence(2))
    assert not frontier.settle(Sequence(1), Sequence(2))
    assert frontier.settled == 2


steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("add"), st.integers(0, 2), st.lists(st.integers(0, 2), min_size=2, max_size=2)
        ),
        st.tuples(st.just("confirm"), st.integers(0, 1), st.integers(0, 9)),
    ),
    min_size=30,
)


@given(steps, st.sampled_from([4, 4096]))
def test_a_settlement_queue_settles_what_a_plain_list_would(
    script: list[tuple[str, int, object]], most: int
) -> None:
    queue = SettlementQueue(2, entries_max=most)
    waiting: list[tuple[str, int, tuple[int, ...]]] = []
    sequences, marks, confirmed = dict.fromkeys("abc", 0), [0, 0], [0, 0]
    added = settled_rows = 0
    done = dict.fromkeys("abc", 0)
    for kind, which, value in script:
        if kind == "add":
            assert isinstance(value, list)
            split = "abc"[which]
            sequences[split] += 1
            marks = [mark + step for mark, step in zip(marks, value, strict=True)]
            waiting.append((split, sequences[split], tuple(marks)))
            queue.add(
                SplitId(split),
                Sequence(sequences[split]),
                tuple(Sequence(mark) for mark in marks),
                rows=2,
            )
            added += 2
        else:
            assert isinstance(value, int)
            upto = marks[which] - 4 + value
            confirmed[which] = max(confirmed[which], upto)
            queue.confirm(which, Sequence(upto))
        queue.validate()
        for settled in queue.settle():
            assert settled.first == done[settled.stream] + 1, "ranges of a split have no gap"
            done[settled.stream] = settled.last
            settled_rows += 2 * (settled.last - settled.first + 1)
        while waiting and all(m <= c for m, c in zip(waiting[0][2], confirmed, strict=True)):
            waiting.pop(0)
        expected = {s: sequences[s] - sum(w[0] == s for w in waiting) for s in "abc"}
        if most == 4096:
            assert done == expected
        assert all(done[s] <= expected[s] for s in "abc"), "merged entries settle later, not sooner"
        assert queue.settled_rows == settled_rows
    assert (len(queue) == 0) == (settled_rows == added)


def test_equal_neighbours_merge_into_one_entry() -> None:
    queue = SettlementQueue(1)
    for n in range(1, 1_001):
        queue.add(SPLIT, Sequence(n), (Sequence(5),))
    assert len(queue) == 1
    queue.confirm(0, Sequence(5))
    (settled,) = queue.settle()
    assert (settled.first, settled.last) == (1, 1_000)


def test_a_full_queue_merges_every_second_entry_and_settles_later() -> None:
    queue = SettlementQueue(1, entries_max=4)
    for n in range(1, 6):
        queue.add(SPLIT, Sequence(n), (Sequence(n),), rows=1)
        queue.validate()
    assert len(queue) == 3
    queue.confirm(0, Sequence(1))
    assert queue.settle() == [], "batch 1 was merged into batch 2"
    queue.confirm(0, Sequence(2))
    assert queue.settle() == [SettledRange(SPLIT, Sequence(1), Sequence(2))]
    queue.confirm(0, Sequence(5))
    assert [(r.first, r.last) for r in queue.settle()] == [(3, 4), (5, 5)]
    assert queue.settled_rows == 5
