"""In checkpoint mode a completed cut alone moves the frontier of a source (B0, B6, F4, F6)."""

from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.commit import SourceCuts
from arkflow_kernel.ids import CheckpointId, Sequence, SplitId
from arkflow_kernel.ports import SplitPosition

A, B = SplitId("a"), SplitId("b")


def _at(split: SplitId, row: int, *, ended: bool = False) -> SplitPosition:
    return SplitPosition(split, {"row": row}, ended)


def _told(cuts: SourceCuts, completed: int = 0, failed: int = 0) -> None:
    cuts.told(CheckpointId(completed), CheckpointId(failed))
    cuts.validate()


def test_the_frontier_is_the_last_completed_cut_whatever_was_read_since() -> None:
    cuts = SourceCuts((), commits=True)
    cuts.track(A, Sequence(1), {"row": 3}, ended=False)
    assert cuts.cut(CheckpointId(1)) == (_at(A, 3),)
    cuts.track(A, Sequence(2), {"row": 5}, ended=True)
    cuts.settle(A, Sequence(1), Sequence(2))
    assert cuts.frontier() == ()
    assert not cuts.take_due()
    _told(cuts, completed=1)
    assert cuts.frontier() == (_at(A, 3),)
    assert cuts.take_due()
    assert not cuts.quiet
    cuts.committed()
    assert cuts.quiet
    assert cuts.cut(CheckpointId(2)) == (_at(A, 5, ended=True),)


def test_a_failed_round_moves_nothing_and_its_cut_is_forgotten() -> None:
    cuts = SourceCuts((), commits=True)
    cuts.track(A, Sequence(1), {"row": 3}, ended=False)
    cuts.cut(CheckpointId(1))
    _told(cuts, failed=1)
    _told(cuts, completed=1)
    assert cuts.frontier() == ()
    assert not cuts.take_due()


def test_a_restored_position_is_in_every_cut_though_nothing_of_its_split_was_read() -> None:
    cuts = SourceCuts((_at(B, 40),), commits=False)
    assert cuts.frontier() == (_at(B, 40),)
    cuts.track(A, Sequence(1), {"row": 1}, ended=False)
    assert cuts.cut(CheckpointId(8)) == (_at(A, 1), _at(B, 40))
    _told(cuts, completed=8)
    assert cuts.frontier() == (_at(A, 1), _at(B, 40))
    assert not cuts.take_due(), "the source does not want to hear of it"


def test_a_cut_that_completes_while_a_commit_is_under_way_is_committed_next() -> None:
    cuts = SourceCuts((), commits=True)
    cuts.cut(CheckpointId(1))
    _told(cuts, completed=1)
    assert cuts.take_due()
    cuts.cut(CheckpointId(2))
    _told(cuts, completed=2)
    _told(cuts, completed=2)
    assert not cuts.take_due()
    cuts.committed()
    assert cuts.take_due()
    cuts.committed()
    assert not cuts.take_due()
    assert cuts.quiet


@given(st.data())
def test_whatever_completes_and_fails_the_frontier_is_that_of_the_naive_model(
    data: st.DataObject,
) -> None:
    """Control states arrive late and skip rounds: both numbers only grow (B2)."""
    cuts, row, rounds = SourceCuts((), commits=True), 0, 0
    taken: dict[int, int] = {}
    exposed, completed, failed = 0, 0, 0
    for _ in range(data.draw(st.integers(0, 30))):
        step = data.draw(st.sampled_from(["read", "cut", "told"]))
        if step == "read":
            row += 1
            cuts.track(A, Sequence(row), {"row": row}, ended=False)
        elif step == "cut":
            rounds += 1
            taken[rounds] = row
            assert cuts.cut(CheckpointId(rounds)) == ((_at(A, row),) if row else ())
        else:
            open_ = range(max(completed, failed) + 1, rounds + 1)
            ends = {n: data.draw(st.sampled_from([None, True, False])) for n in open_}
            completed = max([completed, *(n for n, end in ends.items() if end is True)])
            failed = max([failed, *(n for n, end in ends.items() if end is False)])
            exposed = max(exposed, taken.get(completed, 0))
            _told(cuts, completed, failed)
        assert cuts.frontier() == ((_at(A, exposed),) if exposed else ())
