"""Keeps the values of secrets out of the errors of components at work (M8).

User code and libraries quote what they were given: a traceback shows a line of the script, a
client its URL. A component whose configuration names secrets is wrapped, and what it raises is
told with the reference, `${secret:NAME}`, in the place of the value. Others are not wrapped.
Not covered: what user code prints, or writes into rows.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Generic, TypeVar

import pyarrow as pa

from arkflow_kernel.bad_rows import Origin
from arkflow_kernel.checkpoint_ports import EpochSink
from arkflow_kernel.errors import (
    ArkflowError,
    ComponentError,
    ConfigError,
    ProcessingError,
    SinkError,
    SourceError,
)
from arkflow_kernel.ids import MonotonicMs, Sequence, SplitId
from arkflow_kernel.ports import (
    Operator,
    OperatorResult,
    ReadResult,
    ReplayKind,
    SinkWriter,
    SourceReader,
    Split,
    SplitPosition,
    WriteReceipt,
)
from arkflow_kernel.protocol import CommitPermit
from arkflow_kernel.snapshot import Epoch, SinkToken
from arkflow_kernel.split_dealing import listed_splits
from arkflow_ray.config.references import Redactor
from arkflow_ray.config.secrets import VARIABLE_PREFIX, secret_environment

_Inner = TypeVar("_Inner", bound=SinkWriter | EpochSink)


class SecretHiding:
    """Hides the secrets that one component's configuration names. `operator` names it in errors."""

    def __init__(self, operator: str, config: Any, secrets: Mapping[str, str]) -> None:
        self.operator = operator
        self._redactor = Redactor()
        found = secret_environment(config, secrets)
        for variable, secret in found.items():
            reference = f"${{secret:{variable.removeprefix(VARIABLE_PREFIX)}}}"
            self._redactor.learn(secret.reveal(), reference)
        self.needed = bool(found)

    @contextmanager
    def errors(self, kind: type[ArkflowError]) -> Iterator[None]:
        """What is raised inside leaves without values: as itself, or as a `kind` if it is foreign.

        The original is not its cause: a printed traceback would show it. Not only an `Exception`:
        a panic of a Rust library derives from `BaseException`.
        """
        try:
            yield
        except KeyboardInterrupt:
            raise
        except ArkflowError as error:
            hidden = self._rewritten(error)
        except BaseException as error:  # noqa: BLE001 - foreign code; becomes a typed error
            hidden = self._typed(error, kind)
        else:
            return
        raise hidden from None

    def _rewritten(self, error: ArkflowError) -> ArkflowError:
        for name, value in list(vars(error).items()):
            if isinstance(value, str):
                setattr(error, name, self._redactor.redact(value))
        if isinstance(error, ConfigError):
            issues = error.issues
            error.issues = [replace(i, message=self._redactor.redact(i.message)) for i in issues]
        error.args = (error.message,)
        error.__cause__ = None
        return error

    def _typed(self, error: BaseException, kind: type[ArkflowError]) -> ArkflowError:
        name = type(error).__name__
        told = f"{name}: {self._redactor.redact(str(error))}"
        if kind is ProcessingError:
            return ProcessingError(self.operator, told, error_class=name)
        return kind(f"'{self.operator}' failed: {told}")


class HidingOperator:
    """An `Operator` behind a `SecretHiding`."""

    def __init__(self, inner: Operator, hiding: SecretHiding) -> None:
        self._inner = inner
        self._hiding = hiding

    def open(self) -> None:
        """See `Operator.open`."""
        with self._hiding.errors(ComponentError):
            self._inner.open()

    def process(self, batch: pa.RecordBatch, origin: Origin) -> OperatorResult:
        """See `Operator.process`."""
        with self._hiding.errors(ProcessingError):
            return self._inner.process(batch, origin)

    def finish(self) -> OperatorResult:
        """See `Operator.finish`."""
        with self._hiding.errors(ProcessingError):
            return self._inner.finish()

    def close(self) -> None:
        """See `Operator.close`."""
        with self._hiding.errors(ComponentError):
            self._inner.close()


class HidingSource:
    """A `SourceReader` behind a `SecretHiding`."""

    def __init__(self, inner: SourceReader, hiding: SecretHiding) -> None:
        self._inner = inner
        self._hiding = hiding

    @property
    def replay(self) -> ReplayKind:
        """As the wrapped reader."""
        return self._inner.replay

    @property
    def commits(self) -> bool:
        """As the wrapped reader."""
        return self._inner.commits

    def list_splits(self, restored: Seq[SplitPosition]) -> Seq[Split]:
        """See `SplitLister.list_splits`; SourceError also if the wrapped reader is none."""
        with self._hiding.errors(SourceError):
            return listed_splits(self._inner, self._hiding.operator, tuple(restored))

    def open(self, restored: Seq[SplitPosition], assigned: Seq[SplitId] | None = None) -> None:
        """See `SourceReader.open`."""
        with self._hiding.errors(SourceError):
            self._inner.open(restored, assigned)

    def splits(self) -> Seq[SplitId]:
        """See `SourceReader.splits`."""
        with self._hiding.errors(SourceError):
            return self._inner.splits()

    def read(self, now_ms: MonotonicMs) -> ReadResult:
        """See `SourceReader.read`."""
        with self._hiding.errors(SourceError):
            return self._inner.read(now_ms)

    def commit(self, positions: Seq[SplitPosition]) -> None:
        """See `SourceReader.commit`."""
        with self._hiding.errors(SourceError):
            self._inner.commit(positions)

    def close(self) -> None:
        """See `SourceReader.close`."""
        with self._hiding.errors(SourceError):
            self._inner.close()


class _HidingWrites(Generic[_Inner]):
    """What sinks of both kinds have, behind a `SecretHiding`."""

    def __init__(self, inner: _Inner, hiding: SecretHiding) -> None:
        self._inner = inner
        self._hiding = hiding

    def open(self) -> None:
        """See `SinkWriter.open`."""
        with self._hiding.errors(SinkError):
            self._inner.open()

    def write(self, sequence: Sequence, batch: pa.RecordBatch, now_ms: MonotonicMs) -> WriteReceipt:
        """See `SinkWriter.write`."""
        with self._hiding.errors(SinkError):
            return self._inner.write(sequence, batch, now_ms)

    def roll(self, now_ms: MonotonicMs) -> WriteReceipt:
        """See `SinkWriter.roll`."""
        with self._hiding.errors(SinkError):
            return self._inner.roll(now_ms)

    def close(self) -> None:
        """See `SinkWriter.close`."""
        with self._hiding.errors(SinkError):
            self._inner.close()


class HidingSink(_HidingWrites[SinkWriter]):
    """A `SinkWriter` behind a `SecretHiding`."""

    def flush(self, now_ms: MonotonicMs) -> WriteReceipt:
        """See `SinkWriter.flush`."""
        with self._hiding.errors(SinkError):
            return self._inner.flush(now_ms)


class HidingEpochSink(_HidingWrites[EpochSink]):
    """An `EpochSink` behind a `SecretHiding`."""

    def seal(self, epoch: Epoch) -> None:
        """See `EpochSink.seal`."""
        with self._hiding.errors(SinkError):
            self._inner.seal(epoch)

    def stage(self, upto: Epoch) -> tuple[SinkToken, ...]:
        """See `EpochSink.stage`."""
        with self._hiding.errors(SinkError):
            return self._inner.stage(upto)

    def publish(self, token: SinkToken, permit: CommitPermit) -> None:
        """See `EpochSink.publish`."""
        with self._hiding.errors(SinkError):
            self._inner.publish(token, permit)


__all__ = ["HidingEpochSink", "HidingOperator", "HidingSink", "HidingSource", "SecretHiding"]
