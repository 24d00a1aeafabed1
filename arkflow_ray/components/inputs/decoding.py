"""An input of payloads with a codec: rows of `__value__` decoded where they are read.

Not for inputs that yield columns of their own. What the codec learns belongs to the split: its
types are part of the split's position, which is `{"source": …, "codec": …}`.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import Any

from arkflow_kernel.bad_rows import VALUE_COLUMN
from arkflow_kernel.errors import SourceError
from arkflow_kernel.ids import MonotonicMs, SplitId
from arkflow_kernel.ports import (
    Position,
    ReadResult,
    ReplayKind,
    SourceBatch,
    SourceReader,
    Split,
    SplitPosition,
)
from arkflow_kernel.split_dealing import listed_splits
from arkflow_ray.components.api import Codec


class DecodingReader:
    """Wraps a reader of `__value__` batches. The codec is this reader's alone."""

    def __init__(self, inner: SourceReader, codec: Codec, operator: str) -> None:
        self._inner = inner
        self._codec = codec
        self._operator = operator
        self._fresh = codec.position()
        self._learned: dict[SplitId, dict[str, Any]] = {}
        self._split: SplitId | None = None

    @property
    def replay(self) -> ReplayKind:
        """As the wrapped reader."""
        return self._inner.replay

    @property
    def commits(self) -> bool:
        """As the wrapped reader."""
        return self._inner.commits

    def list_splits(self, restored: Seq[SplitPosition]) -> Seq[Split]:
        """Those of the wrapped reader. SourceError also if it has only one subtask."""
        inner = tuple(_inner(place) for place in restored)
        return listed_splits(self._inner, self._operator, inner)

    def open(self, restored: Seq[SplitPosition], assigned: Seq[SplitId] | None = None) -> None:
        """Open the wrapped reader. SourceError for a position that this reader did not make."""
        for place in restored:
            self._learned[place.split] = _part(place.position, "codec", place.split)
        self._inner.open([_inner(place) for place in restored], assigned)

    def splits(self) -> Seq[SplitId]:
        """As the wrapped reader."""
        return self._inner.splits()

    def read(self, now_ms: MonotonicMs) -> ReadResult:
        """The next batch, decoded."""
        result = self._inner.read(now_ms)
        return self._decoded(result) if isinstance(result, SourceBatch) else result

    def commit(self, positions: Seq[SplitPosition]) -> None:
        """The wrapped reader's commit, with its own positions."""
        self._inner.commit([_inner(place) for place in positions])

    def close(self) -> None:
        """Close the wrapped reader."""
        self._inner.close()

    def _decoded(self, raw: SourceBatch) -> SourceBatch:
        self._switch_to(raw.split)
        payloads: Any = raw.batch.column(VALUE_COLUMN)
        decoded = self._codec.decode(payloads, self._operator, raw.origin)
        learned = self._codec.position()
        self._learned[raw.split] = learned
        return SourceBatch(
            raw.split,
            decoded.batch,
            {"source": dict(raw.position), "codec": learned},
            raw.origin,
            bad=decoded.bad,
            skipped=decoded.skipped,
            split_ended=raw.split_ended,
            quiet=raw.quiet,
        )

    def _switch_to(self, split: SplitId) -> None:
        if split == self._split:
            return
        try:
            self._codec.restore(self._learned.get(split, self._fresh))
        except ValueError as error:
            raise _not_ours(split, str(error)) from error
        self._split = split


def with_codec(reader: SourceReader, codec: Codec | None, operator: str) -> SourceReader:
    """`reader` itself without a codec."""
    return reader if codec is None else DecodingReader(reader, codec, operator)


def _inner(place: SplitPosition) -> SplitPosition:
    return SplitPosition(
        place.split, _part(place.position, "source", place.split), ended=place.ended
    )


def _part(position: Position, name: str, split: SplitId) -> dict[str, Any]:
    part = position.get(name)
    if not isinstance(part, Mapping):
        raise _not_ours(split, f"no `{name}` in it")
    return dict(part)


def _not_ours(split: SplitId, why: str) -> SourceError:
    return SourceError(
        f"the restored position of '{split}' does not fit this input with its codec: {why}; was "
        "`codec` added or removed? Start the job without its positions"
    )


__all__ = ["DecodingReader", "with_codec"]
