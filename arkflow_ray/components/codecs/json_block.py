"""JSON texts made one batch, with the types widened as far as the texts need, bad ones set aside.

The unit is a *text*: a line of a file, or a payload. Texts are judged in order, each by the types
that the good texts before it have left behind; what is judged is independent of how a stream of
texts is cut into calls. The batch has the types that hold after its last text.

A range of texts is read at once where the vectorised reader vouches for it, else it is halved,
down to pieces that are read text by text. So one bad text costs its neighbours little.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa

from arkflow_ray.components.codecs import json_types
from arkflow_ray.components.codecs.json_fast import ReadPlan
from arkflow_ray.components.codecs.json_text import Row, build_batch
from arkflow_ray.components.codecs.json_types import (
    NO_FIELDS,
    JsonType,
    ListType,
    RowError,
    Scalar,
    StructType,
)

PIECE_TEXTS: Final = 64
"""Below this a failed attempt of the vectorised reader costs as much as the exact reader."""


class Texts(Protocol):
    """A sequence of texts that can be read one by one or together."""

    def __len__(self) -> int: ...

    def raw(self, index: int) -> bytes:
        """One text."""
        ...

    def parse(self, index: int) -> list[Row]:
        """The objects of one text. RowError if it is bad."""
        ...

    def read(self, low: int, high: int, plan: ReadPlan) -> pa.RecordBatch | None:
        """The rows of texts `low` to `high - 1`, or None if they need a closer look or are none."""
        ...


@dataclass(frozen=True, slots=True)
class BadText:
    """A text that gives no rows, and why."""

    index: int
    reason: str


@dataclass(frozen=True, slots=True)
class DecodedTexts:
    """The rows of the first `consumed` texts; `bad` are those among them that gave none."""

    batch: pa.RecordBatch
    bad: list[BadText]
    consumed: int


class JsonDecoder:
    """Decodes one stream of texts; keeps the types that it has learned.

    Batches have only the `columns`; None: all of them. Types are learned of all fields. The
    `fields` are in each batch, behind the others and null in all rows while no text had them.
    """

    def __init__(
        self,
        root: StructType = NO_FIELDS,
        fixed: frozenset[str] = frozenset(),
        columns: frozenset[str] | None = None,
        fields: Sequence[str] = (),
    ) -> None:
        self._plan = ReadPlan(root, columns)
        self._fixed = fixed
        self._fields = fields
        self._form: Any = None

    @property
    def root(self) -> StructType:
        """The types so far."""
        return self._plan.root

    def empty(self) -> pa.RecordBatch:
        """No rows, of the types so far."""
        return self._with_fields(self._plan.only_kept(build_batch([], self.root)))

    def form(self) -> Any:
        """The types so far as JSON, the same list until they change. Not to be mutated."""
        if self._form is None:
            self._form = [[n, json_types.to_json(t)] for n, t in self.root.fields.items()]
        return self._form

    def read(self, texts: Texts) -> pa.RecordBatch | None:
        """All rows at once, if nothing is bad or new and the vectorised reader vouches for it."""
        whole = texts.read(0, len(texts), self._plan)
        return None if whole is None else self._with_fields(whole)

    def _with_fields(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for name in self._fields:
            if name not in self.root.fields:
                batch = batch.append_column(name, pa.nulls(batch.num_rows))
        return batch

    def decode(self, texts: Texts) -> DecodedTexts:
        """One batch of the texts, up to where the rows before would have to change.

        That is where a field turns from int to float and an earlier row of the batch holds an
        integer that no float can: the batch ends before the text that turned a field.
        """
        whole = self.read(texts)
        if whole is not None:
            return DecodedTexts(whole, [], len(texts))
        study = _Study(texts, self._plan, self._fixed, len(texts))
        try:
            return self._finished(study)
        except RowError:
            study = _Study(texts, self._plan, self._fixed, study.first_turn())
            return self._finished(study)

    def decode_all(self, texts: Texts) -> DecodedTexts:
        """One batch of all texts. A text whose integers a later one turns inexact is bad."""
        whole = self.read(texts)
        if whole is not None:
            return DecodedTexts(whole, [], len(texts))
        study = _Study(texts, self._plan, self._fixed, len(texts))
        try:
            return self._finished(study)
        except RowError:
            study.reject_inexact()
            return self._finished(study)

    def _finished(self, study: "_Study") -> DecodedTexts:
        batch = study.batch()
        if study.plan is not self._plan:
            self._plan, self._form = study.plan, None
        bad = [BadText(index, study.bad[index]) for index in sorted(study.bad)]
        return DecodedTexts(self._with_fields(batch), bad, study.count)


@dataclass(slots=True)
class _Piece:
    """Texts that were read together; `batch` is None if it must be read again."""

    low: int
    high: int
    root: StructType
    batch: pa.RecordBatch | None


class _Study:
    """One pass over the first `count` texts that learns types and finds bad texts."""

    def __init__(self, texts: Texts, plan: ReadPlan, fixed: frozenset[str], count: int) -> None:
        self.plan = plan
        self.bad: dict[int, str] = {}
        self.count = count
        self._texts = texts
        self._fixed = fixed
        self._pieces: list[_Piece] = []
        self._turns: list[int] = []
        # Without types every attempt fails; the first text has those of most others.
        known = min(1, count) if not plan.root.fields else 0
        if known:
            self._learn_each(0, known)
        self._learn(known, count)

    def batch(self) -> pa.RecordBatch:
        """All good rows under the final types. RowError if one cannot be represented."""
        batches: list[pa.RecordBatch] = []
        stale: _Piece | None = None
        for piece in self._pieces:
            if piece.batch is not None and piece.root is self.plan.root:
                batches += self._read_again(stale)
                stale = None
                batches.append(piece.batch)
            else:
                low = piece.low if stale is None else stale.low
                stale = _Piece(low, piece.high, piece.root, None)
        batches += self._read_again(stale)
        return _joined(batches, self.plan)

    def first_turn(self) -> int:
        """The first text after which an earlier row of the batch may be inexact."""
        return self._turns[0]

    def reject_inexact(self) -> None:
        """Make the texts bad whose integers do not fit the floats that their fields became."""
        for index in range(self.count):
            if index in self.bad:
                continue
            try:
                for row in self._texts.parse(index):
                    json_types.widen(self.plan.root, row)
            except RowError as error:
                self.bad[index] = str(error)
        for piece in self._pieces:
            piece.batch = None

    def _learn(self, low: int, high: int) -> None:
        batch = self._texts.read(low, high, self.plan)
        if batch is not None:
            self._pieces.append(_Piece(low, high, self.plan.root, batch))
        elif high - low > PIECE_TEXTS:
            middle = (low + high) // 2
            self._learn(low, middle)
            self._learn(middle, high)
        else:
            self._learn_each(low, high)

    def _learn_each(self, low: int, high: int) -> None:
        root = self.plan.root
        rows: list[Row] = []
        for index in range(low, high):
            try:
                found = self._texts.parse(index)
                widened = self._admitted(root, found)
            except RowError as error:
                self.bad[index] = str(error)
                continue
            if widened is not root and index > 0 and _turns_float(root, widened):
                self._turns.append(index)
            root = widened
            rows += found
        if root is not self.plan.root:
            self.plan = ReadPlan(root, self.plan.columns)
        try:
            batch = self.plan.only_kept(build_batch(rows, root))
        except RowError:
            # Only the final types decide; `batch` reads this piece again.
            batch = None
        self._pieces.append(_Piece(low, high, root, batch))

    def _admitted(self, root: StructType, rows: list[Row]) -> StructType:
        widened = root
        for row in rows:
            widened = json_types.admit(widened, row, self._fixed)
        if len(rows) > 1 and widened is not root:
            for row in rows:
                json_types.widen(widened, row)
        return widened

    def _read_again(self, piece: _Piece | None) -> list[pa.RecordBatch]:
        return [] if piece is None else self._rows(piece.low, piece.high)

    def _rows(self, low: int, high: int) -> list[pa.RecordBatch]:
        if not any(index in self.bad for index in range(low, high)):
            batch = self._texts.read(low, high, self.plan)
            if batch is not None:
                return [batch]
        if high - low > PIECE_TEXTS:
            middle = (low + high) // 2
            return self._rows(low, middle) + self._rows(middle, high)
        rows: list[Row] = []
        for index in range(low, high):
            if index not in self.bad:
                rows += self._texts.parse(index)
        return [self.plan.only_kept(build_batch(rows, self.plan.root))]


def _turns_float(old: JsonType, new: JsonType) -> bool:
    """Whether a field that was int, at any depth, is float now."""
    if isinstance(new, ListType):
        return _turns_float(old.item if isinstance(old, ListType) else old, new.item)
    if isinstance(new, StructType):
        before = old.fields if isinstance(old, StructType) else {}
        return any(_turns_float(before.get(n, Scalar.NULL), t) for n, t in new.fields.items())
    return old is Scalar.INT and new is Scalar.FLOAT


def _joined(batches: list[pa.RecordBatch], plan: ReadPlan) -> pa.RecordBatch:
    filled = [batch for batch in batches if batch.num_rows]
    if not filled:
        return plan.only_kept(build_batch([], plan.root))
    return filled[0] if len(filled) == 1 else _concatenated(filled)


def _concatenated(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches).combine_chunks()
    if table.num_columns:
        return table.to_batches()[0]
    rows: Any = pa.array([{}] * table.num_rows, pa.struct([]))
    return pa.RecordBatch.from_struct_array(rows)


__all__ = ["BadText", "DecodedTexts", "JsonDecoder", "Texts"]
