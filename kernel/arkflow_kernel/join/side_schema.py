"""The columns of one side of a join, which may widen (S10, J4).

A column that some rows lack is null there; integers and floats become Float64, integers of several
widths Int64, texts of several layouts one. What does not fit together fails the batch that brings
it.
"""

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.window.row_batches import brought_to, united


class SchemaOwner(Protocol):
    """A side, as its schema sees it."""

    def stage(self, size_bytes: int, undo: Callable[[], None]) -> None:
        """Announce a change."""
        ...

    def failure(self, cause: str) -> ProcessingError:
        """An item that the side cannot take."""
        ...


class SideSchema:
    """The schema that all rows so far go into."""

    def __init__(self, owner: SchemaOwner) -> None:
        self._owner = owner
        self._schema: pa.Schema | None = None

    @property
    def known(self) -> pa.Schema | None:
        """It; None before the first rows."""
        return self._schema

    @property
    def of_rows(self) -> pa.Schema:
        """It, once there are rows."""
        assert self._schema is not None
        return self._schema

    def fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows under it; it widens with them. Raises `ProcessingError`."""
        known = self._schema
        if known is not None and known.equals(batch.schema):
            return batch
        plain = batch.schema.remove_metadata()
        both = plain if known is None else united(known, plain)
        if both is None:
            assert known is not None
            raise self._owner.failure(_apart(known, plain))

        def undo() -> None:
            self._schema = known

        if both != known:
            self._owner.stage(0, undo)
            self._schema = both
        return brought_to(batch.replace_schema_metadata(None), both)

    def restored(self, schema: pa.Schema) -> None:
        """Rows of a snapshot go into it; before the first item. Raises `ValueError`."""
        both = schema if self._schema is None else united(self._schema, schema)
        if both is None:
            assert self._schema is not None
            raise ValueError(_apart(self._schema, schema))
        self._schema = both


def _apart(known: pa.Schema, other: pa.Schema) -> str:
    """Which columns do not go together."""
    told = []
    for field in other:
        place = known.get_field_index(field.name)
        if place < 0:
            continue
        mine = known.field(place)
        if united(pa.schema([mine]), pa.schema([field])) is None:
            told.append(f"'{field.name}' was of type {mine.type} and is now {field.type}")
    which = ", ".join(told) or "its columns are others"
    return f"{which}, which do not go into one column; cast before the join"


__all__ = ["SchemaOwner", "SideSchema"]
