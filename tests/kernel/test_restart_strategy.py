"""Whether and when a failed attempt is followed by another (D3)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.errors import (
    ActorLostError,
    ArkflowError,
    BadRowError,
    ChannelError,
    ConfigError,
    CorruptObjectError,
    FencedError,
    OperatorTimeoutError,
    ProcessingError,
    ResourceError,
    RestoreError,
    SinkError,
    SourceError,
)
from arkflow_kernel.ids import CheckpointId, MonotonicMs
from arkflow_kernel.plan import RestartPlan
from arkflow_kernel.restart import GiveUp, Restart, RestartStrategy

LOST = ActorLostError("the process died")
ERRORS: list[ArkflowError] = [
    LOST,
    ChannelError("broke"),
    ResourceError("no memory"),
    SourceError("gone"),
    SinkError("full"),
]


class Failing:
    """A job that fails: every failure comes `every_ms` after the one before."""

    def __init__(self, plan: RestartPlan | None = None) -> None:
        self.strategy = RestartStrategy(plan or RestartPlan())
        self.now_ms = 0

    def fail(
        self,
        error: ArkflowError = LOST,
        *,
        after_ms: int = 100,
        started: bool = True,
        progress: object = 0,
        saved: int = 0,
    ) -> int | str:
        """The wait in ms, or the reason why nothing follows."""
        self.now_ms += after_ms
        verdict = self.strategy.failed(
            error,
            MonotonicMs(self.now_ms),
            started=started,
            progress=str(progress),
            saved=CheckpointId(saved),
        )
        return verdict.delay_ms if isinstance(verdict, Restart) else verdict.reason


@pytest.mark.parametrize(
    ("plan", "delays"),
    [
        (RestartPlan(), [0, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]),
        (RestartPlan(initial_ms=10, multiplier=3.0, max_ms=100), [0, 10, 30, 90, 100, 100]),
        (RestartPlan(initial_ms=7, multiplier=1.5), [0, 7, 10, 15, 23, 35]),
        (RestartPlan(strategy="fixed", initial_ms=500), [0, 500, 500, 500]),
        (RestartPlan(strategy="fixed", initial_ms=500, max_ms=200), [0, 200, 200]),
        (RestartPlan(initial_ms=500, max_ms=200), [0, 200, 200]),
        (RestartPlan(multiplier=1.0), [0, 1_000, 1_000, 1_000]),
    ],
)
def test_the_first_restart_is_immediate_and_the_next_wait_as_the_plan_says(
    plan: RestartPlan, delays: list[int]
) -> None:
    job = Failing(plan)
    assert [job.fail() for _ in delays] == delays


def test_waits_do_not_overflow_however_often_a_job_fails() -> None:
    job = Failing(RestartPlan(multiplier=1_000.0))
    assert [job.fail() for _ in range(400)][-1] == 60_000


def test_a_quiet_time_starts_the_waits_anew() -> None:
    job = Failing(RestartPlan(reset_after_ms=5_000))
    assert [job.fail() for _ in range(3)] == [0, 1_000, 2_000]
    assert job.fail(after_ms=4_999) == 4_000
    assert job.fail(after_ms=5_000) == 0
    assert job.fail() == 1_000


def test_at_most_so_many_restarts_in_a_row_are_made_and_a_quiet_time_counts_anew() -> None:
    job = Failing(RestartPlan(max_attempts=2, reset_after_ms=5_000))
    assert [job.fail(), job.fail()] == [0, 1_000]
    assert job.fail(after_ms=5_000) == 0
    assert job.fail() == 1_000
    assert job.fail() == "2 restarts in a row (`restart.max_attempts`) did not help"
    assert Failing(RestartPlan(max_attempts=0)).fail() == (
        "0 restarts in a row (`restart.max_attempts`) did not help"
    )


@pytest.mark.parametrize("error", ERRORS)
def test_the_strategy_none_restarts_nothing(error: ArkflowError) -> None:
    assert Failing(RestartPlan(strategy="none")).fail(error) == "`restart.strategy` is `none`"


@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize(
    "error", [ConfigError([]), BadRowError("json", "no object", where="a:1", row="[")]
)
def test_what_would_fail_again_in_the_same_way_is_not_repeated(
    error: ArkflowError, started: bool
) -> None:
    reason = "a restart would meet the same error again"
    assert Failing().fail(error, started=started) == reason


@pytest.mark.parametrize("error", ERRORS)
def test_a_first_deployment_is_repeated_only_if_a_process_was_lost(
    error: ArkflowError,
) -> None:
    verdict = Failing().fail(error, started=False)
    if isinstance(error, ActorLostError | ChannelError):
        assert verdict == 0
    else:
        assert verdict == "the first deployment is not repeated"
    assert Failing().fail(error, started=True) == 0


def test_a_checkpoint_since_the_last_failure_makes_the_next_restart_immediate() -> None:
    job = Failing(RestartPlan(max_attempts=2))
    assert [job.fail(saved=n) for n in (1, 1, 2, 2, 3)] == [0, 1_000, 0, 1_000, 0]


def test_an_object_that_cannot_be_read_is_a_case_for_the_next_claim() -> None:
    """M2: it passes the record over, or refuses to go on."""
    for started in (False, True):
        assert Failing().fail(CorruptObjectError("torn"), started=started) == 0


def test_a_job_that_another_run_took_over_or_that_cannot_be_restored_ends() -> None:
    taken_over = Failing().fail(FencedError("generation 7"))
    assert taken_over == "another run of the job has taken over"
    assert Failing().fail(RestoreError("no")) == "a restart would meet the same error again"


def _bug(operator: str = "sum", kind: str = "ZeroDivisionError") -> ProcessingError:
    return ProcessingError(operator, "no", error_class=kind)


DETERMINISTIC = (
    "operator 'sum' ended 3 attempts in a row with the same error and without progress between them"
)


def test_three_failures_in_a_row_of_one_operator_with_one_error_end_the_job() -> None:
    job = Failing()
    assert [job.fail(_bug()) for _ in range(3)] == [0, 1_000, DETERMINISTIC]
    job = Failing(RestartPlan(reset_after_ms=50))
    assert [job.fail(_bug()) for _ in range(3)] == [0, 0, DETERMINISTIC], "however long between"


def test_a_time_out_of_an_operator_counts_as_its_error() -> None:
    job = Failing()
    late = OperatorTimeoutError("sum", 60_000)
    assert [job.fail(late) for _ in range(3)] == [0, 1_000, DETERMINISTIC]


@pytest.mark.parametrize(
    "between", [_bug("other"), _bug(kind="KeyError"), *ERRORS], ids=lambda error: str(error)
)
def test_any_other_failure_between_starts_the_count_anew(between: ArkflowError) -> None:
    job = Failing(RestartPlan(strategy="fixed", initial_ms=1))
    verdicts = [job.fail(e) for e in (_bug(), _bug(), between, _bug(), _bug(), _bug())]
    assert verdicts == [0, 1, 1, 1, 1, DETERMINISTIC]


def test_progress_between_starts_the_count_anew() -> None:
    job = Failing(RestartPlan(strategy="fixed", initial_ms=1))
    rows = [10, 10, 20, 20, 20]
    verdicts = [job.fail(_bug(), progress=row) for row in rows]
    assert verdicts == [0, 1, 1, 1, DETERMINISTIC]


@given(st.lists(st.tuples(st.sampled_from(ERRORS), st.integers(0, 700_000)), max_size=40))
def test_failures_of_processes_channels_and_outside_systems_never_end_a_job(
    failures: list[tuple[ArkflowError, int]],
) -> None:
    job = Failing()
    in_a_row = 0
    for number, (error, after_ms) in enumerate(failures):
        in_a_row = 1 if number and after_ms >= 600_000 else in_a_row + 1
        expected = 0 if in_a_row == 1 else min(1_000 * 2 ** (in_a_row - 2), 60_000)
        assert job.fail(error, after_ms=after_ms) == expected


@given(
    st.lists(
        st.tuples(st.sampled_from(["sum", "map", ""]), st.sampled_from("KV"), st.booleans()),
        max_size=30,
    )
)
def test_exactly_the_third_repeat_without_progress_ends_a_job(
    failures: list[tuple[str, str, bool]],
) -> None:
    job, progress, repeats = Failing(), 0, 0
    before: tuple[str, str] | None = None
    for operator, kind, moved in failures:
        progress += moved
        same = before == (operator, kind) and not moved
        repeats = repeats + 1 if same else 1
        before = (operator, kind) if operator else None
        error = _bug(operator, kind) if operator else LOST
        verdict = job.fail(error, progress=progress)
        assert isinstance(verdict, str) == (repeats >= 3 and bool(operator))


def test_a_verdict_is_a_plain_value() -> None:
    assert Restart(5) == Restart(5) != Restart(6)
    assert GiveUp("no") == GiveUp("no")
