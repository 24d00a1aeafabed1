"""A job of very many chains: what its coordinator does grows as their number, no faster (K8).

Work is counted in steps of the interpreter, which are the same on every machine.
"""

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from arkflow_kernel.ids import CheckpointId
from arkflow_kernel.protocol import JobState, SendControl
from arkflow_kernel.testing.many_chains import ManyChains, many_chains, restored

FEW, MANY = 100, 400

SLACK = 1.25
"""Four times as many chains may cost this much more than four times the work."""

CHAINS = 1_000


def _steps(work: Callable[[], object]) -> int:
    """How many instructions of Python the work takes."""
    steps = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal steps
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        steps += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return steps


def _running(count: int) -> ManyChains:
    job = ManyChains(many_chains(count))
    job.deploy()
    assert job.machine.status().state is JobState.RUNNING
    job.taken()
    return job


def _deployment(count: int) -> Callable[[], object]:
    return ManyChains(many_chains(count)).deploy


def _restored_deployment(count: int) -> Callable[[], object]:
    before = _running(count)
    found = restored(before.play(before.script(1)))
    job = ManyChains(many_chains(count))
    return lambda: job.deploy(found)


def _heartbeats(count: int) -> Callable[[], object]:
    job = _running(count)
    reports = list(job.reports())
    return lambda: job.heartbeats(reports)


def _round(count: int) -> Callable[[], object]:
    job = _running(count)
    script = job.script(1)
    return lambda: job.play(script)


@pytest.mark.slow
@pytest.mark.parametrize("work", [_deployment, _restored_deployment, _heartbeats, _round])
def test_work_grows_with_the_number_of_chains_and_no_faster(
    work: Callable[[int], Callable[[], object]],
) -> None:
    few, many = (_steps(work(count)) for count in (FEW, MANY))
    assert many <= MANY / FEW * few * SLACK


def test_the_last_answer_of_a_round_costs_no_more_than_the_first() -> None:
    job = _running(MANY)
    job.open_round()
    reports = list(job.reports(CheckpointId(1)))
    steps = [_steps(lambda each=each: job.take(each)) for each in reports[:-1]]  # type: ignore[misc]
    assert max(steps[-10:]) <= 1.1 * max(steps[:10])


def test_a_round_of_a_thousand_chains_tells_each_chain_once_a_report_and_twice_besides() -> None:
    job = _running(CHAINS)
    job.events = 0
    job.play(job.script(1))
    # Heartbeats before the round, with the answer, with the publication; the opening, the record.
    assert job.events == 3 * CHAINS + 2
    told = Counter(type(command) for command in job.taken())
    status = job.machine.status().checkpoints
    assert status is not None
    assert status.last == 1
    assert told[SendControl] == 3 * CHAINS  # since the record was asked for; see the next line


def test_control_is_sent_once_for_each_report_and_once_for_each_change_to_each_chain() -> None:
    job = _running(CHAINS)
    job.open_round()
    assert Counter(type(c) for c in job.taken())[SendControl] == 2 * CHAINS
    append = job.recorded(job.reports(CheckpointId(1)))
    assert Counter(type(c) for c in job.taken())[SendControl] == CHAINS
    job.completed(append, job.reports(CheckpointId(1), CheckpointId(1)))
    assert Counter(type(c) for c in job.taken())[SendControl] == 2 * CHAINS
