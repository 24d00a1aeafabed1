"""DataFusion for one thread: plans kept per schema, run over one batch after another.

Not thread-safe: `sql.py` keeps one engine per concurrent batch. One partition everywhere, so rows
leave in the order in which they came wherever the query does not sort, join or group. Nothing of a
batch stays in the engine after its run.
"""

import os
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa

from arkflow_kernel.errors import ComponentError, ResourceError
from arkflow_kernel.limits import BATCH_ROWS_DEFAULT, MIB
from arkflow_ray.components.processors.sql_json import JSON_FUNCTIONS
from arkflow_ray.components.processors.sql_source import BatchSlot, SlotDataset
from arkflow_ray.components.processors.sql_text import TokenKind, tokens
from arkflow_ray.components.rust_export import safe_for_rust

# Queries run in the calling thread; the engine's own threads would only idle beside Ray's. Read
# once, when the engine starts its first query. A setting of the user's stays.
os.environ.setdefault("TOKIO_WORKER_THREADS", "1")

import datafusion

PLANS_MAX = 16
"""Schemas whose plans one engine keeps; the least recently used goes first."""

MEMORY_MAX = 256 * MIB
"""Bytes that sorts, joins and groups of one engine hold before they spill to temporary files."""

RESULT_BYTES_MAX = 1024 * MIB
"""Bytes of the result of one batch; a join without a condition gets there."""

RUNS_MAX = 256
"""Runs of one physical plan. It keeps about 3 KiB of metrics of each, which nobody reads."""

_CONFIG = {
    # State that a plan would carry from one run into the next.
    "datafusion.optimizer.enable_dynamic_filter_pushdown": "false",
    "datafusion.sql_parser.map_string_types_to_utf8view": "false",
}

_REUSABLE = frozenset(
    {
        "AggregateExec", "CoalesceBatchesExec", "CooperativeExec", "DatasetExec", "EmptyExec",
        "FilterExec", "PlaceholderRowExec", "ProjectionExec", "UnionExec", "UnnestExec",
    }
)  # fmt: skip
"""Steps that keep nothing after a run. A sort with a limit or a join does (its built side)."""

_CLOCK_WORDS = frozenset({"now", "current_date", "current_time", "current_timestamp", "today"})
"""Functions that planning replaces by a constant."""


class Planning(Enum):
    """What of a plan can be kept."""

    STEPS = "steps"
    """The physical plan: only its batch changes."""
    QUERY = "query"
    """The logical plan: its steps keep state, so they are made for each batch."""
    NOTHING = "nothing"
    """The query reads the clock: planned anew for each batch."""


@dataclass(slots=True)
class _Plan:
    """A planned query for one schema."""

    schema: pa.Schema
    planning: Planning
    frame: datafusion.DataFrame
    steps: Any
    runs: int = 0
    result_fields: pa.Schema | None = None


class SqlEngine:
    """One session of DataFusion with one query."""

    def __init__(self, query: str, table_name: str) -> None:
        self._query = query
        self._table = f'"{table_name}"'
        self._name = table_name
        self._slot = BatchSlot()
        self._context = new_session()
        self._plans: OrderedDict[pa.Schema, _Plan] = OrderedDict()
        self._last: _Plan | None = None
        words = {t.text.lower() for t in tokens(query) if t.kind is TokenKind.WORD}
        self._reads_clock = bool(words & _CLOCK_WORDS)

    @property
    def kept_plans(self) -> int:
        """How many schemas have a plan at the moment."""
        return len(self._plans)

    def planning_of(self, schema: pa.Schema) -> Planning:
        """What is kept for batches of that schema; plans the query if need be."""
        return self._plan_for(schema).planning

    def run(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, ...]:
        """The result of the query over the batch; empty without rows. Raises what DataFusion does.

        ResourceError if the result is above `RESULT_BYTES_MAX`.
        """
        plan = self._plan_for(batch.schema)
        columns = safe_for_rust(batch).columns
        self._slot.batch = pa.RecordBatch.from_arrays(columns, schema=plan.schema)
        try:
            return self._executed(plan)
        finally:
            self._slot.batch = None

    def _executed(self, plan: _Plan) -> tuple[pa.RecordBatch, ...]:
        steps = self._steps_of(plan)
        results: list[pa.RecordBatch] = []
        size = 0
        # One partition after the other: those of a UNION would otherwise mix as they finish.
        for partition in range(steps.partition_count):
            for part in self._context.execute(steps, partition):
                rows = part.to_pyarrow()
                if rows.num_rows == 0:
                    continue
                size += rows.nbytes
                if size > RESULT_BYTES_MAX:
                    raise ResourceError(
                        f"the result of one batch is above {RESULT_BYTES_MAX // MIB} MiB; "
                        "narrow the query's join"
                    )
                results.append(_with_plain_types(plan, rows))
        return tuple(results)

    def _steps_of(self, plan: _Plan) -> Any:
        """The physical plan of the next run, made anew when it must be."""
        if plan.planning is Planning.NOTHING and plan.runs > 0:
            plan.frame = self._framed(plan.schema)
        kept = RUNS_MAX if plan.planning is Planning.STEPS else 1
        if plan.runs > 0 and plan.runs % kept == 0:
            plan.steps = plan.frame.execution_plan()
        plan.runs += 1
        return plan.steps

    def _plan_for(self, schema: pa.Schema) -> _Plan:
        last = self._last
        if last is not None and last.schema.equals(schema):
            return last
        plain = _without_metadata(schema)
        plan = self._plans.get(plain)
        if plan is None:
            plan = self._planned(plain)
            self._plans[plain] = plan
            if len(self._plans) > PLANS_MAX:
                self._plans.popitem(last=False)
        self._plans.move_to_end(plain)
        self._last = plan
        return plan

    def _planned(self, schema: pa.Schema) -> _Plan:
        _refuse_repeated_names(schema)
        frame = self._framed(schema)
        steps = frame.execution_plan()
        if self._reads_clock:
            return _Plan(schema, Planning.NOTHING, frame, steps)
        planning = Planning.STEPS if _step_names(steps) <= _REUSABLE else Planning.QUERY
        return _Plan(schema, planning, frame, steps)

    def _framed(self, schema: pa.Schema) -> datafusion.DataFrame:
        # Registered for the planning only: a plan holds its table, the catalog need not.
        self._context.register_dataset(self._table, SlotDataset(schema, self._slot))
        try:
            return self._context.sql_with_options(self._query, read_only())
        finally:
            self._context.deregister_table(self._table)


def new_session() -> datafusion.SessionContext:
    """A session with our settings and functions, and no table."""
    config = (
        datafusion.SessionConfig(_CONFIG)
        .with_target_partitions(1)
        .with_batch_size(BATCH_ROWS_DEFAULT)
    )
    runtime = datafusion.RuntimeEnvBuilder().with_disk_manager_os().with_fair_spill_pool(MEMORY_MAX)
    session = datafusion.SessionContext(config, runtime)
    # A dataset's filters would be Arrow's, whose NaN and text rules are not DataFusion's.
    if not session.remove_optimizer_rule("push_down_filter"):
        raise ComponentError(
            "this version of datafusion has no rule `push_down_filter`; "
            "install the version that constraints.txt names"
        )
    for name, (function, arguments, kind) in JSON_FUNCTIONS.items():
        session.register_udf(
            datafusion.udf(function, [pa.string()] * arguments, kind, "immutable", name)
        )
    return session


def read_only() -> datafusion.SQLOptions:
    """Options that refuse everything but queries."""
    return (
        datafusion.SQLOptions()
        .with_allow_ddl(False)
        .with_allow_dml(False)
        .with_allow_statements(False)
    )


def _step_names(steps: Any) -> set[str]:
    names = {steps.display().split(":", 1)[0].strip()}
    for child in steps.children():
        names |= _step_names(child)
    return names


def _without_metadata(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.remove_metadata() for field in schema])


def _refuse_repeated_names(schema: pa.Schema) -> None:
    repeated = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if repeated:
        raise ComponentError(
            f"the batch has the column {', '.join(repeated)} twice, so a query cannot name it; "
            "rename or drop one before this processor"
        )


def _with_plain_types(plan: _Plan, rows: pa.RecordBatch) -> pa.RecordBatch:
    """View types are DataFusion's inner matter: downstream sees string and binary."""
    if plan.result_fields is None:
        plan.result_fields = pa.schema([_plain_field(field) for field in rows.schema])
    if rows.schema.equals(plan.result_fields):
        return rows
    return rows.cast(plan.result_fields)


def _plain_field(field: "pa.Field[Any]") -> "pa.Field[Any]":
    return field.with_type(_plain_type(field.type))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if isinstance(kind, pa.ListType):
        return pa.list_(_plain_field(kind.value_field))
    if isinstance(kind, pa.LargeListType):
        return pa.large_list(_plain_field(kind.value_field))
    if isinstance(kind, pa.StructType):
        return pa.struct([_plain_field(kind.field(i)) for i in range(kind.num_fields)])
    return kind


__all__ = [
    "MEMORY_MAX",
    "PLANS_MAX",
    "RESULT_BYTES_MAX",
    "RUNS_MAX",
    "Planning",
    "SqlEngine",
    "new_session",
    "read_only",
]
