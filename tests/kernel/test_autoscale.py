"""Autoscaling decides by true rates, within its bounds, never twice in a cooldown (K6)."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.autoscale import (
    GROW_WINDOWS,
    SHRINK_WINDOWS,
    STALE_MS,
    WINDOW_MS,
    AutoscaleMode,
    Autoscaler,
    ScaleDecision,
)
from arkflow_kernel.autoscale_load import Load, SubtaskCounters, enough, hot_share
from arkflow_kernel.autoscale_stages import (
    ScaleBounds,
    ScaledStage,
    ScalingPlan,
    StageEdge,
    StageGroup,
)
from arkflow_kernel.ids import ChainId, EdgeId, MonotonicMs, OperatorId

COOLDOWN_MS = 45_000


def _plan(work: int = 1, *, bounds: ScaleBounds | None = None, to_all: bool = False) -> ScalingPlan:
    """read -> work; only `work` may change."""
    read = ScaledStage("read", (OperatorId("read"),), (ChainId("read-0"),), True)
    chains = tuple(ChainId(f"work-{n}") for n in range(work))
    given_bounds = ScaleBounds(1, 16) if bounds is None else bounds
    stage = ScaledStage("work", (OperatorId("work"),), chains, bounds=given_bounds)
    edge = StageEdge(EdgeId("e"), "read", "work", to_all)
    groups = (StageGroup((read,), None), StageGroup((stage,), given_bounds))
    return ScalingPlan((read, stage), (edge,), groups)


class Job:
    """A source and a stage behind it, counted each window."""

    def __init__(
        self,
        plan: ScalingPlan,
        *,
        mode: AutoscaleMode = AutoscaleMode.ON,
        cooldown_ms: int = COOLDOWN_MS,
    ) -> None:
        self.machine = Autoscaler(mode, cooldown_ms)
        self.now_ms = 0
        self.decisions: list[ScaleDecision] = []
        self.begin(plan)

    def begin(self, plan: ScalingPlan) -> None:
        """A new attempt with counters at zero."""
        self.plan = plan
        self.counted = {chain: SubtaskCounters(MonotonicMs(self.now_ms)) for chain in plan.chains}
        self.machine.begin(plan, MonotonicMs(self.now_ms))
        self.look()

    def look(self, **changes: SubtaskCounters | None) -> ScaleDecision | None:
        """Show the counters as they are; `changes` by chain, with _ for -."""
        counters: dict[ChainId, SubtaskCounters] = dict(self.counted)
        for name, change in changes.items():
            chain = ChainId(name.replace("_", "-"))
            del counters[chain]
            if change is not None:
                counters[chain] = change
        decision = self.machine.observe(counters, MonotonicMs(self.now_ms))
        if decision is not None:
            self.decisions.append(decision)
        return decision

    def passes(self, rows: int, busy_ms: int, *, held_ms: int = 0, by_ms: int = WINDOW_MS) -> None:
        """Time passes: so many rows in all, spread evenly, each subtask of `work` so busy."""
        self.now_ms += by_ms
        subtasks = len(self.plan.chains) - 1
        for chain, old in self.counted.items():
            source = chain == "read-0"
            self.counted[chain] = SubtaskCounters(
                MonotonicMs(self.now_ms),
                old.rows_in + (rows if source else rows // subtasks),
                {EdgeId("e"): old.rows_to.get(EdgeId("e"), 0) + rows} if source else {},
                old.busy_ms + (0 if source else busy_ms),
                old.held_ms + (held_ms if source else 0),
            )

    def windows(self, count: int, rows: int, busy_ms: int, **more: Any) -> ScaleDecision | None:
        """So many windows alike; the last one's decision."""
        decision = None
        for _ in range(count):
            self.passes(rows, busy_ms, **more)
            decision = self.look()
        return decision


def _wanted(decision: ScaleDecision | None) -> int:
    assert decision is not None
    return decision.parallelism[OperatorId("work")]


# --- by hand -----------------------------------------------------------------------------------


def test_a_stage_grows_to_what_the_sources_offer_by_what_one_subtask_can_do() -> None:
    """One subtask does 1,000 rows/s of work; the source is held back half of the time."""
    job = Job(_plan())
    decision = job.windows(GROW_WINDOWS, 10_000, WINDOW_MS, held_ms=WINDOW_MS // 2)
    assert decision is not None
    assert _wanted(decision) == 3  # 2,000 rows/s offered / 1,000 / 0.7
    assert decision.act
    assert decision.sentence == (
        "'work' 1 -> 3: 100% busy at 1,000 rows/s; the sources offer it 2,000, "
        "one subtask can take 1,000: 200% busy, the goal is 70%"
    )
    assert job.machine.status().sentence == decision.sentence
    assert job.machine.status().last == decision


def test_a_stage_shrinks_when_two_minutes_have_not_needed_it() -> None:
    job = Job(_plan(8))
    assert job.windows(SHRINK_WINDOWS - 1, 8_000, 1_000) is None
    assert _wanted(job.windows(1, 8_000, 1_000)) == 2  # 0.8 subtasks of work / 0.63


def test_a_stage_that_waits_for_others_is_not_busy_whatever_time_its_rows_take() -> None:
    job = Job(_plan(2))
    assert job.windows(4 * SHRINK_WINDOWS, 10_000, WINDOW_MS * 6 // 10) is None
    assert "nothing is to change" in job.machine.status().sentence


def test_rows_that_go_to_every_subtask_are_not_spread_by_more_of_them() -> None:
    """Two are busy all the time; so is one, and so would any number be."""
    job = Job(_plan(2, to_all=True))
    assert _wanted(job.windows(SHRINK_WINDOWS, 20_000, WINDOW_MS)) == 1


def test_a_source_that_offers_nothing_leaves_the_least_that_is_allowed() -> None:
    job = Job(_plan(4, bounds=ScaleBounds(2, 8)))
    assert _wanted(job.windows(SHRINK_WINDOWS, 0, 0)) == 2


def test_work_whose_cost_nobody_knows_decides_nothing() -> None:
    """The source reads and the stage takes nothing: it opens, or hangs."""
    job = Job(_plan(2))
    for _ in range(2 * SHRINK_WINDOWS):
        before = dict(job.counted)
        job.passes(10_000, 0)
        for chain in before:
            if chain != "read-0":
                job.counted[chain] = SubtaskCounters(MonotonicMs(job.now_ms))
        job.look()
    assert job.decisions == []


def test_a_step_that_brought_nothing_is_not_followed_by_another() -> None:
    job = Job(_plan())
    assert _wanted(job.windows(GROW_WINDOWS, 10_000, WINDOW_MS, held_ms=WINDOW_MS // 2)) == 3
    job.begin(_plan(3))
    assert job.windows(4 * GROW_WINDOWS, 10_200, WINDOW_MS, held_ms=WINDOW_MS // 2) is None
    assert "brought almost nothing" in job.machine.status().sentence
    assert job.windows(50, 10_200, WINDOW_MS, held_ms=WINDOW_MS // 2) is None or job.decisions[1:]
    assert _wanted(job.decisions[-1]) > 3  # after ten cooldowns it is tried again


def test_the_least_number_of_subtasks_keeps_every_load_at_its_goal() -> None:
    bounds = ScaleBounds(2, 10, 0.5)
    assert enough([Load(0.0, 0.4)], bounds) == 2
    assert enough([Load(0.0, 0.4), Load(0.0, 2.0)], bounds) == 4
    assert enough([Load(0.0, 50.0)], bounds) == 10
    # A hot key alone is above the goal: subtasks until it is nine tenths of the busiest one's load.
    assert enough([Load(0.9, 0.4)], bounds) == 4


def test_a_hot_key_is_what_one_subtask_gets_beyond_its_part() -> None:
    assert hot_share([(30.0, 30.0, 30.0)]) == 0.0
    assert hot_share([(60.0, 20.0, 20.0)]) == pytest.approx(0.4)
    assert hot_share([(100.0,)]) == 0.0
    assert hot_share([(0.0, 0.0)]) == 0.0


# --- what decides nothing ----------------------------------------------------------------------


def _fresh_and_growing() -> Job:
    """A job that would grow with one more window."""
    job = Job(_plan())
    assert job.windows(GROW_WINDOWS - 1, 10_000, WINDOW_MS, held_ms=WINDOW_MS // 2) is None
    job.passes(10_000, WINDOW_MS, held_ms=WINDOW_MS // 2)
    return job


def test_counters_that_are_old_or_missing_or_began_anew_decide_nothing() -> None:
    job = _fresh_and_growing()
    known = job.counted[ChainId("work-0")]
    old = SubtaskCounters(MonotonicMs(job.now_ms - STALE_MS - 1), known.rows_in, {}, known.busy_ms)
    assert job.look(work_0=old) is None
    assert "too little is known of chain 'work-0'" in job.machine.status().sentence
    job = _fresh_and_growing()
    assert job.look(work_0=None) is None
    job = _fresh_and_growing()
    assert job.look(work_0=SubtaskCounters(MonotonicMs(job.now_ms), 5, {}, 5)) is None
    job = _fresh_and_growing()
    assert job.look() is not None


def test_after_a_gap_all_windows_are_needed_anew() -> None:
    job = _fresh_and_growing()
    job.look(read_0=None)
    job.look()
    assert job.windows(GROW_WINDOWS - 1, 10_000, WINDOW_MS, held_ms=WINDOW_MS // 2) is None
    assert job.windows(1, 10_000, WINDOW_MS, held_ms=WINDOW_MS // 2) is not None


def test_off_decides_nothing_and_observe_only_says_what_it_would_do() -> None:
    off = Job(_plan(), mode=AutoscaleMode.OFF)
    assert off.windows(20, 10_000, WINDOW_MS, held_ms=WINDOW_MS // 2) is None
    assert off.machine.status().sentence == "it is off"
    observe = Job(_plan(), mode=AutoscaleMode.OBSERVE)
    decision = observe.windows(GROW_WINDOWS, 10_000, WINDOW_MS, held_ms=WINDOW_MS // 2)
    assert decision is not None
    assert not decision.act


def test_while_and_after_somebody_rescales_nothing_is_decided_for_a_cooldown() -> None:
    job = _fresh_and_growing()
    job.machine.hold(MonotonicMs(job.now_ms))
    job.look()
    until_ms = job.now_ms + COOLDOWN_MS
    assert job.windows(COOLDOWN_MS // WINDOW_MS, 10_000, WINDOW_MS) is None
    assert job.decisions == []
    assert job.machine.status().sentence == "the next change may follow in 5 s"
    assert _wanted(job.windows(1, 10_000, WINDOW_MS)) == 2
    assert job.now_ms >= until_ms
    job = _fresh_and_growing()
    job.machine.hold(MonotonicMs(job.now_ms), cooldowns=3)
    assert job.windows(3 * COOLDOWN_MS // WINDOW_MS, 10_000, WINDOW_MS) is None
    assert _wanted(job.windows(1, 10_000, WINDOW_MS)) == 2
    off = Autoscaler(AutoscaleMode.OFF, COOLDOWN_MS)
    off.hold(MonotonicMs(0))
    assert off.status().sentence == "it is off"


def test_a_change_that_somebody_else_made_begins_a_cooldown_and_a_restart_does_not() -> None:
    job = Job(_plan(), cooldown_ms=20 * WINDOW_MS)
    job.begin(_plan(2))
    assert job.windows(19, 10_000, WINDOW_MS, held_ms=WINDOW_MS // 2) is None
    assert "the next change may follow in" in job.machine.status().sentence
    assert job.windows(1, 10_000, WINDOW_MS, held_ms=WINDOW_MS // 2) is not None
    job = Job(_plan(), cooldown_ms=20 * WINDOW_MS)
    job.begin(_plan())
    assert job.windows(GROW_WINDOWS, 10_000, WINDOW_MS, held_ms=WINDOW_MS // 2) is not None


# --- whatever is counted -----------------------------------------------------------------------


def _random_job(
    steps: list[tuple[int, int, int, bool]], bounds: ScaleBounds, scale: int = 1
) -> Iterator[tuple[int, ScaleDecision | None]]:
    """Windows of random counters; every decision is carried out. Times, and what was decided."""
    job = Job(_plan(bounds.minimum, bounds=bounds))
    for rows, busy_ms, held_ms, whole in steps:
        job.passes(rows * 64 * scale, busy_ms, held_ms=held_ms)
        decision = job.look() if whole else job.look(work_0=None)
        yield job.now_ms, decision
        if decision is not None:
            job.begin(_plan(_wanted(decision), bounds=bounds))


STEPS = st.lists(
    st.tuples(
        st.integers(0, 200),
        st.integers(0, WINDOW_MS),
        st.integers(0, WINDOW_MS),
        st.integers(0, 9).map(bool),
    ),
    min_size=10,
    max_size=60,
)
BOUNDS = st.tuples(st.integers(1, 6), st.integers(0, 12), st.floats(0.3, 0.95)).map(
    lambda each: ScaleBounds(each[0], each[0] + each[1], each[2])
)


@given(STEPS, BOUNDS)
def test_no_decision_leaves_the_bounds_or_falls_into_a_cooldown(
    steps: list[tuple[int, int, int, bool]], bounds: ScaleBounds
) -> None:
    last_ms = None
    for now_ms, decision in _random_job(steps, bounds):
        if decision is None:
            continue
        assert bounds.minimum <= _wanted(decision) <= bounds.maximum
        assert last_ms is None or now_ms - last_ms >= COOLDOWN_MS
        last_ms = now_ms


@given(STEPS, BOUNDS, st.sampled_from([2, 16, 1024]))
def test_another_unit_of_rows_changes_no_decision(
    steps: list[tuple[int, int, int, bool]], bounds: ScaleBounds, scale: int
) -> None:
    plain, scaled = (
        [None if d is None else d.parallelism for _, d in _random_job(steps, bounds, by)]
        for by in (1, scale)
    )
    assert plain == scaled


@given(STEPS)
def test_no_decision_follows_a_window_that_is_not_whole(
    steps: list[tuple[int, int, int, bool]],
) -> None:
    whole = 0
    for (_, _, _, seen), (_, decision) in zip(
        steps, _random_job(steps, ScaleBounds(1, 16)), strict=False
    ):
        assert decision is None or whole >= GROW_WINDOWS - 1
        whole = whole + 1 if seen and decision is None else 0
