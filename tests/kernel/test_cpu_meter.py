"""The token bucket of a chain's CPU: never more than its share for long, never a wait for ever."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.cpu_meter import CPU_BURST_NS, CpuMeter

MS = 1_000_000
SHARES = st.integers(min_value=1, max_value=4_000)
ITEMS = st.lists(
    st.tuples(
        st.integers(min_value=0, max_value=400 * MS),  # the clock moves on by so much before it
        st.integers(min_value=0, max_value=300 * MS),  # what it costs; it takes at least as long
        st.integers(min_value=0, max_value=100 * MS),  # and so much longer
    ),
    min_size=1,
    max_size=40,
)
Ran = list[tuple[int, int]]
"""When items began, and what each cost."""


def _run(millicores: int, items: list[tuple[int, int, int]]) -> Ran:
    """One lane works items off: each waits as long as it is told, and no longer."""
    now = 0
    meter = CpuMeter(millicores, now)
    ran: Ran = []
    for pause, cost, more in items:
        now += pause
        now += meter.wait_ns(now)
        assert meter.wait_ns(now) == 0, "after the wait that was told, it may begin"
        ran.append((now, cost))
        now += cost + more
        meter.used(now, cost)
    return ran


@given(SHARES, ITEMS)
def test_over_any_window_items_cost_the_share_the_burst_and_one_item_at_most(
    millicores: int, items: list[tuple[int, int, int]]
) -> None:
    """R2."""
    ran = _run(millicores, items)
    for first in range(len(ran)):
        used = 0
        for begun, cost in ran[first:]:
            used += cost
            window = begun - ran[first][0]
            assert (used - cost) * 1000 <= window * millicores + CPU_BURST_NS * 1000


@given(SHARES, ITEMS)
def test_a_wait_is_no_longer_than_what_is_owed_takes(
    millicores: int, items: list[tuple[int, int, int]]
) -> None:
    """R2."""
    now, meter, owed = 0, CpuMeter(millicores, 0), 0
    for pause, cost, _ in items:
        now += pause
        wait = meter.wait_ns(now)
        assert wait <= -(-owed * 1000 // millicores)
        meter.used(now, cost)
        owed += cost


@given(SHARES)
def test_a_lane_that_always_has_work_gets_its_share(millicores: int) -> None:
    """R2: it is held to its budget, and it gets it."""
    cost = 5 * MS
    ran = _run(millicores, [(0, cost, 0)] * 400)
    span = max(1, ran[-1][0])
    used = cost * (len(ran) - 1)
    assert used * 1000 >= min(millicores, 1000) * span - cost * 1000


def test_an_item_that_is_owed_for_delays_the_next_one_by_what_it_took_too_much() -> None:
    meter = CpuMeter(250, 0)
    meter.used(0, CPU_BURST_NS + 50 * MS)
    assert meter.wait_ns(0) == 200 * MS
    assert meter.wait_ns(150 * MS) == 50 * MS
    assert meter.wait_ns(200 * MS) == 0


def test_what_is_saved_up_is_bounded() -> None:
    meter = CpuMeter(1000, 0)
    hour = 3_600_000 * MS
    meter.used(hour, CPU_BURST_NS)
    assert meter.wait_ns(hour) == 0
    meter.used(hour, MS)
    assert meter.wait_ns(hour) == MS


def test_a_clock_that_stands_still_or_goes_back_gives_nothing() -> None:
    meter = CpuMeter(1000, 500)
    meter.used(500, CPU_BURST_NS + 10)
    assert meter.wait_ns(100) == 10
    assert meter.wait_ns(505) == 5


@pytest.mark.parametrize(("millicores", "burst"), [(0, 1), (-5, 1), (1, 0)])
def test_a_meter_without_budget_is_refused(millicores: int, burst: int) -> None:
    with pytest.raises(ValueError, match="without budget"):
        CpuMeter(millicores, 0, burst)
