"""The inline driver's helper thread: one for all calls, a new one behind a call that hangs."""

import gc
import threading
from typing import Any

import pytest

from arkflow_kernel.errors import ComponentError
from arkflow_kernel.ids import MonotonicMs, RequestToken, WallMs
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import RequestFailed
from arkflow_ray.runtime.inline_caller import ThreadCaller

LATE = RequestFailed(
    Moment(MonotonicMs(0), WallMs(0)), RequestToken(1), ComponentError("over its time-out")
)


def never_late() -> None:
    """No operator is overdue."""


def current(caller: ThreadCaller) -> threading.Thread:
    seen: list[threading.Thread] = []

    def work() -> Any:
        seen.append(threading.current_thread())
        return LATE

    assert caller(work, never_late) is LATE
    return seen[0]


def test_all_calls_share_one_thread_that_is_not_the_callers() -> None:
    caller = ThreadCaller()
    first = current(caller)
    assert first is not threading.current_thread()
    assert current(caller) is first


@pytest.mark.parametrize("error", [ValueError("bad"), KeyboardInterrupt(), SystemExit(3)])
def test_what_the_work_raises_is_raised_in_the_caller(error: BaseException) -> None:
    def work() -> Any:
        raise error

    caller = ThreadCaller()
    with pytest.raises(type(error)) as caught:
        caller(work, never_late)
    assert caught.value is error
    assert current(caller).is_alive()


def test_a_call_that_hangs_is_given_up_and_its_late_answer_goes_nowhere() -> None:
    caller, go_on = ThreadCaller(), threading.Event()
    hung: list[threading.Thread] = []

    def hang() -> Any:
        hung.append(threading.current_thread())
        go_on.wait()
        return "late"

    assert caller(hang, lambda: LATE) is LATE
    assert current(caller) is not hung[0]
    go_on.set()
    hung[0].join(5)
    assert not hung[0].is_alive()
    assert caller(lambda: LATE, never_late) is LATE


def test_the_thread_ends_with_its_caller() -> None:
    caller = ThreadCaller()
    thread = current(caller)
    del caller
    gc.collect()
    thread.join(5)
    assert not thread.is_alive()
