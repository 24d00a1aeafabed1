"""Keyed state, one fact a test: keys, budget, time, memory (S1, S4, S7, S10)."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.key_groups import key_groups
from arkflow_kernel.testing.state_bench import StateBench as Bench
from arkflow_kernel.testing.state_bench import rows_of_entries as _rows_of


def test_entries_carry_the_key_group_of_their_key() -> None:
    bench = Bench()
    keys = pa.array([None, *range(5_000), *range(300)])
    bench.count(keys)
    pieces = list(bench.state.entries())
    for piece in pieces:
        again = key_groups(pa.RecordBatch.from_arrays([*piece.keys], names=["k"]), ["k"], 128)
        assert piece.groups.tolist() == again.tolist()
    groups = np.concatenate([piece.groups for piece in pieces]).tolist()
    assert groups == sorted(groups)
    assert len(groups) == 5_001


def test_integers_and_integral_floats_are_one_key_and_come_back_widened() -> None:
    bench = Bench()
    bench.count(pa.array([1, 2, 2**60], pa.int64()))
    assert bench.count(pa.array([1.0, 2.5, None])) == [2, 1, 1]
    entries = [
        (str(p.keys[0].type), row[0], row[1]) for p in bench.state.entries() for row in _rows_of(p)
    ]
    assert sorted(entries, key=repr) == [
        ("double", 1.0, 2),
        ("double", 2.0, 1),
        ("double", 2.5, 1),
        ("double", None, 1),
        ("int64", 2**60, 1),
    ], "what a Float64 cannot hold stays an integer"


def test_integers_of_all_widths_come_back_exactly() -> None:
    bench = Bench()
    bench.count(pa.array([2**64 - 1, 2**63, 5], pa.uint64()))
    bench.count(pa.array([5, -7, 2**53 + 1], pa.int64()))
    keys = [int(row[0]) for piece in bench.state.entries() for row in _rows_of(piece)]
    assert sorted(keys) == [-7, 5, 2**53 + 1, 2**63, 2**64 - 1]


def test_a_key_that_changes_from_text_to_number_is_an_error_that_names_both() -> None:
    """S10: also after a null column, which may become either."""
    bench = Bench()
    bench.count(pa.nulls(2))
    bench.count(pa.array(["a"]))
    with pytest.raises(ProcessingError, match=r"'op'.*'k'.*string.*int64"):
        bench.count(pa.array([1]))
    assert bench.count(pa.array([None, "a"])) == [3, 2]


def test_the_type_of_a_failed_item_is_forgotten_with_it() -> None:
    bench = Bench()
    with pytest.raises(ProcessingError, match="brought to one type"), bench.journal.item():
        _count_one_by_one(bench, pa.array(["a"]), pa.array([1]))
    assert bench.count(pa.array([1, 1])) == [1, 2]


def _count_one_by_one(bench: Bench, *columns: Any) -> None:
    for column in columns:
        bench.state.increment(bench.state.keys(bench.batch(column)))


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.struct([("a", pa.int64())])])
def test_a_nested_key_is_refused_by_name(kind: pa.DataType) -> None:
    bench = Bench()
    with pytest.raises(ProcessingError, match=r"'op'.*key field 'k'.*cannot be a key"):
        bench.count(pa.nulls(1, kind))  # type: ignore[call-overload]


def test_a_missing_key_column_names_the_field_the_operator_and_what_there_is() -> None:
    bench = Bench()
    batch = pa.record_batch({"other": pa.array([1])})
    with pytest.raises(ProcessingError, match=r"operator 'op'.*'k' is missing.*other"):
        bench.state.keys(batch)


def test_several_key_fields_are_one_key_field_by_field() -> None:
    bench = Bench(fields=("a", "b"))
    first = bench.batch(pa.array(["x", "xy", None, "x"]), pa.array([1, None, 1, 1]))
    second = bench.batch(pa.array(["xy", "x", None]), pa.array([None, 1.0, 2.0]))
    with bench.journal.item():
        counts = bench.state.increment(bench.state.keys(first)).to_pylist()
        counts += bench.state.increment(bench.state.keys(second)).to_pylist()
    assert counts == [1, 1, 1, 2, 2, 3, 1]
    rows = [r for p in bench.state.entries() for r in zip(*map(_list, p.keys), strict=True)]
    assert set(rows) == {("x", 1.0), ("xy", None), (None, 1.0), (None, 2.0)}
    assert bench.state.live_bytes == sum([2 + 9, 3 + 1, 1 + 9, 1 + 9]) + 4 * (2 * 4 + 8)


def _list(column: Any) -> list[Any]:
    return list(column.to_pylist())


def test_of_equal_keys_in_one_put_the_last_counts() -> None:
    bench = Bench(value_type=pa.string())
    bench.put(pa.array(["a", "b", "a"]), ["1", "2", "3"])
    assert bench.get(pa.array(["a", "b", "c"])) == ["3", "2", "absent"]


def test_a_null_value_is_there_and_a_deleted_key_is_not() -> None:
    bench = Bench()
    bench.put(pa.array([1, 2]), [None, 5])
    with bench.journal.item():
        bench.state.delete(bench.state.keys(bench.batch(pa.array([2, 3]))))
    assert bench.get(pa.array([1, 2])) == [None, "absent"]


def test_the_budget_is_exact_and_names_operator_and_bound() -> None:
    """S4: reaching it succeeds, passing it fails and nothing is half applied."""
    bench = Bench(value_type=pa.string(), max_bytes=3 * 9 + 6)
    bench.put(pa.array([1, 2, 3]), ["aa", "bb", "cc"])
    assert bench.state.live_bytes == 33
    held = bench.contents()
    for keys, values in (([1], ["aaa"]), ([4], [""]), ([1, 2, 3, 4], ["", "", "", ""])):
        with pytest.raises(ProcessingError, match=r"operator 'op'.*`max_bytes: 33`"):
            bench.put(pa.array(keys), values)
        assert bench.contents() == held
    bench.put(pa.array([1, 2]), ["aaa", "b"])
    assert bench.state.live_bytes == 33


def test_expired_entries_make_room_before_the_budget_fails() -> None:
    bench = Bench(ttl_ms=100, max_bytes=2 * 17)
    bench.count(pa.array([1]))
    bench.wall.ms += 60
    bench.count(pa.array([2]))
    bench.wall.ms += 40
    assert bench.count(pa.array([3])) == [1]
    assert bench.get(pa.array([1, 2, 3])) == ["absent", 1, 1]


def test_an_entry_lives_until_its_ttl_and_a_write_refreshes_it() -> None:
    """S7: also in the item in which it would go; a read does not refresh."""
    bench = Bench(ttl_ms=100)
    bench.count(pa.array(["a", "b"]))
    bench.wall.ms += 99
    assert bench.get(pa.array(["a", "b"])) == [1, 1]
    assert bench.count(pa.array(["a"])) == [2]
    bench.wall.ms += 1
    assert bench.count(pa.array(["a", "b"])) == [3, 1]
    bench.wall.ms += 100
    assert bench.get(pa.array(["a", "b"])) == ["absent", "absent"]


def test_a_wall_clock_that_is_set_back_brings_nothing_back() -> None:
    bench = Bench(ttl_ms=100)
    bench.count(pa.array([1]))
    bench.wall.ms += 100
    bench.count(pa.array([2]))
    bench.wall.ms -= 90
    assert bench.get(pa.array([1, 2])) == ["absent", 1]


def test_entries_that_nobody_asks_for_are_swept() -> None:
    bench = Bench(ttl_ms=100)
    for turn in range(50):
        bench.count(pa.array(range(turn * 1_000, turn * 1_000 + 1_000)))
        bench.wall.ms += 50
    assert bench.state.live_keys <= 4_000
    assert bench.state.memory_bytes < 1_000_000


def test_memory_of_deleted_keys_is_taken_back() -> None:
    bench = Bench(value_type=pa.string())
    for turn in range(30):
        keys = pa.array([f"key-{turn}-{n}" for n in range(5_000)])
        bench.put(keys, ["v" * 50] * 5_000)
        with bench.journal.item():
            bench.state.delete(bench.state.keys(bench.batch(keys.slice(1))))
    assert bench.state.live_keys == 30
    assert bench.state.memory_bytes < 6_000_000
    assert bench.get(pa.array(["key-7-0", "key-7-1"])) == ["v" * 50, "absent"]
