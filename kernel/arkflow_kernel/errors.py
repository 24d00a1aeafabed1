"""The closed set of errors of the kernel.

Every error says what failed, where, and what to do, and survives pickling (Ray re-raises it in
another process). Expected trouble (an old generation, a duplicate, a late row) is a counted
result, never one of these. Messages never hold resolved secrets (M8).
"""

from dataclasses import dataclass
from typing import Any


class ArkflowError(Exception):
    """Base of every error that a user may see. Subclasses pickle by their fields."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), dict(self.__dict__)))


def _rebuild(kind: type[ArkflowError], fields: dict[str, Any]) -> ArkflowError:
    error = kind.__new__(kind)
    Exception.__init__(error, fields["message"])
    error.__dict__.update(fields)
    return error


@dataclass(frozen=True, slots=True)
class Issue:
    """One mistake in a job.

    `path` is the place in the configuration (`jobs[0].operators[2].kind`), relative to the part
    that was checked; `message` says what is wrong and what to do.
    """

    path: str
    message: str
    warning: bool = False


class ConfigError(ArkflowError):
    """The configuration is wrong. Holds every mistake found, not only the first."""

    def __init__(self, issues: list[Issue]) -> None:
        super().__init__(
            "\n".join(f"{i.path}: {i.message}" if i.path else i.message for i in issues)
        )
        self.issues = list(issues)


class ProcessingError(ArkflowError):
    """An operator failed on a batch. Counts for deterministic failures (D3)."""

    def __init__(
        self, operator: str, cause: str, *, error_class: str = "", where: str = "", row: str = ""
    ) -> None:
        parts = [f"operator '{operator}' failed: {cause}"]
        if where:
            parts.append(f"at {where}")
        if row:
            parts.append(f"first row: {row}")
        super().__init__("; ".join(parts))
        self.operator = operator
        self.cause = cause
        self.error_class = error_class
        self.where = where
        self.row = row


class OperatorTimeoutError(ProcessingError):
    """A lane item was in an operator for longer than its time-out (T1b)."""

    def __init__(self, operator: str, timeout_ms: int, *, where: str = "") -> None:
        super().__init__(
            operator,
            f"no result within {timeout_ms} ms; raise its `timeout_ms` or make it faster",
            error_class="OperatorTimeoutError",
            where=where,
        )
        self.timeout_ms = timeout_ms


class BadRowError(ArkflowError):
    """A row could not be decoded and no `error_output` takes it.

    `parsed`: it could be decoded, and is bad for another reason.
    """

    def __init__(
        self, operator: str, cause: str, *, where: str, row: str, parsed: bool = False
    ) -> None:
        skip = "" if parsed else ", or the json codec's `on_error: skip` to leave them out"
        super().__init__(
            f"bad row at {where} (operator '{operator}'): {cause}; row: {row}. "
            f"Set `error_output` to keep such rows aside{skip}"
        )
        self.operator = operator
        self.cause = cause
        self.where = where
        self.row = row


class SourceError(ArkflowError):
    """A source cannot open, read or commit."""


class SinkError(ArkflowError):
    """A sink cannot open, write, confirm or close."""


class OutputClosedError(SinkError):
    """Whoever took a sink's rows is gone for good, as the reader of stdout: no attempt heals it."""


class ComponentError(ArkflowError):
    """A component cannot be built or opened for a reason that is neither source nor sink."""


class ActorLostError(ArkflowError):
    """A process of the job died or does not answer."""


class ChannelError(ArkflowError):
    """A channel broke, or its peer broke its rules. The attempt ends; never the root cause (H9)."""


class ResourceError(ArkflowError):
    """The machine or the cluster lacks something that the job needs."""


class MemoryBudgetError(ResourceError):
    """A process of the job took more memory than the job gives it (R2)."""


class ClusterError(ArkflowError):
    """The Ray cluster that the user named cannot be reached."""


class StoreError(ArkflowError):
    """The checkpoint store cannot be reached, refuses, or cannot be trusted (M1, M4)."""


class UnknownOutcomeError(StoreError):
    """A write to the checkpoint store failed, and may have been done all the same (M1)."""


class CorruptObjectError(StoreError):
    """An object of a checkpoint is missing or is not what was written (M2).

    `checkpoint` is the record that lists it, 0 if the reader does not know.
    """

    def __init__(self, message: str, checkpoint: int = 0) -> None:
        super().__init__(message)
        self.checkpoint = checkpoint


class CheckpointError(ArkflowError):
    """Rounds fail: a chain did not answer in time, or too many failed in a row (B5, B6)."""


class RestoreError(ArkflowError):
    """The job must not start so: what is there cannot be restored like this (M2, M3, M6)."""


class RescaleError(ArkflowError):
    """A running job did not get another parallelism; it goes on as it was (K2)."""


class FencedError(ArkflowError):
    """A later claim of the same job was made: this coordinator writes nothing more (M1, D7)."""


class ProtocolError(ArkflowError):
    """A machine was handed an event that its rules exclude: a bug, never a user's mistake.

    `story` holds the machine's last transitions, oldest first.
    """

    def __init__(self, message: str, story: tuple[str, ...] = ()) -> None:
        told = "".join(f"\n  {line}" for line in story)
        super().__init__(f"{message}; last transitions:{told}" if story else message)
        self.story = story


__all__ = [
    "ActorLostError",
    "ArkflowError",
    "BadRowError",
    "ChannelError",
    "CheckpointError",
    "ClusterError",
    "ComponentError",
    "ConfigError",
    "CorruptObjectError",
    "FencedError",
    "Issue",
    "MemoryBudgetError",
    "OperatorTimeoutError",
    "OutputClosedError",
    "ProcessingError",
    "ProtocolError",
    "RescaleError",
    "ResourceError",
    "RestoreError",
    "SinkError",
    "SourceError",
    "StoreError",
    "UnknownOutcomeError",
]
