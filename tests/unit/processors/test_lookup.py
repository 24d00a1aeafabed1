"""Processor `lookup`: columns of a table for each row, as a dictionary would find them."""

import datetime
import json
import logging
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkflow_kernel.bad_rows import NOWHERE
from arkflow_kernel.errors import ComponentError, ConfigError, ProcessingError
from arkflow_kernel.plan import ComponentPlan
from arkflow_kernel.testing.operator_harness import check_operator
from arkflow_ray.components.api import BuildContext, ComponentKind
from arkflow_ray.components.building import build_component
from arkflow_ray.components.processors.lookup import LookupOperator

DEADLINE_S: Final = 20.0
Row = dict[str, Any]
_DATE: Final[pa.DataType] = pa.date32()

PRODUCTS: Final[list[Row]] = [
    {"id": 3, "name": "cup", "price": 2.5},
    {"id": 1, "name": "pot", "price": 9.0},
    {"id": 7, "name": None, "price": 1.25},
]


def stored(path: pathlib.Path, rows: list[Row] | pa.Table) -> pathlib.Path:
    """Put a table there in one step, as whoever writes for a reader does."""
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows)
    hidden = path.with_name(f".{path.name}")
    if path.suffix == ".parquet":
        pq.write_table(table, hidden)
    elif path.suffix == ".csv":
        pyarrow.csv.write_csv(table, hidden)
    else:
        hidden.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    hidden.rename(path)
    return path


def made(path: object, **config: Any) -> LookupOperator:
    config = {"on": "product", "key": "id", **config}
    table = {"path": str(path), **config.pop("table", {})}
    plan = ComponentPlan("lookup", {"table": table, **config})
    operator = build_component(ComponentKind.PROCESSOR, plan, BuildContext("look"))
    assert isinstance(operator, LookupOperator)
    return operator


@pytest.fixture
def opened() -> Iterator[Callable[..., LookupOperator]]:
    """An open operator: `opened(path, …)`; closed at the end."""
    operators: list[LookupOperator] = []

    def begin(path: object, **config: Any) -> LookupOperator:
        operator = made(path, **config)
        operators.append(operator)
        operator.open()
        return operator

    yield begin
    for operator in operators:
        operator.close()


def looked_up(operator: LookupOperator, rows: list[Row] | pa.RecordBatch) -> list[Row]:
    batch = rows if isinstance(rows, pa.RecordBatch) else pa.RecordBatch.from_pylist(rows)
    result = operator.process(batch, NOWHERE)
    return [row for batch in result.batches for row in batch.to_pylist()]


ORDERS: Final = [{"n": n, "product": product} for n, product in enumerate([7, 2, 3, None, 3, 1])]


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_each_row_gets_the_columns_of_its_key_whatever_the_format(
    suffix: str, tmp_path: pathlib.Path
) -> None:
    path = stored(tmp_path / f"table{suffix}", PRODUCTS)
    batch = pa.RecordBatch.from_pylist(ORDERS)
    found = {row["id"]: {"name": row["name"], "price": row["price"]} for row in PRODUCTS}
    nothing = {"name": None, "price": None}
    expected = [{**row, **found.get(row["product"], nothing)} for row in ORDERS]
    check_operator(lambda: made(path), batch, expected=expected, cuts=2)
    inner = [row for row in expected if row["product"] in found]
    check_operator(lambda: made(path, how="inner"), batch, expected=inner, cuts=2)


def test_columns_are_chosen_and_named(
    tmp_path: pathlib.Path, opened: Callable[..., LookupOperator]
) -> None:
    path = stored(tmp_path / "table.parquet", PRODUCTS)
    operator = opened(path, columns=["price", "id"], prefix="of_")
    assert looked_up(operator, ORDERS[:1]) == [{"n": 0, "product": 7, "of_price": 1.25, "of_id": 7}]
    assert looked_up(opened(path, columns=[], how="inner"), ORDERS[:3]) == [ORDERS[0], ORDERS[2]]


def test_a_key_may_be_several_columns_and_nulls_are_equal_to_nothing(
    tmp_path: pathlib.Path, opened: Callable[..., LookupOperator]
) -> None:
    rows: list[Row] = [
        {"shop": "a", "day": datetime.date(2026, 3, 1), "open": True},
        {"shop": "a", "day": datetime.date(2026, 3, 2), "open": False},
        {"shop": None, "day": datetime.date(2026, 3, 2), "open": True},
        {"shop": None, "day": datetime.date(2026, 3, 2), "open": True},
    ]
    operator = opened(stored(tmp_path / "t.parquet", rows), on=["shop", "day"], key=None)
    asked = [(row["shop"], row["day"]) for row in reversed(rows)]
    asked += [("b", rows[0]["day"]), ("a", None)]
    batch = pa.RecordBatch.from_pylist(
        [{"shop": shop, "day": day} for shop, day in asked],
        pa.schema([("shop", pa.string()), ("day", _DATE)]),
    )
    assert [row["open"] for row in looked_up(operator, batch)] == [
        None, None, False, True, None, None,
    ]  # fmt: skip


_TYPES = st.sampled_from(["int64", "int8", "float64", "uint16"])
_KEYS = st.one_of(st.none(), st.integers(-3, 12))


@settings(max_examples=40, deadline=None)
@given(
    keys=st.lists(_KEYS, max_size=12),
    asked=st.lists(_KEYS, max_size=20),
    how=st.sampled_from(["left", "inner"]),
    kinds=st.tuples(_TYPES, _TYPES),
)
def test_it_finds_what_a_dictionary_finds(
    tmp_path_factory: pytest.TempPathFactory,
    keys: list[int | None],
    asked: list[int | None],
    how: str,
    kinds: tuple[Any, Any],
) -> None:
    """The last row of a key counts; integers and integral floats are equal."""
    floor = 0 if "uint16" in kinds else -3
    keys, asked = ([None if k is None else max(k, floor) for k in side] for side in (keys, asked))
    table = pa.table({"id": pa.array(keys, kinds[0]), "place": pa.array(range(len(keys)))})
    path = stored(tmp_path_factory.mktemp("lookup") / "table.parquet", table)
    operator = made(path, how=how, on_duplicate="last")
    operator.open()
    batch = pa.RecordBatch.from_arrays(
        [pa.array(range(len(asked))), pa.array(asked, kinds[1])], names=["n", "product"]
    )
    known = {key: place for place, key in enumerate(keys) if key is not None}
    pairs = [(n, known.get(key) if key is not None else None) for n, key in enumerate(asked)]
    expected = [pair for pair in pairs if how == "left" or pair[1] is not None]
    assert [(row["n"], row["place"]) for row in looked_up(operator, batch)] == expected
    operator.close()


def test_text_keys_are_equal_whatever_their_layout(
    tmp_path: pathlib.Path, opened: Callable[..., LookupOperator]
) -> None:
    path = stored(tmp_path / "t.csv", [{"id": f"k{n}", "n": n} for n in range(300)])
    operator = opened(path)
    texts = [f"k{n}" for n in (299, 5, 5, 1_000)]
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        batch = pa.RecordBatch.from_arrays([pa.array(texts, kind)], names=["product"])
        assert [row["n"] for row in looked_up(operator, batch)] == [299, 5, 5, None]
    coded: Any = pa.array(texts).dictionary_encode()
    batch = pa.RecordBatch.from_arrays([coded], names=["product"])
    assert [row["n"] for row in looked_up(operator, batch)] == [299, 5, 5, None]


def test_a_table_in_many_pieces_and_one_without_rows_are_tables(
    tmp_path: pathlib.Path, opened: Callable[..., LookupOperator]
) -> None:
    many = tmp_path / "many.parquet"
    pq.write_table(pa.table({"id": range(100), "v": range(100)}), many, row_group_size=7)
    assert [r["v"] for r in looked_up(opened(many), [{"product": n} for n in (99, 0, 100)])] == [
        99, 0, None,
    ]  # fmt: skip
    empty = stored(tmp_path / "empty.parquet", pa.table({"id": pa.array([], "int64"), "v": []}))
    assert looked_up(opened(empty), [{"product": 1}]) == [{"product": 1, "v": None}]
    assert looked_up(opened(empty, how="inner"), [{"product": 1}]) == []


def test_types_say_what_a_column_holds(
    tmp_path: pathlib.Path, opened: Callable[..., LookupOperator]
) -> None:
    path = tmp_path / "zip.csv"
    path.write_text("zip,city\n01067,Dresden\n")
    found = looked_up(
        opened(path, on="zip", key="zip", table={"types": {"zip": "string"}}), [{"zip": "01067"}]
    )
    assert found == [{"zip": "01067", "city": "Dresden"}]
    with pytest.raises(ProcessingError, match=r"'zip' is string and the table's 'zip' is int64"):
        looked_up(opened(path, on="zip", key="zip"), [{"zip": "01067"}])


# --- what is wrong -------------------------------------------------------------------------------


def test_a_key_that_is_there_twice_is_named(tmp_path: pathlib.Path) -> None:
    rows = [{"id": 1, "shop": "a"}, {"id": 2, "shop": "b"}, {"id": 1, "shop": "a"}]
    path = stored(tmp_path / "t.jsonl", rows)
    with pytest.raises(ComponentError, match="the key id=1 is in the table more than once"):
        made(path).open()
    with pytest.raises(ComponentError, match="the key id=1, shop='a' is in the table"):
        made(path, on=["product", "at"], key=["id", "shop"]).open()


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("gone.csv", None, "cannot look at the table '.*gone.csv': FileNotFoundError"),
        ("not.parquet", "text", "cannot read the table '.*not.parquet'.*and that it is parquet"),
        ("a.csv", "name\ncup\n", "has no column 'id'; it has name"),
        ("a.jsonl", '{"id": 1}\n\n{"id": \n', "line 3 of the table '.*a.jsonl' is no row"),
        ("l.jsonl", '{"id": [1]}\n', "`key` 'id': a column of type list.* cannot be a key"),
    ],
)
def test_a_table_that_cannot_be_read_fails_the_start(
    name: str, text: str | None, told: str, tmp_path: pathlib.Path
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ComponentError, match=told):
        made(tmp_path / name).open()


def test_a_batch_without_the_column_or_with_one_of_that_name_fails(
    tmp_path: pathlib.Path, opened: Callable[..., LookupOperator]
) -> None:
    operator = opened(stored(tmp_path / "t.csv", PRODUCTS))
    with pytest.raises(ProcessingError, match=r"column 'product' is missing.*set `on` to one"):
        looked_up(operator, [{"id": 1}])
    with pytest.raises(ProcessingError, match=r"has a column 'name' already.*set a `prefix`"):
        looked_up(operator, [{"product": 1, "name": "x"}])
    assert len(looked_up(operator, [{"product": 1}])) == 1


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"table": {"path": "t"}}, "`format` to parquet, csv or json"),
        ({"table": {"path": "t.parquet", "types": {"a": "int"}}}, "no effect on parquet"),
        ({"table": {"path": "t.csv", "types": {"a": "date"}}}, "table.types"),
        ({"on": ["a", "b"]}, "`on` names 2 columns and `key` 1"),
        ({"on": ["a", "a"], "key": ["b", "c"]}, "`on` names a column twice"),
        ({"columns": ["a", "a"]}, "`columns` names a column twice"),
        ({"how": "outer"}, "must be one of 'left', 'inner'"),
        ({"refresh_interval_ms": 0}, "must be at least 1"),
    ],
)
def test_wrong_settings_are_told(config: dict[str, Any], told: str) -> None:
    given = {"table": {"path": "t.csv"}, "on": "product", "key": "id", **config}
    with pytest.raises(ConfigError, match=told):
        build_component(
            ComponentKind.PROCESSOR, ComponentPlan("lookup", given), BuildContext("look")
        )


# --- refreshes -----------------------------------------------------------------------------------


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def noted(call: Callable[[], str | None], results: list[str | None]) -> Callable[[], str | None]:
    """The same call, whose results can be read."""

    def calling() -> str | None:
        results.append(call())
        return results[-1]

    return calling


def test_a_file_that_changed_is_read_again(
    tmp_path: pathlib.Path, opened: Callable[..., LookupOperator]
) -> None:
    path = stored(tmp_path / "t.csv", [{"id": 1, "price": 5}])
    operator = opened(path, refresh_interval_ms=5)
    assert looked_up(operator, [{"product": 1}]) == [{"product": 1, "price": 5}]
    stored(path, [{"id": 1, "price": 6}, {"id": 2, "price": 7}])
    wait_until(lambda: looked_up(operator, [{"product": 2}])[0]["price"] == 7)
    assert looked_up(operator, [{"product": 1}]) == [{"product": 1, "price": 6}]


def test_a_file_that_is_as_it_was_is_not_read_again(
    tmp_path: pathlib.Path, opened: Callable[..., LookupOperator], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stored(tmp_path / "t.csv", PRODUCTS)
    operator = opened(path, refresh_interval_ms=5)
    looks: list[str | None] = []
    look = operator._file.state
    monkeypatch.setattr(operator._file, "state", noted(look, looks))
    before = operator._table
    wait_until(lambda: len(looks) > 3)
    assert operator._table is before
    assert len(set(looks)) == 1


def test_a_store_that_tells_too_little_is_read_each_time(
    opened: Callable[..., LookupOperator],
) -> None:
    import fsspec  # type: ignore[import-untyped]  # it ships no types

    system = fsspec.filesystem("memory")
    system.pipe("/lookup/t.csv", b"id,price\n1,5\n")
    operator = opened("memory://lookup/t.csv", refresh_interval_ms=5)
    system.pipe("/lookup/t.csv", b"id,price\n1,8\n")
    wait_until(lambda: looked_up(operator, [{"product": 1}])[0]["price"] == 8)


def test_a_table_that_cannot_be_read_again_stays_and_that_is_told_once(
    tmp_path: pathlib.Path,
    opened: Callable[..., LookupOperator],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = stored(tmp_path / "t.csv", [{"id": 1, "price": 5}])
    operator = opened(path, refresh_interval_ms=5)
    tries: list[str | None] = []
    refreshed = operator._refreshed
    monkeypatch.setattr(operator, "_refreshed", noted(refreshed, tries))
    with caplog.at_level(logging.INFO):
        stored(path, [{"id": 2, "price": 1}, {"id": 2, "price": 2}])
        wait_until(lambda: sum(failure is not None for failure in tries) > 3)
        assert looked_up(operator, [{"product": 1}]) == [{"product": 1, "price": 5}]
        (record,) = caplog.records
        assert "the key id=2 is in the table more than once" in record.message
        assert "the table that was read before stays in use" in record.message
        stored(path, [{"id": 2, "price": 3}])
        wait_until(lambda: looked_up(operator, [{"product": 2}])[0]["price"] == 3)
        os.unlink(path)
        wait_until(lambda: len(caplog.records) == 2)
    assert "cannot look at the table" in caplog.records[1].message
    assert looked_up(operator, [{"product": 2}])[0]["price"] == 3


def test_rows_of_one_batch_see_one_table_while_it_changes(
    tmp_path: pathlib.Path, opened: Callable[..., LookupOperator]
) -> None:
    def version(number: int) -> pathlib.Path:
        return stored(tmp_path / "t.parquet", [{"id": n, "v": number} for n in range(50)])

    operator = opened(version(0), refresh_interval_ms=1)
    seen: set[int] = set()
    asked = [{"product": n % 50} for n in range(500)]
    number = 0

    def one_more() -> bool:
        nonlocal number
        if number in seen:
            number += 1
            version(number)
        values = {row["v"] for row in looked_up(operator, asked)}
        assert len(values) == 1
        seen.update(values)
        return len(seen) > 4

    wait_until(one_more)


def test_secrets_of_a_url_are_not_told() -> None:
    operator = made("memory://user:hidden@lookup/none.csv")
    with pytest.raises(ComponentError) as caught:
        operator.open()
    assert "hidden" not in str(caught.value)
    assert "memory://***lookup/none.csv" in str(caught.value)


def test_close_ends_the_thread(tmp_path: pathlib.Path) -> None:
    operator = made(stored(tmp_path / "t.csv", PRODUCTS), refresh_interval_ms=60_000)
    operator.open()
    thread = operator._refresher
    assert thread is not None
    operator.close()
    assert not thread.is_alive()
