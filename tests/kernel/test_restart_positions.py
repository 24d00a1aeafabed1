"""Where sources continue after a failed attempt, and the sentence that says it (D3, F1, F6)."""

from arkflow_kernel.ids import ChainId, MonotonicMs, SplitId
from arkflow_kernel.ports import ReplayKind, SplitPosition
from arkflow_kernel.restart_positions import RestartPositions
from arkflow_kernel.testing.plans import chain_plan, channel_plan, job_plan

A, B = ChainId("a"), ChainId("b")


def _at(row: int, split: str = "s", *, ended: bool = False) -> SplitPosition:
    return SplitPosition(SplitId(split), {"row": row}, ended)


def _positions() -> RestartPositions:
    """Chain `a` reads `orders`, chain `b` reads nothing."""
    channel = channel_plan("e", "a", "b")
    return RestartPositions(
        job_plan(
            chain_plan("a", source="orders", sinks=(), channels=(channel,)),
            chain_plan("b", inputs=(channel,)),
        )
    )


def _sentence(positions: RestartPositions, now_ms: int = 0) -> str:
    return positions.sentence(MonotonicMs(now_ms))


def test_a_source_that_nobody_heard_of_starts_at_its_beginning() -> None:
    positions = _positions()
    positions.source_is(A, ReplayKind.POSITION, commits=False)
    assert positions.restored(A) == ()
    assert _sentence(positions) == (
        "source 'orders' starts at its beginning: every row that was written is repeated"
    )


def test_a_source_whose_own_system_knows_continues_there() -> None:
    positions = _positions()
    positions.source_is(A, ReplayKind.ACK, commits=True)
    assert positions.restored(A) == ()
    assert _sentence(positions) == (
        "source 'orders' continues at the positions that its own system holds: "
        "rows written after them are repeated"
    )


def test_the_newest_frontier_wins_over_both_and_its_age_is_told() -> None:
    positions = _positions()
    positions.source_is(A, ReplayKind.POSITION, commits=True)
    positions.heard(A, (_at(4),), MonotonicMs(100))
    positions.heard(A, (_at(9), _at(2, "t")), MonotonicMs(1_000))
    assert positions.restored(A) == (_at(9), _at(2, "t"))
    assert _sentence(positions, 3_460) == (
        "source 'orders' continues at the positions that it reported 2.5 s before: "
        "what was written beyond them is repeated"
    )


def test_an_empty_frontier_says_nothing() -> None:
    positions = _positions()
    positions.heard(A, (_at(4),), MonotonicMs(0))
    positions.heard(A, (), MonotonicMs(900))
    assert positions.restored(A) == (_at(4),)
    assert "0.9 s before" in _sentence(positions, 900)


def test_a_source_that_repeats_nothing_loses_what_was_in_flight() -> None:
    positions = _positions()
    positions.source_is(A, ReplayKind.NONE, commits=False)
    positions.heard(A, (_at(4),), MonotonicMs(0))
    assert _sentence(positions) == (
        "source 'orders' cannot repeat anything: rows that were in flight are lost"
    )


def test_a_chain_without_a_source_has_no_position() -> None:
    positions = _positions()
    before = positions.progress()
    positions.source_is(B, None, commits=False)
    positions.heard(B, (_at(4),), MonotonicMs(0))
    assert positions.restored(B) == ()
    assert positions.progress() == before
    assert "b" not in _sentence(positions).split("'")


def test_every_source_of_a_job_has_its_part_of_the_sentence() -> None:
    graph = job_plan(chain_plan("a", source="left"), chain_plan("b", source="right"))
    positions = RestartPositions(graph)
    positions.heard(B, (_at(1),), MonotonicMs(0))
    first, second = _sentence(positions).split("; ")
    assert first.startswith("source 'left' starts at its beginning")
    assert second.startswith("source 'right' continues at the positions")


def test_progress_changes_exactly_when_a_frontier_does() -> None:
    positions = _positions()
    seen = [positions.progress()]
    for frontier in (
        (_at(1),),
        (_at(2),),
        (_at(2), _at(1, "t")),
        (_at(2), _at(1, "t", ended=True)),
    ):
        positions.heard(A, frontier, MonotonicMs(0))
        seen.append(positions.progress())
        positions.heard(A, frontier, MonotonicMs(500))
        assert positions.progress() == seen[-1], "the same word once more is no progress"
    assert len(set(seen)) == len(seen)
