"""`sql`: a read-only DataFusion query over each batch, as table `flow` (F.5).

State never crosses batches. The query is checked as far as possible when the operator is built,
planned once per schema, and run by one engine per concurrent batch. Functions, names of result
columns and text rules are DataFusion's; where we differ from ArkFlow stands in `sql_json.py` and
`sql_errors.py`.
"""

from queue import LifoQueue

import pyarrow as pa

from arkflow_kernel.bad_rows import Origin
from arkflow_kernel.errors import ArkflowError, ConfigError, Issue, ProcessingError
from arkflow_kernel.ports import OperatorResult
from arkflow_ray.components.api import BuildContext
from arkflow_ray.components.processors.first_row import first_row_text
from arkflow_ray.components.processors.sql_check import query_mistake
from arkflow_ray.components.processors.sql_config import SqlConfig
from arkflow_ray.components.processors.sql_engine import SqlEngine
from arkflow_ray.components.processors.sql_errors import runtime_cause

ENGINES_MAX = 4
"""Batches that run in one processor at once, as in ArkFlow."""


class SqlOperator:
    """Runs the query; `process` may be called by several threads at once."""

    def __init__(self, operator: str, config: SqlConfig, engines: int) -> None:
        self._operator = operator
        self._config = config
        self._engine_count = min(max(engines, 1), ENGINES_MAX)
        # Last in, first out: the engine used last has the plan and warm memory.
        self._engines: LifoQueue[SqlEngine] = LifoQueue()

    def open(self) -> None:
        """Start the engines."""
        for _ in range(self._engine_count):
            self._engines.put(SqlEngine(self._config.query, self._config.table_name))

    def process(self, batch: pa.RecordBatch, origin: Origin) -> OperatorResult:  # noqa: ARG002
        """All batches of the result, without empty ones. Waits while all engines are busy."""
        if batch.num_rows == 0:
            return OperatorResult(())
        engine = self._engines.get()
        try:
            return OperatorResult(engine.run(batch))
        except Exception as error:  # the library raises ValueError and bare Exceptions
            ours = isinstance(error, ArkflowError)
            cause = str(error) if ours else runtime_cause(str(error), batch.schema.names)
            raise ProcessingError(
                self._operator,
                cause,
                error_class=type(error).__name__ if ours else "DataFusionError",
                row=first_row_text(batch),
            ) from error
        finally:
            self._engines.put(engine)

    def finish(self) -> OperatorResult:
        """Nothing is held."""
        return OperatorResult(())

    def close(self) -> None:
        """Drop the engines with their plans."""
        self._engines = LifoQueue()


def build(config: SqlConfig, context: BuildContext) -> SqlOperator:
    """Check the query and make the operator. ConfigError with the path of each mistake."""
    issues = []
    if config.temporary_list:
        sentence = "temporaries come later; remove the key, or join the data before this stream"
        issues.append(Issue("temporary_list", sentence))
    mistake = query_mistake(config.query, config.table_name)
    if mistake is not None:
        issues.append(Issue("query", mistake))
    if issues:
        raise ConfigError(issues)
    return SqlOperator(context.operator, config, context.workers)


__all__ = ["ENGINES_MAX", "SqlOperator", "build"]
