"""Carries out the requests of one job's door. It never waits: an errand is looked at again.

`stop` and `cancel` are done when the job is over, `savepoint` when the coordinator has told its URL
or its error (X4), `rescale` when the new plan is at work, or the old one again (K2). What was asked
for stands, also if the caller goes away.
"""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from arkflow_kernel.errors import ArkflowError, ConfigError, RescaleError
from arkflow_kernel.ids import WallMs
from arkflow_kernel.protocol import OutcomeKind
from arkflow_ray.door.job_status import progress_text, status_values
from arkflow_ray.door.messages import BadRequestError, Request
from arkflow_ray.observability.rescale_story import rescale_text, total_ms
from arkflow_ray.runtime.rescaling import Rescaling
from arkflow_ray.runtime.running import RunningJob


@dataclass(frozen=True, slots=True)
class Answer:
    """The end of an errand: exactly one of the two."""

    result: dict[str, Any] | None = None
    error: tuple[str, str] | None = None
    """Type and message."""


@dataclass(frozen=True, slots=True)
class Progress:
    """An errand that is not done; what it waits for."""

    text: str | None = None


class Errand(Protocol):
    """What a caller waits for."""

    def look(self) -> Answer | Progress:
        """How it stands now. Returns at once."""
        ...


class Desk:
    """Takes the requests for one job."""

    def __init__(self, running: RunningJob) -> None:
        self.job = str(running.job)
        self._running = running
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")

    def take(self, request: Request) -> Errand:
        """Begin what is asked for. Raises `BadRequestError` if this job cannot do it."""
        if request.command == "status":
            return _Told(Answer(self._status()))
        name = request.savepoint
        if name is not None:
            self._check_savepoint(name)
        if self._running.outcome is not None:
            raise BadRequestError(f"job '{self.job}' is over")
        if request.command == "stop":
            self._running.stop(drain=request.drain, savepoint=name)
            return _Stop(self._running, name)
        if request.command == "cancel":
            self._running.cancel()
            return _Cancel(self._running)
        if request.parallelism is not None:
            return self._rescale(request.parallelism, wait=request.wait)
        assert name is not None, "parse_request requires it"
        self._running.savepoint(name)
        return _Savepoint(self._running, name)

    def _rescale(self, parallelism: Mapping[str, int], *, wait: bool) -> Errand:
        try:
            asked = self._running.rescale(parallelism)
        except ConfigError as error:
            raise BadRequestError(f"job '{self.job}' is not rescaled: {error.message}") from error
        except RescaleError as error:
            reason = "it " + error.message.removeprefix(f"job '{self.job}' ")
            return _Told(Answer(error=(type(error).__name__, reason)))
        errand = _Rescale(self._running, asked)
        return errand if wait and asked.changed else _Told(Answer(errand.begun()))

    def _status(self) -> dict[str, Any]:
        now_ms = WallMs(time.time_ns() // 1_000_000)
        return status_values(self._running, self._started_at, now_ms)

    def _check_savepoint(self, name: str) -> None:
        plan = self._running.graph.checkpoint
        if plan is None:
            raise BadRequestError(
                f"job '{self.job}' makes no checkpoints: it keeps nothing and has no `checkpoint:` "
                "block"
            )
        if plan.ephemeral:
            raise BadRequestError(
                f"the checkpoints of job '{self.job}' end with this run: give it a `checkpoint:` "
                "block with an `object_store_uri`"
            )
        told = self._running.status().checkpoints
        if told is not None and name in told.savepoints:
            raise BadRequestError(f"savepoint '{name}' was asked for before; choose another name")


class _Told:
    """An answer that was there at once."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def look(self) -> Answer | Progress:
        return self._answer


class _Savepoint:
    """Waits until a savepoint is told."""

    def __init__(self, running: RunningJob, name: str) -> None:
        self._running = running
        self._name = name

    def look(self) -> Answer | Progress:
        outcome = self._running.outcome  # before the status, which is final once this is set
        told = _told(self._running, self._name)
        if isinstance(told, ArkflowError):
            return Answer(error=(type(told).__name__, told.message))
        if told is not None:
            result = {"job": str(self._running.job), "savepoint": self._name, "url": told}
            return Answer(result)
        if outcome is not None:
            text = f"it {_has_ended(outcome.kind)} before savepoint '{self._name}' was complete"
            return Answer(error=("RestoreError", text))
        return Progress(progress_text(self._running.status()))


class _Cancel:
    """Waits until the job is over, however it ends."""

    def __init__(self, running: RunningJob) -> None:
        self._running = running

    def look(self) -> Answer | Progress:
        outcome = self._running.outcome  # before the status, which is final once this is set
        status = self._running.status()
        if outcome is None:
            return Progress(progress_text(status))
        if outcome.error is not None:
            return Answer(error=(type(outcome.error).__name__, outcome.error.message))
        checkpoint = None if status.checkpoints is None else int(status.checkpoints.last) or None
        result = {"outcome": outcome.kind.value, "checkpoint": checkpoint}
        return Answer({"job": str(self._running.job)} | result)


class _Stop(_Cancel):
    """Waits until the job is over in order, and its savepoint told if it was to make one."""

    def __init__(self, running: RunningJob, savepoint: str | None) -> None:
        super().__init__(running)
        self._savepoint = savepoint

    def look(self) -> Answer | Progress:
        over = super().look()
        outcome = self._running.outcome
        if not isinstance(over, Answer) or over.result is None or outcome is None:
            return over
        if outcome.kind not in (OutcomeKind.FINISHED, OutcomeKind.STOPPED):
            text = f"it was {outcome.kind.value}, not stopped in order"
            return Answer(error=("ComponentError", text))
        if self._savepoint is None:
            return over
        url = _told(self._running, self._savepoint)
        if not isinstance(url, str):
            reason = url.message if isinstance(url, ArkflowError) else "it was over before"
            text = f"it {_has_ended(outcome.kind)}, but there is no savepoint: {reason}"
            return Answer(error=("StoreError", text))
        return Answer(over.result | {"savepoint": self._savepoint, "url": url})


class _Rescale:
    """Waits until a rescale is over (K2)."""

    def __init__(self, running: RunningJob, asked: Rescaling) -> None:
        self._running = running
        self._asked = asked

    def begun(self) -> dict[str, Any]:
        """What is told before its end."""
        return {
            "job": str(self._running.job),
            "outcome": "accepted" if self._asked.changed else "unchanged",
            "changed": {name: list(both) for name, both in self._asked.changed.items()},
            "notes": list(self._asked.notes),
        }

    def look(self) -> Answer | Progress:
        outcome = self._running.outcome  # before the status, which is final once this is set
        status = self._running.status()
        end = self._asked.end(status, outcome)
        if end is None:
            told = self._asked.told(status)
            text = "asked for" if told is None else rescale_text(told)
            stalled = f"; {progress_text(status)}" if status.waits else ""
            return Progress(text + stalled)
        if end.error is not None:
            return Answer(error=(RescaleError.__name__, end.error))
        phases = {"phases": asdict(end.phases), "duration_ms": total_ms(end.phases)}
        return Answer(self.begun() | {"outcome": "done"} | phases)


def _has_ended(kind: OutcomeKind) -> str:
    passive = kind in (OutcomeKind.STOPPED, OutcomeKind.CANCELLED)
    return f"was {kind.value}" if passive else f"has {kind.value}"


def _told(running: RunningJob, name: str) -> str | ArkflowError | None:
    checkpoints = running.status().checkpoints
    return None if checkpoints is None else checkpoints.savepoints.get(name)


__all__ = ["Answer", "Desk", "Errand", "Progress"]
