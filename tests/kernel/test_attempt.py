"""The facts of one attempt: which failure counts, who is overdue, who is silent (D2, D4, H9)."""

from dataclasses import replace
from itertools import permutations

import pytest

from arkflow_kernel.attempt import Attempt
from arkflow_kernel.errors import ActorLostError, ArkflowError, ChannelError, SourceError
from arkflow_kernel.ids import ChainId, EventTimeMs, Generation, MonotonicMs, WallMs
from arkflow_kernel.limits import HEARTBEAT_TIMEOUT_MS
from arkflow_kernel.metrics import ChainStatistics
from arkflow_kernel.plan import ChainPlan, TimePlan
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import NOBODY, ChainOutcome, ChainReport, OutcomeKind, Slowest
from arkflow_kernel.testing.plans import chain_plan

A, B, C = (ChainId(name) for name in "abc")
BROKEN, LOST, REAL = ChannelError("broken"), ActorLostError("lost"), SourceError("real")


def _attempt() -> Attempt:
    return Attempt.of(Generation(1), [_timed_plan(chain) for chain in (A, B, C)])


def _timed_plan(chain: ChainId) -> ChainPlan:
    plan = chain_plan(chain)
    assert plan.source is not None
    return replace(plan, source=replace(plan.source, time=TimePlan("ts")))


def _report(
    attempt: Attempt,
    chain: ChainId,
    watermark: int | None,
    *,
    idle: bool = False,
    drained: bool = False,
) -> Slowest:
    mark = None if watermark is None else EventTimeMs(watermark)
    statistics = ChainStatistics(chain, watermark=mark, idle=idle)
    at = Moment(MonotonicMs(0), WallMs(0))
    attempt.heard(ChainReport(at, chain, Generation(1), statistics, (), drained=drained))
    return attempt.control.slowest


def _fail(attempt: Attempt, chain: ChainId, error: ArkflowError) -> bool:
    return attempt.ended(chain, ChainOutcome(OutcomeKind.FAILED, error))


def _give_up(attempt: Attempt) -> None:
    attempt.given_up = True
    for _, chain in attempt.alive():
        chain.kill_at_ms = MonotonicMs(100)


def _names(pairs: object) -> list[ChainId]:
    return [name for name, _ in pairs]  # type: ignore[attr-defined]


def test_chains_are_ready_then_connected_then_over() -> None:
    attempt = _attempt()
    for count, chain in enumerate((A, B, C), 1):
        assert not attempt.all_ready
        attempt.chains[chain].ready = True
        assert attempt.ready_count == count
    assert attempt.all_ready
    for chain in (A, B, C):
        assert not attempt.all_connected
        attempt.chains[chain].connected = True
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


def test_a_chain_is_overdue_from_its_moment_on_until_it_ends() -> None:
    attempt = _attempt()
    attempt.chains[A].kill_at_ms = MonotonicMs(50)
    attempt.chains[B].kill_at_ms = MonotonicMs(60)
    assert attempt.deadline_ms() == 50
    assert _names(attempt.overdue(MonotonicMs(49))) == []
    assert _names(attempt.overdue(MonotonicMs(50))) == [A]
    assert _names(attempt.overdue(MonotonicMs(60))) == [A, B]
    attempt.ended(A, ChainOutcome(OutcomeKind.CANCELLED))
    assert _names(attempt.overdue(MonotonicMs(60))) == [B]
    assert attempt.deadline_ms() == 60


def test_a_chain_is_silent_ten_seconds_after_it_was_heard_of_last_and_only_until_its_kill() -> None:
    attempt = _attempt()
    limit = HEARTBEAT_TIMEOUT_MS
    assert attempt.deadline_ms() is None
    assert _names(attempt.silent(MonotonicMs(10 * limit))) == [], "nobody was to be heard of yet"
    attempt.chains[A].heard_ms = MonotonicMs(5)
    attempt.chains[B].heard_ms = MonotonicMs(0)
    assert attempt.deadline_ms() == limit
    assert _names(attempt.silent(MonotonicMs(limit - 1))) == []
    assert _names(attempt.silent(MonotonicMs(limit))) == [B]
    attempt.chains[B].killed = LOST
    assert _names(attempt.silent(MonotonicMs(limit + 5))) == [A]
    assert attempt.deadline_ms() == limit + 5
    attempt.ended(A, ChainOutcome(OutcomeKind.FINISHED))
    assert _names(attempt.silent(MonotonicMs(limit + 5))) == []
    assert attempt.deadline_ms() is None


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
