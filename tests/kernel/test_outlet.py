"""Outlets: where rows go, in which order, and what is refused (G2, G3, E3, E7, T2)."""

import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.graph import key_group_range
from arkflow_kernel.ids import ChainId, ChannelId, EdgeId, OutputId
from arkflow_kernel.key_groups import key_groups
from arkflow_kernel.limits import MIB, SLICE_BYTES_MAX, SLICE_ROWS_MAX
from arkflow_kernel.metrics import KeyGroupRows
from arkflow_kernel.outlet import OutletRouter, owners_of_key_groups
from arkflow_kernel.plan import ChannelPlan, EdgeKind, OutletPlan
from arkflow_kernel.protocol import Piece

MANY = 3


def outlet(
    kind: EdgeKind, channels: int = MANY, keys: Sequence[str] = (), groups: int = 128
) -> OutletRouter:
    """A router of edge `e` with channels `e[0-0]`, `e[0-1]`, …"""
    plans = [
        ChannelPlan(ChannelId(f"e[0-{i}]"), i, EdgeId("e"), ChainId("a-0"), ChainId(f"b-{i}"))
        for i in range(channels)
    ]
    return OutletRouter(OutletPlan(OutputId("e"), kind, tuple(plans), tuple(keys), groups), "last")


def batch(rows: int, first: int = 0) -> pa.RecordBatch:
    """Rows with a number `n`, and a text `k` that repeats."""
    numbers = range(first, first + rows)
    return pa.RecordBatch.from_pydict({"n": list(numbers), "k": [f"key-{n % 7}" for n in numbers]})


def numbers(pieces: list[Piece], channels: int = MANY) -> list[list[int]]:
    """The rows `n` of each channel, in order."""
    found: dict[str, list[int]] = {f"e[0-{i}]": [] for i in range(channels)}
    for piece in pieces:
        found[piece.output] += piece.batch.column("n").to_numpy().tolist()
    return list(found.values())


# --- forward, broadcast, rebalance --------------------------------------------------------------


@pytest.mark.parametrize("kind", EdgeKind)
def test_one_channel_gets_every_batch_as_it_is(kind: EdgeKind) -> None:
    rows = batch(5)
    (piece,) = outlet(kind, 1, ["no such field"]).route(rows)
    assert piece.output == "e[0-0]"
    assert piece.batch is rows


@pytest.mark.parametrize("kind", EdgeKind)
@pytest.mark.parametrize("channels", [1, MANY])
def test_a_batch_without_rows_goes_nowhere(kind: EdgeKind, channels: int) -> None:
    if kind is not EdgeKind.FORWARD or channels == 1:
        assert outlet(kind, channels, ["k"]).route(batch(0)) == []


def test_broadcast_gives_the_same_batch_to_every_channel() -> None:
    rows = batch(5)
    pieces = outlet(EdgeKind.BROADCAST).route(rows)
    assert [piece.output for piece in pieces] == ["e[0-0]", "e[0-1]", "e[0-2]"]
    assert all(piece.batch is rows for piece in pieces)


@pytest.mark.parametrize("kind", [EdgeKind.REBALANCE, EdgeKind.ERROR, EdgeKind.LATE])
def test_small_batches_go_round_whole(kind: EdgeKind) -> None:
    router = outlet(kind)
    turns = [router.route(batch(2, 2 * i)) for i in range(4)]
    assert [piece.output for (piece,) in turns] == ["e[0-0]", "e[0-1]", "e[0-2]", "e[0-0]"]


def test_rebalance_cuts_one_big_batch_so_that_its_rows_spread() -> None:
    pieces = outlet(EdgeKind.REBALANCE).route(batch(3 * SLICE_ROWS_MAX))
    assert [len(rows) for rows in numbers(pieces)] == [SLICE_ROWS_MAX] * 3


def test_threads_share_the_turns_evenly() -> None:
    router = outlet(EdgeKind.REBALANCE)
    routed: list[Piece] = []

    def work() -> None:
        for _ in range(300):
            routed.extend(router.route(batch(1)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(rows) for rows in numbers(routed)] == [400, 400, 400]


def test_an_outlet_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="'e' has no channel"):
        outlet(EdgeKind.FORWARD, 0)
    with pytest.raises(ValueError, match="'e' has 2 channels"):
        outlet(EdgeKind.FORWARD, 2)
    with pytest.raises(ValueError, match="5 subtasks cannot share 4"):
        outlet(EdgeKind.PARTITIONED, 5, ["k"], 4)


# --- partitioned --------------------------------------------------------------------------------


@given(st.integers(1, 300), st.integers(1, 300))
def test_the_owner_of_a_key_group_is_the_subtask_whose_range_holds_it(one: int, two: int) -> None:
    parallelism, groups = sorted((one, two))
    owners = owners_of_key_groups(parallelism, groups).tolist()
    ranges = [key_group_range(i, parallelism, groups) for i in range(parallelism)]
    assert owners == [i for i, owned in enumerate(ranges) for _ in owned]


def _layout(kind: str, values: list[str | None]) -> "pa.Array[Any]":
    if kind == "dictionary":
        return pa.array(values, pa.string()).dictionary_encode()
    return pa.array(values, pa.string_view() if kind == "view" else pa.large_string())


@given(
    keys=st.lists(st.none() | st.sampled_from("abcdefghij"), max_size=60),
    channels=st.sampled_from([2, 3, 4, 16]),
    layout=st.sampled_from(["dictionary", "view", "large"]),
)
def test_each_row_reaches_the_owner_of_its_key_once_and_in_order(
    keys: list[str | None], channels: int, layout: str
) -> None:
    router = outlet(EdgeKind.PARTITIONED, channels, ["k", "part"], 16)
    rows = pa.RecordBatch.from_pydict(
        {
            "n": list(range(len(keys))),
            "k": _layout(layout, keys),
            "part": pa.array([i % 2 for i in range(len(keys))], pa.int8()),
        }
    )
    pieces = router.route(rows)
    groups = key_groups(rows, ["k", "part"], 16).tolist()
    expected: list[list[int]] = [[] for _ in range(channels)]
    for number, group in enumerate(groups):
        owner = next(i for i in range(channels) if group in key_group_range(i, channels, 16))
        expected[owner].append(number)
    assert numbers(pieces, channels) == expected
    assert all(piece.batch.num_rows for piece in pieces), "empty parts are dropped (E7)"
    for piece in pieces:
        found = piece.batch.to_pylist()
        assert [row["k"] for row in found] == [keys[row["n"]] for row in found]
        assert piece.batch.schema.field("k").type in (pa.string(), pa.large_string())


def test_without_key_fields_every_row_goes_to_the_first_channel() -> None:
    rows = batch(5)
    (piece,) = outlet(EdgeKind.PARTITIONED).route(rows)
    assert (piece.output, piece.batch is rows) == ("e[0-0]", True)


def test_a_batch_of_one_key_is_not_copied() -> None:
    rows = batch(8).filter(pa.array([n == 3 for n in range(8)]))
    (piece,) = outlet(EdgeKind.PARTITIONED, 2, ["k"]).route(rows)
    assert piece.batch is rows


# --- sizes --------------------------------------------------------------------------------------


def test_the_sizes_of_the_parts_of_a_split_are_their_shares_of_the_batch() -> None:
    rows = batch(6_000)
    pieces = outlet(EdgeKind.PARTITIONED, MANY, ["k"]).route(rows)
    assert len(pieces) > 1
    for piece in pieces:
        assert piece.size_bytes == pytest.approx(piece.batch.nbytes, rel=0.05)
        assert piece.batch.serialize().size <= 1.2 * piece.size_bytes + 2_048


@pytest.mark.parametrize("kind", [EdgeKind.FORWARD, EdgeKind.BROADCAST, EdgeKind.PARTITIONED])
def test_pieces_fit_a_slice_by_rows_and_bytes(kind: EdgeKind) -> None:
    channels = 1 if kind is EdgeKind.FORWARD else 2
    router = outlet(kind, channels, ["n"])
    wide = pa.array([b"x" * (MIB if n % 100 == 0 else 10) for n in range(3_000)])
    for rows in (
        pa.RecordBatch.from_pydict({"n": list(range(3_000)), "v": wide}),
        batch(3 * SLICE_ROWS_MAX),
    ):
        pieces = router.route(rows)
        assert all(piece.batch.num_rows <= SLICE_ROWS_MAX for piece in pieces)
        assert all(piece.size_bytes <= SLICE_BYTES_MAX for piece in pieces)
        assert all(piece.size_bytes >= piece.batch.nbytes * 0.9 for piece in pieces)
        together = sorted(n for rows in numbers(pieces, channels) for n in rows)
        assert together == sorted(
            list(range(rows.num_rows)) * (2 if kind is EdgeKind.BROADCAST else 1)
        )


def test_a_row_that_no_frame_can_hold_is_refused() -> None:
    huge = pa.RecordBatch.from_pydict({"v": [b"small", bytes(63 * MIB + 1), b"small"]})
    with pytest.raises(ProcessingError, match="that a frame can hold") as failure:
        outlet(EdgeKind.FORWARD, 1).route(huge)
    assert failure.value.operator == "last"


# --- refusals -----------------------------------------------------------------------------------


def _keyed(*values: object, kind: pa.DataType | None = None) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, kind)], names=["k"])


def test_a_missing_key_field_is_a_processing_error_that_names_edge_and_field() -> None:
    with pytest.raises(ProcessingError) as failure:
        outlet(EdgeKind.PARTITIONED, MANY, ["k"]).route(pa.RecordBatch.from_pydict({"a": [1]}))
    text = str(failure.value)
    assert "operator 'last' failed: edge 'e': partition key field 'k' is missing from batch" in text


def test_a_field_of_a_type_that_is_no_key_is_a_processing_error() -> None:
    with pytest.raises(ProcessingError, match=r"edge 'e': .*'k' has the type list<"):
        outlet(EdgeKind.PARTITIONED, MANY, ["k"]).route(_keyed([1], [2]))


def test_a_key_column_keeps_the_kind_of_its_first_value() -> None:
    router = outlet(EdgeKind.PARTITIONED, MANY, ["k"])
    router.route(_keyed(None, kind=pa.string()))
    router.route(_keyed(1, 2))
    router.route(_keyed(1.5))
    router.route(_keyed(None, None))
    router.route(_keyed(2**63, kind=pa.uint64()))
    with pytest.raises(ProcessingError) as failure:
        router.route(_keyed("1"))
    text = str(failure.value)
    assert "operator 'last'" in text
    assert "edge 'e': key field 'k' is text in this batch (string) and was number before" in text
    assert "Bring the field to one type" in text
    assert len(router.route(_keyed(7))) == 1, "the router works on"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.array([1], pa.timestamp("s")), pa.array([1], pa.timestamp("ms"))),
        (pa.array([1], pa.int64()).cast(pa.decimal128(20, 1)), pa.array([1])),
        (pa.array([b"a"]), pa.array(["a"])),
        (pa.array([True]), pa.array([1])),
    ],
)
def test_kinds_whose_equal_values_hash_apart_do_not_mix(first: Any, second: Any) -> None:
    router = outlet(EdgeKind.PARTITIONED, MANY, ["k"])
    router.route(pa.RecordBatch.from_arrays([first], names=["k"]))
    with pytest.raises(ProcessingError, match="and was"):
        router.route(pa.RecordBatch.from_arrays([second], names=["k"]))


def test_a_column_that_arrow_cannot_decode_is_a_processing_error() -> None:
    broken = pa.DictionaryArray.from_arrays(pa.array([5]), pa.array(["a"]), safe=False)
    with pytest.raises(ProcessingError, match="edge 'e': ArrowIndexError"):
        outlet(EdgeKind.FORWARD, 1).route(pa.RecordBatch.from_arrays([broken], names=["k"]))


def test_a_part_of_a_larger_batch_is_not_charged_for_all_of_it() -> None:
    whole = batch(8_000)
    (piece,) = outlet(EdgeKind.FORWARD, 1).route(whole.slice(4_000, 80))
    assert piece.size_bytes == whole.slice(4_000, 80).nbytes


# --- counts by key group ------------------------------------------------------------------------


@given(st.lists(st.integers(0, 40), max_size=5), st.sampled_from([5, 128, 1_024]))
def test_rows_are_counted_by_key_group_whatever_the_batches(sizes: list[int], groups: int) -> None:
    tested = outlet(EdgeKind.PARTITIONED, keys=["k"], groups=groups)
    counted: dict[OutputId, KeyGroupRows] = {}
    expected = [0] * groups
    for size in sizes:
        tested.route(batch(size), counted)
        for group in key_groups(batch(size), ["k"], groups).tolist():
            expected[group] += 1
    found = [0] * groups if not counted else counted[OutputId("e")].rows.tolist()
    assert found == expected


def test_rows_of_too_many_key_groups_are_not_counted() -> None:
    counted: dict[OutputId, KeyGroupRows] = {}
    outlet(EdgeKind.PARTITIONED, keys=["k"], groups=1_025).route(batch(9), counted)
    outlet(EdgeKind.REBALANCE).route(batch(9), counted)
    assert not counted
