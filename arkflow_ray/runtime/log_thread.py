"""The one thread of a coordinator that calls its job's log, in the order of its commands (M1, M4).

The loop of the coordinator never waits for the store: it puts commands, and their answers come as
events. The log is opened by the first command, in the thread too, because that may ask the store.
"""

import logging
import os
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable

from arkflow_kernel.checkpoint_ports import CheckpointLog, LogFiles
from arkflow_kernel.errors import ArkflowError, StoreError
from arkflow_kernel.ids import WallMs
from arkflow_kernel.log_work import LogCommand, perform_log
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.ports import Clock
from arkflow_kernel.protocol import CollectGarbage, CoordinatorEvent, LogFailed

NONCE_BYTES = 16

_log = logging.getLogger("arkflow_ray.log")


class LogThread:
    """Works commands off one by one. `answer` and `fault` are called in the thread.

    `fault` gets what no rule expects: then nothing more is answered.
    """

    def __init__(
        self,
        open_log: Callable[[], CheckpointLog],
        clock: Clock,
        answer: Callable[[CoordinatorEvent], None],
        fault: Callable[[BaseException], None],
    ) -> None:
        self._open = open_log
        self._clock = clock
        self._answer = answer
        self._fault = fault
        self._log: CheckpointLog | None = None
        self._closed = False
        self._opening = threading.Lock()
        self._commands: queue.SimpleQueue[LogCommand | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="job-log", daemon=True)
        self._thread.start()

    def put(self, command: LogCommand) -> None:
        """Queue a command; its answer, if it has one, comes as an event."""
        self._commands.put(command)

    def close(self) -> None:
        """Let a call that blocks end; nothing is answered any more. May be called again."""
        with self._opening:
            self._closed = True
            log = self._log
        self._commands.put(None)
        if log is not None:
            log.close()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the thread after `close`; False if it did not end in time."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._closed and (command := self._commands.get()) is not None:
            try:
                event = self._perform(command)
            except BaseException as error:  # noqa: BLE001 - the coordinator's loop raises it
                self._fault(error)
                return
            if event is not None and not self._closed:
                self._answer(event)

    def _perform(self, command: LogCommand) -> CoordinatorEvent | None:
        if isinstance(command, CollectGarbage):
            self._collect(command)
            return None
        try:
            log = self._opened()
        except ArkflowError as error:
            return LogFailed(self._clock.moment(), command.token, error)
        return perform_log(log, command, self._clock)

    def _collect(self, command: CollectGarbage) -> None:
        """Garbage waits for the next collection if the store does not take it away now (M5)."""
        if self._log is None:
            return
        try:
            perform_log(self._log, command, self._clock)
        except ArkflowError as error:
            _log.warning("old checkpoints could not be cleared away: %s", error)

    def _opened(self) -> CheckpointLog:
        if self._log is None:
            log = self._open()
            with self._opening:
                if self._closed:
                    log.close()
                    raise StoreError("the job is over")
                self._log = log
        return self._log


def open_job_log(
    graph: ExecutionGraph, root: str, *, continued: bool = False, run: str = ""
) -> CheckpointLog:
    """The log of a job below a checkpoint root. Raises `StoreError` if that is refused.

    `continued`: another coordinator of this run, which `run` names, has made a claim.
    """
    from arkflow_kernel.job_log import JobLog
    from arkflow_ray.checkpoint.open import open_files

    return JobLog(
        graph,
        open_files(root, graph.job),
        nonce=secrets.token_hex(NONCE_BYTES),
        coordinator=f"{socket.gethostname()}:{os.getpid()}",
        wall_ms=lambda: WallMs(time.time_ns() // 1_000_000),
        url=f"{root.rstrip('/')}/{graph.job}",
        open_files=_open_savepoint,
        continued=continued,
        run=run,
    )


def _open_savepoint(url: str) -> LogFiles:
    """The files of a savepoint that lies outside of the job's folder."""
    from arkflow_ray.checkpoint.open import open_files

    root, _, name = url.rstrip("/").rpartition("/")
    return open_files(root, name)


__all__ = ["LogThread", "open_job_log"]
