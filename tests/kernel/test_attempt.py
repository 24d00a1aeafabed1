"""The facts of one attempt: which failure counts, who is overdue, who is silent (D2, D4, H9)."""

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.attempt import Attempt, SourceTimes
from arkflow_kernel.errors import ActorLostError, ArkflowError, ChannelError, SourceError
from arkflow_kernel.ids import LATEST, ChainId, EventTimeMs, Generation, MonotonicMs, WallMs
from arkflow_kernel.limits import HEARTBEAT_TIMEOUT_MS
from arkflow_kernel.metrics import ChainStatistics
from arkflow_kernel.plan import ChainPlan, TimePlan
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import NOBODY, ChainOutcome, ChainReport, OutcomeKind, Slowest
from arkflow_kernel.testing.plans import chain_plan

A, B, C = (ChainId(name) for name in "abc")
BROKEN, LOST, REAL = ChannelError("broken"), ActorLostError("lost"), SourceError("real")


def _attempt() -> Attempt:
    return Attempt(Generation(1), [_timed_plan(chain) for chain in (A, B, C)])


def _timed_plan(chain: ChainId) -> ChainPlan:
    plan = chain_plan(chain)
    assert plan.source is not None
    return replace(plan, source=replace(plan.source, time=TimePlan("ts")))


def _report(
    attempt: Attempt,
    chain: ChainId,
    watermark: int | None,
    *,
    at_ms: int = 0,
    idle: bool = False,
    drained: bool = False,
) -> Slowest:
    mark = None if watermark is None else EventTimeMs(watermark)
    statistics = ChainStatistics(chain, watermark=mark, idle=idle)
    at = Moment(MonotonicMs(at_ms), WallMs(0))
    attempt.heard(ChainReport(at, chain, Generation(1), statistics, (), drained=drained))
    return attempt.control.slowest


def _fail(attempt: Attempt, chain: ChainId, error: ArkflowError) -> bool:
    return attempt.ended(chain, ChainOutcome(OutcomeKind.FAILED, error))


def _give_up(attempt: Attempt) -> None:
    attempt.give_up(MonotonicMs(0), 100)


def test_chains_are_ready_then_connected_then_over() -> None:
    attempt = _attempt()
    for count, chain in enumerate((A, B, C), 1):
        assert not attempt.all_ready
        assert attempt.ready(chain) is (chain == C)
        assert attempt.ready_count == count
    assert attempt.all_ready
    for chain in (A, B, C):
        assert not attempt.all_connected
        assert attempt.connected(chain, MonotonicMs(0)) is (chain == C)
    assert attempt.all_connected
    for kind, chain in zip(
        (OutcomeKind.FINISHED, OutcomeKind.STOPPED, OutcomeKind.CANCELLED), (A, B, C), strict=True
    ):
        assert not attempt.over
        assert not attempt.ended(chain, ChainOutcome(kind))
    assert attempt.over
    assert attempt.failure is None
    assert attempt.worst() is OutcomeKind.CANCELLED


@pytest.mark.parametrize("order", list(permutations([(A, BROKEN), (B, REAL), (C, BROKEN)])))
def test_the_root_cause_is_found_in_whatever_order_its_consequences_arrive(
    order: tuple[tuple[ChainId, ArkflowError], ...],
) -> None:
    attempt = _attempt()
    news = []
    for chain, error in order:
        news.append(_fail(attempt, chain, error))
        if news == [True]:
            _give_up(attempt)
    assert news == [True, False, False], "an attempt fails once"
    assert attempt.failure is REAL
    assert attempt.culprit == B
    assert attempt.over


@pytest.mark.parametrize("error", [LOST, REAL])
def test_any_failure_takes_the_place_of_a_broken_channel(error: ArkflowError) -> None:
    attempt = _attempt()
    _fail(attempt, A, BROKEN)
    _give_up(attempt)
    _fail(attempt, B, error)
    assert (attempt.failure, attempt.culprit) == (error, B)
    _fail(attempt, C, ActorLostError("another"))
    assert attempt.failure is error, "and keeps it"


def test_the_first_of_two_real_failures_counts() -> None:
    attempt = _attempt()
    _fail(attempt, A, REAL)
    _give_up(attempt)
    _fail(attempt, B, SourceError("second"))
    assert (attempt.failure, attempt.culprit) == (REAL, A)


@pytest.mark.parametrize("error", [BROKEN, LOST])
def test_what_follows_from_giving_up_is_no_failure(error: ArkflowError) -> None:
    attempt = _attempt()
    _give_up(attempt)
    assert not _fail(attempt, A, error)
    assert attempt.failure is None
    assert attempt.worst() is OutcomeKind.CANCELLED


def test_a_real_failure_after_giving_up_is_one() -> None:
    attempt = _attempt()
    _give_up(attempt)
    assert _fail(attempt, A, REAL)
    assert attempt.failure is REAL


def test_a_chain_that_was_killed_fails_with_the_reason_for_the_kill() -> None:
    attempt = _attempt()
    why = ActorLostError("did not answer")
    attempt.chains[A].killed = why
    assert _fail(attempt, A, LOST)
    assert attempt.failure is why


def _kills(attempt: Attempt, now_ms: int) -> list[ChainId]:
    return [kill.chain for kill in attempt.kills(MonotonicMs(now_ms), 100)]


def test_a_chain_is_overdue_from_its_moment_on_until_it_ends() -> None:
    attempt = _attempt()
    attempt.ended(C, ChainOutcome(OutcomeKind.FINISHED))
    attempt.give_up(MonotonicMs(0), 50)
    attempt.give_up(MonotonicMs(40), 50)
    assert attempt.deadline_ms() == 50, "the first time counts"
    assert _kills(attempt, 49) == []
    assert _kills(attempt, 50) == [A, B]
    assert _kills(attempt, 149) == []
    attempt.ended(A, ChainOutcome(OutcomeKind.CANCELLED))
    assert attempt.deadline_ms() == 150
    assert _kills(attempt, 150) == [B], "it is killed again"


def test_a_chain_is_silent_ten_seconds_after_it_was_heard_of_last_and_only_until_its_kill() -> None:
    attempt = _attempt()
    limit = HEARTBEAT_TIMEOUT_MS
    assert attempt.deadline_ms() is None
    assert attempt.silent(MonotonicMs(10 * limit)) == [], "nobody was to be heard of yet"
    for chain in (A, B, C):
        attempt.connected(chain, MonotonicMs(0))
    _report(attempt, C, 1, at_ms=3)
    _report(attempt, A, 1, at_ms=5)
    assert attempt.deadline_ms() == limit
    assert attempt.silent(MonotonicMs(limit - 1)) == []
    assert attempt.silent(MonotonicMs(limit)) == [B]
    assert _kills(attempt, limit) == [B]
    assert attempt.deadline_ms() == limit + 3
    _report(attempt, B, 1, at_ms=limit)
    assert attempt.silent(MonotonicMs(limit + 5)) == [C, A], "nobody waits for one that was killed"
    attempt.ended(A, ChainOutcome(OutcomeKind.FINISHED))
    attempt.ended(C, ChainOutcome(OutcomeKind.FINISHED))
    assert attempt.silent(MonotonicMs(limit + 5)) == []
    assert attempt.deadline_ms() is None
    assert _fail(attempt, B, LOST)
    assert attempt.failure is not None
    assert "did not answer for 10 s" in str(attempt.failure)


def test_chains_are_told_which_source_is_the_slowest_once_all_have_said() -> None:
    attempt = _attempt()
    assert _report(attempt, A, 50) == NOBODY
    assert _report(attempt, B, None) == NOBODY
    assert _report(attempt, C, 70) == NOBODY
    assert _report(attempt, B, 60) == Slowest(EventTimeMs(50), A)
    assert _report(attempt, A, 90) == Slowest(EventTimeMs(60), B)


def test_a_source_that_is_idle_or_at_its_end_holds_nobody_back() -> None:
    attempt = _attempt()
    for chain, mark in ((A, 50), (B, 60), (C, 70)):
        _report(attempt, chain, mark)
    assert _report(attempt, A, 50, idle=True) == Slowest(EventTimeMs(60), B)
    assert _report(attempt, B, 60, drained=True) == Slowest(EventTimeMs(70), C)
    assert _report(attempt, A, 55) == Slowest(EventTimeMs(70), C), "it never goes back"


@given(
    st.lists(
        st.tuples(
            st.integers(0, 5),
            st.none() | st.integers(0, 9) | st.just(int(LATEST)),
            st.booleans(),
        ),
        max_size=60,
    )
)
def test_the_slowest_source_is_the_lowest_of_all_whatever_they_say_in_whatever_order(
    told: list[tuple[int, int | None, bool]],
) -> None:
    """Each says how far it has come, forward or back, or is gone."""
    times = SourceTimes([ChainId(f"c{n}") for n in range(6)])
    known: dict[ChainId, int | None] = {ChainId(f"c{n}"): None for n in range(6)}
    for number, mark, goes in told:
        chain = ChainId(f"c{number}")
        if goes:
            times.gone(chain)
            known.pop(chain, None)
        else:
            times.says(chain, None if mark is None else EventTimeMs(mark))
            if chain in known:
                known[chain] = mark
        active = [(mark, name) for name, mark in known.items() if mark not in (None, LATEST)]
        expected = None if None in known.values() or not active else min(active)
        assert times.slowest() == expected
