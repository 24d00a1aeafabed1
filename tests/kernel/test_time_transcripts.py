"""Golden transcripts of time in a chain: its place behind rows, ticks, idleness (W1, W2, W11, N5).

`ARKFLOW_REWRITE=1 pytest tests/kernel/test_time_transcripts.py` writes them anew; read the diff.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from arkflow_kernel.ids import MonotonicMs, OperatorId, SplitId
from arkflow_kernel.plan import (
    ChainPlan,
    ComponentPlan,
    Mode,
    OperatorPlan,
    TimePlan,
    WindowKind,
    WindowPlan,
)
from arkflow_kernel.ports import NothingYet, SourceEnded
from arkflow_kernel.testing.hand_driven_chain import HandDrivenChain
from arkflow_kernel.testing.plans import chain_plan, channel_plan
from arkflow_kernel.testing.transcript import Transcript
from arkflow_kernel.testing.virtual_clock import VirtualClock

A = SplitId("a")
EDGE = channel_plan("rows", "source-0", "window-0")


def _source(idle_timeout_ms: int | None = None) -> ChainPlan:
    plan = chain_plan("source-0", sinks=(), channels=(EDGE,), mode=Mode.CHECKPOINT)
    assert plan.source is not None
    time = TimePlan("ts", bound_ms=10, idle_timeout_ms=idle_timeout_ms)
    return replace(plan, source=replace(plan.source, time=time))


def _window() -> ChainPlan:
    plan = chain_plan("window-0", inputs=(EDGE,), mode=Mode.CHECKPOINT)
    shape = WindowPlan(WindowKind.TUMBLING, "ts", size_ms=40)
    operator = OperatorPlan(OperatorId("w"), "window", ComponentPlan("window", {}), window=shape)
    return replace(plan, operators=(operator,))


def time_through_a_window() -> str:
    log, clock = Transcript(), VirtualClock()
    source = HandDrivenChain(_source(), splits=(A,), log=log, clock=clock)
    window = HandDrivenChain(_window(), log=log, clock=clock)
    log.note("what is restored may be due: a chain with a window begins with a tick")
    source.control()
    window.control()
    window.done(1)
    window.deliver(source)
    log.note("a batch raises the watermark of its split, which leaves behind it")
    source.read(1, 3, max_ms=60)
    source.done(2, 3, output="rows[0-0]")
    window.deliver(source)
    window.deliver(source)
    log.note("the rows are in the window before it is told; what it fires leaves in slices")
    window.done(2)
    window.done(3, 2, more=True)
    window.done(3, 1, timer=500)
    log.note("a round: the newest watermark is in front of the barrier, and in the cut")
    source.read(3, 1, max_ms=75)
    source.control(round_id=1)
    source.done(4, 1, output="rows[0-0]")
    source.credit(window)
    source.done(6)
    source.uploaded(7)
    for _ in range(3):
        window.deliver(source)
    for token in (5, 6, 7):
        window.done(token, timer=500)
    log.note("the moment that the window asked for")
    window.tick(500)
    window.done(8, 1)
    log.note("the end of the data: behind its last word on time, and nothing more is said of it")
    source.read(5, SourceEnded())
    source.done(8)
    window.deliver(source)
    window.done(9, 2)
    return log.text()


def time_of_an_idle_source() -> str:
    chain = HandDrivenChain(_source(idle_timeout_ms=100), splits=(A,))
    chain.control()
    chain.read(1, 2, max_ms=60)
    chain.done(2, 2, output="rows[0-0]")
    chain.note("the source says that nothing comes before 5,000 ms")
    chain.read(3, NothingYet(MonotonicMs(5_000)))
    chain.tick(99)
    chain.tick(1)
    chain.note("rows end the idleness: the watermark is said before them, though it has not risen")
    chain.tick(4_900)
    chain.read(4, 1, max_ms=60)
    chain.done(5, 1, output="rows[0-0]")
    return chain.log.text()


SCENARIOS: list[Callable[[], str]] = [time_through_a_window, time_of_an_idle_source]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_scenario_reads_as_its_transcript(
    scenario: Callable[[], str], golden: Callable[[str, str], None]
) -> None:
    golden(scenario.__name__, scenario())
