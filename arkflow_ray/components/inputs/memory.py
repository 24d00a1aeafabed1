"""Input `memory`: the messages that stand in the configuration, in order, then the end.

One subtask reads them: what fits into a configuration is not worth being shared.
"""

from collections.abc import Sequence as Seq
from hashlib import blake2b
from typing import Annotated, Final

import pyarrow as pa
from pydantic import Field

from arkflow_kernel.bad_rows import VALUE_COLUMN, Origin
from arkflow_kernel.errors import SourceError
from arkflow_kernel.ids import MonotonicMs, SplitId
from arkflow_kernel.ports import (
    ReadResult,
    ReplayKind,
    SourceBatch,
    SourceEnded,
    SourceReader,
    SplitPosition,
)
from arkflow_ray.components.api import BuildContext, ComponentConfig
from arkflow_ray.components.inputs.decoding import with_codec
from arkflow_ray.components.inputs.file_config import BatchRows

SPLIT: Final = SplitId("memory")
PAYLOAD_SCHEMA: Final = pa.schema([pa.field(VALUE_COLUMN, pa.binary(), nullable=False)])
"""Raw payloads (F.1): one a row."""


class MemoryConfig(ComponentConfig):
    """Input `memory`. One row a batch as in ArkFlow, unless `batch_rows` says more."""

    messages: Annotated[
        list[str],
        Field(
            description="Payloads, one a row; none: the input ends at once.",
            examples=[['{"a": 1}']],
        ),
    ] = Field(default_factory=list)
    batch_rows: BatchRows = 1


class MemoryReader:
    """The position is `{"next": index of the next message, "read": digest of those before it}`."""

    def __init__(self, operator: str, messages: list[str], batch_rows: int) -> None:
        self._operator = operator
        self._messages = messages
        self._batch_rows = batch_rows
        self._next = 0
        self._digest = blake2b(digest_size=8)

    @property
    def replay(self) -> ReplayKind:
        """The configuration holds the messages for ever."""
        return ReplayKind.POSITION

    @property
    def commits(self) -> bool:
        """There is nobody to tell."""
        return False

    def open(self, restored: Seq[SplitPosition], assigned: Seq[SplitId] | None = None) -> None:
        """Continue. SourceError if the messages before the position are not those it is of."""
        assert assigned is None, "it has one subtask"
        for place in restored:
            index = place.position.get("next")
            if not isinstance(index, int) or not 0 <= index <= len(self._messages):
                raise SourceError(
                    f"input '{self._operator}': cannot continue at message {index!r} of "
                    f"{len(self._messages)}; were `messages` changed? Start the job without its "
                    "positions"
                )
            self._take(self._messages[:index])
            self._next = index
            read = self._digest.hexdigest()
            if place.position.get("read", read) != read:
                raise SourceError(
                    f"input '{self._operator}': the first {index} of `messages` are not those that "
                    "were read; bring them back, or start the job without its positions"
                )

    def splits(self) -> Seq[SplitId]:
        """The only one, unless no message is left."""
        return (SPLIT,) if self._next < len(self._messages) else ()

    def read(self, now_ms: MonotonicMs) -> ReadResult:  # noqa: ARG002
        """The next messages, or the end."""
        first = self._next
        taken = self._messages[first : first + self._batch_rows]
        if not taken:
            return SourceEnded()
        self._next += len(taken)
        values = pa.array(self._take(taken), pa.binary())
        return SourceBatch(
            SPLIT,
            pa.RecordBatch.from_arrays([values], schema=PAYLOAD_SCHEMA),
            {"next": self._next, "read": self._digest.hexdigest()},
            Origin(SPLIT, offset=first),
            split_ended=self._next == len(self._messages),
        )

    def _take(self, texts: list[str]) -> list[bytes]:
        """Payloads of the texts, which are the next ones of the digest."""
        payloads = [text.encode() for text in texts]
        for payload in payloads:
            self._digest.update(len(payload).to_bytes(8, "big"))
            self._digest.update(payload)
        return payloads

    def commit(self, positions: Seq[SplitPosition]) -> None:
        """Never called: `commits` is False."""

    def close(self) -> None:
        """Nothing to release."""


def build(config: MemoryConfig, context: BuildContext) -> SourceReader:
    """Make the reader, with its codec if there is one."""
    reader = MemoryReader(context.operator, config.messages, config.batch_rows)
    return with_codec(reader, context.codec, context.operator)


__all__ = ["PAYLOAD_SCHEMA", "SPLIT", "MemoryConfig", "MemoryReader", "build"]
