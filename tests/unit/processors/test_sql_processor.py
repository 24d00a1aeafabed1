"""The `sql` processor: results, kept plans, order, errors of a batch, threads."""

import subprocess
import sys
import threading
import time
from typing import Any

import datafusion
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkflow_kernel.bad_rows import NOWHERE
from arkflow_kernel.errors import ProcessingError, ResourceError
from arkflow_ray.components.api import BuildContext
from arkflow_ray.components.processors import sql_engine
from arkflow_ray.components.processors.sql import ENGINES_MAX, SqlOperator, build
from arkflow_ray.components.processors.sql_config import SqlConfig
from arkflow_ray.components.processors.sql_engine import PLANS_MAX, RUNS_MAX, Planning, SqlEngine

BATCH = pa.record_batch(
    {"userId": [3, 1, 2, 1], "value": [1.5, None, 2.5, 4.0], "name": ["ß", "b", None, "b"]}
)


def opened(query: str, workers: int = 1, **fields: Any) -> SqlOperator:
    config = SqlConfig.model_validate({"query": query, **fields})
    operator = build(config, BuildContext("q", workers=workers))
    operator.open()
    return operator


def rows(query: str, batch: pa.RecordBatch = BATCH, **fields: Any) -> list[dict[str, Any]]:
    found = opened(query, **fields).process(batch, NOWHERE).batches
    return [row for part in found for row in part.to_pylist()]


def test_filter_and_projection_keep_the_order_of_the_rows() -> None:
    assert rows('SELECT "userId" AS u, upper(name) AS n FROM flow WHERE "userId" < 3') == [
        {"u": 1, "n": "B"},
        {"u": 2, "n": None},
        {"u": 1, "n": "B"},
    ]


def test_text_functions_are_datafusions() -> None:
    assert rows("SELECT upper(name) AS n FROM flow LIMIT 1") == [{"n": "SS"}]


def test_result_columns_have_datafusions_names() -> None:
    assert rows("SELECT sum(value), count(*) FROM flow") == [
        {"sum(flow.value)": 8.0, "count(*)": 4}
    ]


def test_state_does_not_cross_batches() -> None:
    operator = opened("SELECT sum(value) AS s, max(value) AS m FROM flow")
    totals = [operator.process(BATCH.slice(i), NOWHERE).batches[0].to_pylist() for i in (0, 2, 3)]
    assert totals == [[{"s": 8.0, "m": 4.0}], [{"s": 6.5, "m": 4.0}], [{"s": 4.0, "m": 4.0}]]


def test_the_table_has_the_configured_name() -> None:
    assert rows('SELECT count(*) AS n FROM "My Table"', table_name="My Table") == [{"n": 4}]


def test_an_empty_result_has_no_batch() -> None:
    assert opened("SELECT * FROM flow WHERE false").process(BATCH, NOWHERE).batches == ()
    assert opened("SELECT * FROM flow WHERE value > 99").process(BATCH, NOWHERE).batches == ()


def test_an_empty_batch_gives_nothing_even_for_an_aggregate() -> None:
    empty = BATCH.slice(0, 0)
    assert opened("SELECT count(*) FROM flow").process(empty, NOWHERE).batches == ()


def test_nan_compares_as_in_datafusion() -> None:
    batch = pa.record_batch({"x": [float("nan"), 1.0]})
    assert len(rows("SELECT x FROM flow WHERE x > 2", batch)) == 1


def test_a_large_batch_keeps_its_order_and_rows() -> None:
    batch = pa.record_batch({"i": pa.array(range(30_000))})
    found = rows("SELECT i FROM flow WHERE i % 3 = 0", batch)
    assert [row["i"] for row in found] == list(range(0, 30_000, 3))


def test_view_types_of_a_result_become_plain_ones() -> None:
    batch = pa.record_batch(
        {
            "s": pa.array(["a"], pa.string_view()),
            "b": pa.array([b"a"], pa.binary_view()),
            "l": pa.array([["a"]], pa.list_(pa.string_view())),
            "t": pa.array([{"x": "a"}], pa.struct([("x", pa.string_view())])),
        }
    )
    [found] = opened("SELECT *, CAST(1 AS VARCHAR) AS v FROM flow").process(batch, NOWHERE).batches
    assert found.schema.types == [
        pa.string(), pa.binary(), pa.list_(pa.string()), pa.struct([("x", pa.string())]),
        pa.string(),
    ]  # fmt: skip
    assert found.to_pylist() == [{"s": "a", "b": b"a", "l": ["a"], "t": {"x": "a"}, "v": "1"}]


QUERIES = [
    "SELECT * FROM flow",
    "SELECT i, upper(s) FROM flow WHERE x > 0",
    "SELECT s, sum(i), min(x), max(x), count(*) FROM flow GROUP BY s ORDER BY s NULLS LAST",
    "SELECT min(x), max(i), max(s) FROM flow",
    "SELECT DISTINCT i FROM flow ORDER BY i",
    "SELECT i FROM flow ORDER BY x DESC, i LIMIT 2",
    "SELECT i FROM flow LIMIT 2 OFFSET 1",
    "SELECT a.i, b.s FROM flow a JOIN flow b ON a.i = b.i ORDER BY 1, 2",
    "SELECT a.i FROM flow a, flow b WHERE a.i < b.i ORDER BY 1",
    "SELECT i FROM flow WHERE i IN (SELECT max(i) FROM flow) ORDER BY 1",
    "SELECT i FROM flow WHERE EXISTS (SELECT 1 FROM flow z WHERE z.i = flow.i + 1) ORDER BY 1",
    "SELECT a.i, b.i FROM flow a LEFT JOIN flow b ON a.i = b.i + 1 ORDER BY 1, 2",
    "SELECT i, row_number() OVER (ORDER BY i, x, s) AS r FROM flow ORDER BY r",
    "SELECT i FROM flow WHERE x > 1 UNION ALL SELECT i + 100 FROM flow",
    "WITH t AS (SELECT s, avg(x) AS m FROM flow GROUP BY s) SELECT * FROM t ORDER BY s",
    "SELECT count(*) FROM flow",
    "SELECT unnest([i, i + 1]) AS u FROM flow",
    "SELECT (SELECT max(i) FROM flow) AS m, i FROM flow",
]
VALUES = st.lists(
    st.tuples(
        st.none() | st.integers(-3, 3),
        st.none() | st.sampled_from([-1.0, 0.0, 2.5, float("nan")]),
        st.none() | st.sampled_from(["a", "b", "ß"]),
    ),
    min_size=1,
    max_size=6,
)
TYPES: dict[str, pa.DataType] = {"i": pa.int64(), "x": pa.float64(), "s": pa.string()}
SCHEMA = pa.schema(TYPES)


def to_batch(values: list[tuple[Any, Any, Any]]) -> pa.RecordBatch:
    columns = [list(column) for column in zip(*values, strict=True)]
    return pa.record_batch(columns, schema=SCHEMA)


def by_fresh_session(query: str, batch: pa.RecordBatch) -> list[str]:
    session = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
    session.register_record_batches("flow", [[batch]])
    plan = session.sql(query).execution_plan()
    parts = [
        part.to_pyarrow()
        for partition in range(plan.partition_count)
        for part in session.execute(plan, partition)
    ]
    return [repr(row) for part in parts for row in part.to_pylist()]


KEPT = {query: SqlEngine(query, "flow") for query in QUERIES}


@pytest.mark.parametrize("query", QUERIES)
def test_a_kept_plan_gives_what_a_fresh_session_gives(query: str) -> None:
    engine = KEPT[query]

    @settings(max_examples=6, deadline=None)
    @given(values=VALUES)
    def check(values: list[tuple[Any, Any, Any]]) -> None:
        batch = to_batch(values)
        ours = [repr(row) for part in engine.run(batch) for row in part.to_pylist()]
        assert ours == by_fresh_session(query, batch)

    check()


@pytest.mark.parametrize(
    ("query", "planning"),
    [
        ("SELECT i, upper(s) FROM flow WHERE x > 0", Planning.STEPS),
        ("SELECT s, sum(i) FROM flow GROUP BY s", Planning.STEPS),
        ("SELECT json_get_int(s, 'a') FROM flow", Planning.STEPS),
        ("SELECT i FROM flow ORDER BY x LIMIT 2", Planning.QUERY),
        ("SELECT a.i FROM flow a JOIN flow b ON a.i = b.i", Planning.QUERY),
        ("SELECT now(), i FROM flow", Planning.NOTHING),
        ("SELECT current_timestamp, i FROM flow", Planning.NOTHING),
        ("SELECT 'now()' AS t, i FROM flow", Planning.STEPS),
    ],
)
def test_what_is_kept_depends_on_what_the_plan_holds(query: str, planning: Planning) -> None:
    assert SqlEngine(query, "flow").planning_of(SCHEMA) is planning


def test_the_clock_goes_on_from_batch_to_batch() -> None:
    operator = opened("SELECT CAST(now() AS BIGINT) AS t FROM flow LIMIT 1")

    def read() -> int:
        return int(operator.process(BATCH, NOWHERE).batches[0].column(0)[0].as_py())

    first = read()
    before = time.time_ns()
    assert first < before <= read()


def test_another_schema_is_planned_and_the_number_of_plans_is_bounded() -> None:
    engine = SqlEngine("SELECT * FROM flow", "flow")
    for width in range(1, PLANS_MAX + 6):
        batch = pa.record_batch({f"c{i}": [i] for i in range(width)})
        assert engine.run(batch)[0].num_columns == width
    assert engine.kept_plans == PLANS_MAX
    assert engine.run(pa.record_batch({"c0": [7]}))[0].to_pylist() == [{"c0": 7}]


def test_metadata_of_a_batch_is_no_part_of_its_schema() -> None:
    engine = SqlEngine("SELECT count(*) AS n, max(a) AS m FROM flow", "flow")
    plain = pa.record_batch({"a": [1]})
    field = pa.field("a", pa.int64(), metadata={"k": "v"})
    marked = pa.RecordBatch.from_arrays([pa.array([2])], schema=pa.schema([field], {"m": "n"}))
    assert [engine.run(b)[0].to_pylist() for b in (marked, plain, marked)] == [
        [{"n": 1, "m": 2}],
        [{"n": 1, "m": 1}],
        [{"n": 1, "m": 2}],
    ]
    assert engine.kept_plans == 1


def test_no_batch_and_no_table_stays_behind_a_run() -> None:
    engine = SqlEngine("SELECT * FROM flow", "flow")
    engine.run(BATCH)
    assert engine._slot.batch is None
    assert not engine._context.table_exist("flow")


def test_a_batch_after_a_failed_one_is_processed() -> None:
    operator = opened("SELECT CAST(name AS INT) AS n FROM flow")
    with pytest.raises(ProcessingError, match="Cannot cast string 'ß'"):
        operator.process(BATCH, NOWHERE)
    good = pa.record_batch({"name": ["7"]})
    assert operator.process(good, NOWHERE).batches[0].to_pylist() == [{"n": 7}]


def test_a_column_in_the_wrong_case_gets_the_quoted_spelling_as_a_hint() -> None:
    with pytest.raises(ProcessingError) as caught:
        rows("SELECT userId FROM flow")
    assert caught.value.cause == (
        'no column "userid"; names without quotes are read in lower case: write "userId" in '
        'double quotes; the batch has "userId", "value", "name"'
    )
    assert caught.value.row == '{"userId":3,"value":1.5,"name":"ß"}'


def test_an_unknown_column_lists_the_columns() -> None:
    with pytest.raises(ProcessingError, match=r'no column "nope"; the batch has "userId", "value"'):
        rows("SELECT flow.nope FROM flow")


def test_a_column_twice_in_a_batch_is_refused_with_its_name() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(ProcessingError, match="has the column a twice"):
        rows("SELECT * FROM flow", batch)


def test_a_result_above_the_bound_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_engine, "RESULT_BYTES_MAX", 1_000_000)
    batch = pa.record_batch({"i": pa.array(range(600))})
    with pytest.raises(ProcessingError, match="above 0 MiB; narrow") as caught:
        rows("SELECT a.i, b.i AS j FROM flow a CROSS JOIN flow b", batch)
    assert caught.value.error_class == ResourceError.__name__


def test_several_threads_get_an_engine_each_up_to_the_bound() -> None:
    operator = opened("SELECT sum(value) AS s FROM flow", workers=9)
    assert operator._engines.qsize() == ENGINES_MAX
    wrong: list[Any] = []

    def work(offset: int) -> None:
        batch = pa.record_batch({"value": [float(offset)] * 10})
        for _ in range(10):
            found = operator.process(batch, NOWHERE).batches[0].to_pylist()
            if found != [{"s": offset * 10.0}]:
                wrong.append(found)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert operator._engines.qsize() == ENGINES_MAX


def test_the_configuration_module_does_not_load_the_engine() -> None:
    code = (
        "import sys, arkflow_ray.components.processors.sql_config as c; "
        "c.SqlConfig(query='SELECT 1'); sys.exit('datafusion' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_plan_is_renewed_before_the_traces_of_its_runs_pile_up() -> None:
    engine = SqlEngine("SELECT sum(a) AS s FROM flow", "flow")
    batch = pa.record_batch({"a": [1, 2]})
    plans = set()
    held = []
    for _ in range(2 * RUNS_MAX + 1):
        assert engine.run(batch)[0].column(0)[0].as_py() == 3
        steps = engine._plan_for(batch.schema).steps
        held.append(steps)
        plans.add(id(steps))
    assert len(plans) == 3


def test_a_slice_of_a_struct_in_a_struct_is_read() -> None:
    batch = pa.record_batch({"a": [{"y": {"x": i}} for i in range(3)]}).slice(2)
    assert rows("SELECT a['y']['x'] AS x FROM flow", batch) == [{"x": 2}]
