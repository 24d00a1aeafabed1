"""The thread that calls a job's log: in order, answered by events, never in the loop's way (M1)."""

import queue
import threading
from collections.abc import Callable, Mapping

import pytest

from arkflow_kernel.checkpoint_ports import CheckpointLog
from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.errors import FencedError, StoreError
from arkflow_kernel.ids import CheckpointId, Generation, RequestToken
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.protocol import (
    AppendRecord,
    Claimed,
    ClaimGeneration,
    CollectGarbage,
    CoordinatorEvent,
    LogFailed,
    RecordAppended,
    SavepointSaved,
    SaveSavepoint,
)
from arkflow_kernel.snapshot import CheckpointRecord, Claim, RestoreChoice
from arkflow_ray.runtime.clock import SystemClock
from arkflow_ray.runtime.log_thread import LogThread

DEADLINE_S = 30
RECORD = CheckpointRecord(Generation(2), CheckpointId(7), RoundKind.PERIODIC, ())


class ScriptedLog:
    """A log that does what it is told; `gate` holds an append until the log is closed."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.failing: Exception | None = None
        self.gate: threading.Event | None = None
        self.appending = threading.Event()

    def claim(
        self,
        choice: RestoreChoice,
        unusable: Mapping[CheckpointId, str],
        graph: ExecutionGraph | None = None,
    ) -> Claim:
        self._called("claim")
        return Claim(Generation(2))

    def append(self, record: CheckpointRecord) -> None:
        self._called("append")
        self.appending.set()
        if self.gate is not None:
            assert self.gate.wait(DEADLINE_S)
            raise StoreError("closed")

    def save(self, record: CheckpointRecord) -> str:
        self._called("save")
        return "file:///savepoint"

    def collect(self) -> None:
        self._called("collect")

    def close(self) -> None:
        self.calls.append("close")
        if self.gate is not None:
            self.gate.set()

    def _called(self, verb: str) -> None:
        self.calls.append(verb)
        if self.failing is not None:
            raise self.failing


class Started:
    """A log thread, and what it answers."""

    def __init__(self, log: Callable[[], CheckpointLog]) -> None:
        self._answers: queue.Queue[CoordinatorEvent | BaseException] = queue.Queue()
        self.thread = LogThread(log, SystemClock(), self._answers.put, self._answers.put)

    def answer(self) -> CoordinatorEvent | BaseException:
        return self._answers.get(timeout=DEADLINE_S)

    @property
    def silent(self) -> bool:
        return self._answers.empty()

    def close(self) -> None:
        self.thread.close()
        assert self.thread.join(DEADLINE_S)


def claim(token: int) -> ClaimGeneration:
    return ClaimGeneration(RequestToken(token), RestoreChoice())


def test_commands_are_worked_off_in_order_and_each_request_is_answered_once() -> None:
    log = ScriptedLog()
    started = Started(lambda: log)
    started.thread.put(claim(1))
    started.thread.put(AppendRecord(RequestToken(2), RECORD))
    started.thread.put(CollectGarbage())
    started.thread.put(SaveSavepoint(RequestToken(3), RECORD))
    claimed, appended, saved = (started.answer() for _ in range(3))
    assert isinstance(claimed, Claimed)
    assert (claimed.token, claimed.claim.generation) == (1, 2)
    assert isinstance(appended, RecordAppended)
    assert appended.token == 2
    assert isinstance(saved, SavepointSaved)
    assert (saved.token, saved.url) == (3, "file:///savepoint")
    started.close()
    assert log.calls == ["claim", "append", "collect", "save", "close"]
    assert started.silent


def test_what_the_log_refuses_is_an_answer() -> None:
    """D7: also that a later claim was made."""
    log = ScriptedLog()
    started = Started(lambda: log)
    started.thread.put(claim(1))
    assert isinstance(started.answer(), Claimed)
    log.failing = FencedError("fenced by generation 3")
    started.thread.put(AppendRecord(RequestToken(2), RECORD))
    failed = started.answer()
    assert isinstance(failed, LogFailed)
    assert (failed.token, failed.error) == (2, log.failing)
    started.close()


def test_a_store_that_cannot_be_opened_fails_the_claim_and_is_tried_again_by_the_next() -> None:
    log = ScriptedLog()
    tries: list[int] = []

    def opening() -> CheckpointLog:
        tries.append(1)
        if len(tries) == 1:
            raise StoreError("no such bucket")
        return log

    started = Started(opening)
    started.thread.put(claim(1))
    refused = started.answer()
    assert isinstance(refused, LogFailed)
    assert refused.error.message == "no such bucket"
    started.thread.put(claim(2))
    assert isinstance(started.answer(), Claimed)
    started.close()


def test_garbage_that_cannot_be_collected_is_no_failure_of_the_job() -> None:
    """M5."""
    log = ScriptedLog()
    started = Started(lambda: log)
    started.thread.put(claim(1))
    assert isinstance(started.answer(), Claimed)
    log.failing = StoreError("busy")
    started.thread.put(CollectGarbage())
    started.thread.put(claim(2))
    assert isinstance(started.answer(), LogFailed)
    assert log.calls == ["claim", "collect", "claim"]
    started.close()


def test_closing_ends_an_append_that_the_store_keeps_waiting_and_nothing_is_answered() -> None:
    log = ScriptedLog()
    log.gate = threading.Event()
    started = Started(lambda: log)
    started.thread.put(AppendRecord(RequestToken(1), RECORD))
    assert log.appending.wait(DEADLINE_S)
    started.close()
    assert started.silent
    assert log.calls == ["append", "close"]


def test_a_log_that_is_opened_while_the_job_ends_is_closed() -> None:
    log, opening, open_now = ScriptedLog(), threading.Event(), threading.Event()

    def slow() -> CheckpointLog:
        opening.set()
        assert open_now.wait(DEADLINE_S)
        return log

    started = Started(slow)
    started.thread.put(claim(1))
    assert opening.wait(DEADLINE_S)
    started.thread.close()
    open_now.set()
    assert started.thread.join(DEADLINE_S)
    assert log.calls == ["close"]
    assert started.silent


def test_a_fault_of_the_log_is_handed_over_and_not_waited_for() -> None:
    log = ScriptedLog()
    log.failing = TypeError("a bug")
    started = Started(lambda: log)
    started.thread.put(claim(1))
    with pytest.raises(TypeError, match="a bug"):
        raise _raised(started.answer())
    started.close()


def _raised(answer: CoordinatorEvent | BaseException) -> BaseException:
    assert isinstance(answer, BaseException), answer
    return answer
