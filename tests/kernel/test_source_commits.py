"""What a source's own system is told of its splits, and when (F1, F3, F6)."""

from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.commit import SourceCommits
from arkflow_kernel.ids import Sequence, SplitId
from arkflow_kernel.ports import SplitPosition

A, B = SplitId("a"), SplitId("b")


def _at(split: SplitId, row: int) -> SplitPosition:
    return SplitPosition(split, {"row": row})


steps = st.lists(
    st.tuples(st.sampled_from(["track", "settle", "take", "committed"]), st.sampled_from("abc")),
    min_size=40,
)


@given(steps, st.booleans(), st.sampled_from([(), (_at(A, -5),), (_at(B, -1), _at(A, -2))]))
def test_commits_are_those_of_a_plain_table_of_settled_rows(
    script: list[tuple[str, str]], commits: bool, restored: tuple[SplitPosition, ...]
) -> None:
    source = SourceCommits(restored, commits=commits)
    tracked, settled = dict.fromkeys("abc", 0), dict.fromkeys("abc", 0)
    due = under_way = False
    for step, name in script:
        split = SplitId(name)
        if step == "track":
            tracked[name] += 1
            position = {"row": tracked[name]}
            source.track(split, Sequence(tracked[name]), position, ended=False)
        elif step == "settle" and settled[name] < tracked[name]:
            first = settled[name] + 1
            settled[name] = tracked[name]
            source.settle(split, Sequence(first), Sequence(settled[name]))
            due = commits
        elif step == "take":
            may = due and not under_way
            assert source.take_due() == may
            due, under_way = due and not may, under_way or may
        elif step == "committed" and under_way:
            source.committed()
            under_way = False
        source.validate()
        assert source.quiet == (not due and not under_way)
        expected = {position.split: position for position in restored}
        expected |= {SplitId(n): _at(SplitId(n), row) for n, row in settled.items() if row}
        assert source.frontier() == tuple(expected[split] for split in sorted(expected))


def test_a_settled_batch_behind_a_gap_moves_nothing_and_is_due_with_the_gap() -> None:
    source = SourceCommits((), commits=True)
    for number in (1, 2, 3):
        source.track(A, Sequence(number), {"row": number}, ended=False)
    source.settle(A, Sequence(2), Sequence(3))
    assert not source.take_due()
    assert source.frontier() == ()
    source.settle(A, Sequence(1), Sequence(1))
    assert source.take_due()
    assert source.frontier() == (_at(A, 3),)


def test_a_restored_position_is_the_frontier_of_its_split_until_a_batch_is_settled() -> None:
    source = SourceCommits((_at(B, 40), _at(A, 7)), commits=True)
    assert source.frontier() == (_at(A, 7), _at(B, 40))
    assert source.quiet, "its system knows them"
    source.track(A, Sequence(1), {"row": 9}, ended=True)
    assert source.frontier() == (_at(A, 7), _at(B, 40))
    source.settle(A, Sequence(1), Sequence(1))
    assert source.frontier() == (SplitPosition(A, {"row": 9}, ended=True), _at(B, 40))
