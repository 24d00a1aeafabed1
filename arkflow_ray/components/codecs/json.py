"""Codec `json`: payloads of JSON objects to columns, and rows to objects.

Types are inferred and only ever widen (`json_types`); they are part of the source's position. A
payload with one bad object is bad as a whole.
"""

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from arkflow_kernel.bad_rows import Origin, bad_row_batch
from arkflow_ray.components.api import BuildContext, Decoded
from arkflow_ray.components.codecs.json_block import BadText, JsonDecoder, Texts
from arkflow_ray.components.codecs.json_config import fixed_root
from arkflow_ray.components.codecs.json_encode import encode_rows
from arkflow_ray.components.codecs.json_texts import Payloads
from arkflow_ray.components.codecs.json_types import restored_root

if TYPE_CHECKING:
    from arkflow_ray.components.codecs.json_config import JsonCodecConfig


class JsonCodec:
    """One stream of payloads. Not thread-safe: a source has one, called in its read lane."""

    def __init__(
        self,
        types: dict[str, str],
        *,
        skip: bool,
        columns: frozenset[str] | None = None,
        fields: tuple[str, ...] = (),
    ) -> None:
        self._fixed = fixed_root(types)
        self._skip = skip
        self._columns = columns
        self._fields = fields
        self._decoder = JsonDecoder(self._fixed, frozenset(types), columns, fields)

    def decode(self, payloads: pa.BinaryArray, operator: str, origin: Origin) -> Decoded:
        """One batch of all objects; nulls give nothing. Bad payloads are set aside or skipped."""
        texts = Payloads(payloads.drop_null() if payloads.null_count else payloads)
        decoded = self._decoder.decode_all(texts)
        if not decoded.bad:
            return Decoded(decoded.batch)
        if self._skip:
            return Decoded(decoded.batch, skipped=len(decoded.bad))
        return Decoded(decoded.batch, bad=bad_texts_batch(texts, decoded.bad, operator, origin))

    def encode(self, batch: pa.RecordBatch) -> pa.BinaryArray:
        """One object a row, nulls left out."""
        return encode_rows(batch)

    def position(self) -> dict[str, Any]:
        """The field types so far; the same object until they change, not to be mutated."""
        return {"types": self._decoder.form()}

    def restore(self, position: dict[str, Any]) -> None:
        """Continue with these types. ValueError if they are not what `position` gave."""
        root = restored_root(position.get("types", []), self._fixed)
        self._decoder = JsonDecoder(
            root, frozenset(self._fixed.fields), self._columns, self._fields
        )


def bad_texts_batch(
    texts: Texts, bad: list[BadText], operator: str, origin: Origin
) -> pa.RecordBatch:
    """Bad payloads in the shape of bad rows, at their batch's origin."""
    return bad_row_batch(
        [texts.raw(text.index) for text in bad],
        [text.reason for text in bad],
        operator=operator,
        origin=origin,
    )


def build(config: "JsonCodecConfig", context: BuildContext) -> JsonCodec:
    """Make the codec; nothing can fail here."""
    skip = config.on_error == "skip"
    return JsonCodec(config.types, skip=skip, columns=context.columns, fields=context.fields)


__all__ = ["JsonCodec", "bad_texts_batch", "build"]
