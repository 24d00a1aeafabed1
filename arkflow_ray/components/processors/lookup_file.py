"""The file of a `lookup`: reading it as a table, and seeing whether it changed.

Every failure is a `ComponentError` that says what to do; URLs in messages carry no credentials.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa

from arkflow_kernel.errors import ArkflowError, ComponentError
from arkflow_ray.components.codecs.json_config import fixed_root
from arkflow_ray.components.codecs.json_types import arrow_type, parse_type
from arkflow_ray.components.paths import shown
from arkflow_ray.components.processors.lookup_config import LookupConfig

_MARKS: Final = ("mtime", "ETag", "etag", "LastModified", "last_modified", "updated", "md5")
"""What file systems tell of a file that is another one after a write."""


class LookupFile:
    """One file."""

    def __init__(self, operator: str, config: LookupConfig) -> None:
        self._operator = operator
        self._config = config.table
        self._needed = tuple(dict.fromkeys((*config.key_names, *(config.columns or ()))))
        self._all = config.columns is None

    def state(self) -> str | None:
        """Equal for as long as the file is the same; None if its store tells too little for that.

        Raises `ComponentError` if it is not there.
        """
        with self._told("look at"):
            system, path = self._system()
            info = system.info(path)
        marks = {name: str(info[name]) for name in _MARKS if info.get(name) is not None}
        return f"{info.get('size')} {marks}" if marks else None

    def read(self) -> pa.Table:
        """The columns that the look-up needs. Raises `ComponentError`, also if one is missing."""
        with self._told("read"):
            system, path = self._system()
            with system.open(path, "rb") as file:
                table = self._parsed(file)
        for name in self._needed:
            if name not in table.column_names:
                raise ComponentError(
                    f"lookup '{self._operator}': the table '{self.shown}' has no column '{name}'; "
                    f"it has {', '.join(table.column_names) or 'none'}"
                )
        return table if self._all else table.select(list(self._needed))

    @property
    def shown(self) -> str:
        """Where it is, for messages."""
        return shown(self._config.path)

    def _system(self) -> tuple[Any, str]:
        import fsspec  # type: ignore[import-untyped]  # it ships no types

        system, path = fsspec.core.url_to_fs(self._config.path)
        system.invalidate_cache()  # what a store listed before may have changed
        return system, path

    def _parsed(self, file: Any) -> pa.Table:
        if self._config.read_as == "parquet":
            return self._parquet(file)
        if self._config.read_as == "csv":
            return self._csv(file)
        return self._json(file.read())

    def _parquet(self, file: Any) -> pa.Table:
        import pyarrow.parquet as pq

        with pq.ParquetFile(file) as parquet:
            known = parquet.schema_arrow.names
            return parquet.read(None if self._all else [n for n in known if n in self._needed])

    def _csv(self, file: Any) -> pa.Table:
        from pyarrow import csv

        types = {name: arrow_type(parse_type(text)) for name, text in self._config.types.items()}
        convert = csv.ConvertOptions(column_types=types, strings_can_be_null=True)
        parse = csv.ParseOptions(newlines_in_values=True)
        return csv.read_csv(io.BytesIO(file.read()), parse_options=parse, convert_options=convert)

    def _json(self, data: bytes) -> pa.Table:
        from arkflow_ray.components.codecs.json_block import JsonDecoder
        from arkflow_ray.components.codecs.json_texts import Lines

        lines = Lines(data)
        types = self._config.types
        decoded = JsonDecoder(fixed_root(types), frozenset(types)).decode_all(lines)
        if decoded.bad:
            first = decoded.bad[0]
            number = data.count(b"\n", 0, lines.offset(first.index)) + 1
            raise ComponentError(
                f"lookup '{self._operator}': line {number} of the table '{self.shown}' is no row: "
                f"{first.reason}; correct it, or remove it"
            )
        return pa.Table.from_batches([decoded.batch])

    def _without_secrets(self, text: str) -> str:
        """File systems repeat the URL, or what stands behind its scheme."""
        text = text.replace(self._config.path, self.shown)
        return text.replace(self._config.path.partition("://")[2] or "://", "***")

    @contextmanager
    def _told(self, doing: str) -> Iterator[None]:
        try:
            yield
        except ArkflowError:
            raise
        except Exception as error:  # each file system of fsspec and each format has its own errors
            told = self._without_secrets(str(error)) or "no reason given"
            raise ComponentError(
                f"lookup '{self._operator}': cannot {doing} the table '{self.shown}': "
                f"{type(error).__name__}: {told}; check the path, that this machine may read it, "
                f"and that it is {self._config.read_as}"
            ) from error


__all__ = ["LookupFile"]
