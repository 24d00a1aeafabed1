"""`lookup`: columns of a table, added to each row by its key.

The table is read when the operator opens. With `refresh_interval_ms` a thread of its own looks at
the file and reads it again when it changed; a batch sees one table from its first row to its last.
A table that cannot be read again leaves the old one in its place.
"""

import logging
import threading
from typing import Any

import pyarrow as pa

from arkflow_kernel.bad_rows import Origin
from arkflow_kernel.errors import ArkflowError, ProcessingError
from arkflow_kernel.ports import OperatorResult
from arkflow_ray.components.api import BuildContext
from arkflow_ray.components.processors.lookup_config import LookupConfig
from arkflow_ray.components.processors.lookup_file import LookupFile
from arkflow_ray.components.processors.lookup_table import LookupTable

_log = logging.getLogger(__name__)

_STOP_S = 5.0
"""How long `close` waits for a read that is under way; its thread ends with the process then."""


class LookupOperator:
    """Keeps nothing of rows; several threads may call `process` at once."""

    def __init__(self, operator: str, config: LookupConfig) -> None:
        self._operator = operator
        self._config = config
        self._file = LookupFile(operator, config)
        self._state: str | None = None
        self._table: LookupTable | None = None
        self._closed = threading.Event()
        self._refresher: threading.Thread | None = None

    def open(self) -> None:
        """Read the table. Raises `ComponentError` if that cannot be done."""
        self._load()
        if self._config.refresh_interval_ms is not None:
            name = f"lookup-{self._operator}"
            self._refresher = threading.Thread(target=self._refresh, name=name, daemon=True)
            self._refresher.start()

    def process(self, batch: pa.RecordBatch, origin: Origin) -> OperatorResult:  # noqa: ARG002
        """The rows with what was found. ProcessingError for a column that is missing, cannot be
        compared with the key, or is there already."""
        table = self._table
        assert table is not None, "it is open"
        if batch.num_rows == 0:
            return OperatorResult(())
        names = self._new_names(batch, table)
        on = self._config.on_names
        rows = table.find(on, [self._column(batch, name) for name in on])
        if self._config.how == "inner":
            found = rows >= 0
            if not found.all():
                batch, rows = batch.filter(pa.array(found)), rows[found]
        columns = [*batch.columns, *table.take(rows)]
        joined = pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, *names])
        return OperatorResult((joined,) if joined.num_rows else ())

    def finish(self) -> OperatorResult:
        """Nothing is held."""
        return OperatorResult(())

    def close(self) -> None:
        """Stop looking at the file, and let go of the table."""
        self._closed.set()
        if self._refresher is not None:
            self._refresher.join(_STOP_S)
        self._table = None

    def _column(self, batch: pa.RecordBatch, name: str) -> Any:
        if name not in batch.schema.names:
            raise ProcessingError(
                self._operator,
                f"column '{name}' is missing from the batch, whose columns are "
                f"{', '.join(batch.schema.names)}; set `on` to one of them",
            )
        return batch.column(name)

    def _new_names(self, batch: pa.RecordBatch, table: LookupTable) -> list[str]:
        names = [self._config.prefix + name for name in table.names]
        there = set(batch.schema.names)
        for name in names:
            if name in there:
                raise ProcessingError(
                    self._operator,
                    f"the batch has a column '{name}' already; name what to add in `columns`, or "
                    "set a `prefix`",
                )
        return names

    # --- the table -----------------------------------------------------------------------------

    def _load(self) -> None:
        """Read the file; the new table is there for the next batch at once and as a whole."""
        state = self._file.state()
        self._table = LookupTable(
            self._operator,
            self._file.read(),
            self._config.key_names,
            self._config.columns,
            last_counts=self._config.on_duplicate == "last",
        )
        self._state = state

    def _refresh(self) -> None:
        """Look at the file at each interval, until `close`. A failure is told once, while it
        stays the same."""
        assert self._config.refresh_interval_ms is not None
        told: str | None = None
        while not self._closed.wait(self._config.refresh_interval_ms / 1_000):
            failure = self._refreshed()
            if failure is not None and failure != told:
                _log.warning(
                    "%s; the table that was read before stays in use, and the next attempt "
                    "follows in %d ms",
                    failure,
                    self._config.refresh_interval_ms,
                )
            told = failure

    def _refreshed(self) -> str | None:
        """Read the file again if it is another one. Why that failed, or None."""
        try:
            state = self._file.state()
            if state is None or state != self._state:
                self._load()
        except ArkflowError as error:
            return error.message
        except Exception as error:  # noqa: BLE001 - what a file holds must not end the thread
            return f"lookup '{self._operator}': {type(error).__name__}: {error}"
        return None


def build(config: LookupConfig, context: BuildContext) -> LookupOperator:
    """Make the operator; nothing is read."""
    return LookupOperator(context.operator, config)


__all__ = ["LookupOperator", "build"]
