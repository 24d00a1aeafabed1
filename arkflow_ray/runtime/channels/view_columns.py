"""Columns of string and binary views: a slice still points into all that it was cut from (H5).

List views and dense unions have the same weakness; Arrow has no cast for them, so they travel
whole. Cast to the same type without views, and back, a column keeps what its own rows need.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa


def columns_with_views(schema: pa.Schema) -> list[tuple[int, pa.DataType]]:
    """Columns that hold views at any depth: index, and the same type without views."""
    plain = [(index, _without_views(field.type)) for index, field in enumerate(schema)]
    return [(index, kind) for index, kind in plain if kind != schema.field(index).type]


def holds(kind: pa.DataType, test: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type, or a type inside it, passes a test."""
    return test(kind) or any(holds(child, test) for child in _children(kind))


def _children(kind: Any) -> list[pa.DataType]:
    if isinstance(kind, pa.BaseExtensionType):
        return [kind.storage_type]
    return [kind.field(index).type for index in range(kind.num_fields)]


def _without_views(kind: Any) -> Any:
    types = pa.types
    if types.is_string_view(kind):
        return pa.large_string()
    if types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_map(kind):
        return pa.map_(_plain(kind.key_field), _plain(kind.item_field), kind.keys_sorted)
    if types.is_struct(kind):
        return pa.struct([_plain(kind.field(index)) for index in range(kind.num_fields)])
    if types.is_list(kind):
        return pa.list_(_plain(kind.value_field))
    if types.is_large_list(kind):
        return pa.large_list(_plain(kind.value_field))
    if types.is_fixed_size_list(kind):
        return pa.list_(_plain(kind.value_field), kind.list_size)
    return kind


def _plain(field: Any) -> Any:
    return field.with_type(_without_views(field.type))


__all__ = ["columns_with_views", "holds"]
