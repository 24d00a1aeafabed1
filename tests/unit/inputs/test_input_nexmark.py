"""Input `nexmark`: rows are functions of the seed and the event's number, whoever reads them."""

import hashlib
from collections.abc import Sequence as Seq
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkflow_kernel.errors import ConfigError, SourceError
from arkflow_kernel.ids import MonotonicMs, SplitId
from arkflow_kernel.plan import ComponentPlan
from arkflow_kernel.ports import SourceBatch, SourceEnded, SourceReader, SplitPosition
from arkflow_kernel.split_assignment import assigned
from arkflow_kernel.split_dealing import listed_splits
from arkflow_kernel.testing.port_contracts import check_source_reader
from arkflow_ray.components.api import BuildContext, ComponentKind
from arkflow_ray.components.building import build_component, subtasks_max
from arkflow_ray.components.codecs.json_encode import encode_lines

KINDS = ("person", "auction", "bid")
Row = dict[str, Any]


def made(kind: str, columns: frozenset[str] | None = None, **config: Any) -> SourceReader:
    plan = ComponentPlan("nexmark", {"kind": kind, **config})
    context = BuildContext("source", columns=columns)
    return cast(SourceReader, build_component(ComponentKind.INPUT, plan, context))


def batches(reader: SourceReader, limit: int = 10_000) -> list[SourceBatch]:
    found: list[SourceBatch] = []
    while len(found) < limit and isinstance(result := reader.read(MonotonicMs(0)), SourceBatch):
        found.append(result)
    return found


def table(kind: str, columns: frozenset[str] | None = None, **config: Any) -> pa.Table:
    reader = made(kind, columns, **config)
    reader.open([])
    return pa.Table.from_batches([batch.batch for batch in batches(reader)])


def rows(kind: str, *columns: str, **config: Any) -> list[Row]:
    found: list[Row] = table(kind, frozenset(columns), **config).to_pylist()
    return found


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_rest_are_bids() -> None:
    for events in (1, 2, 4, 5, 49, 50, 51, 54, 1_000, 1_003):
        kinds = [0 if n % 50 == 0 else 1 if n % 50 < 4 else 2 for n in range(events)]
        found = [made(kind, events=events) for kind in KINDS]
        for reader in found:
            reader.open([])
        counts = [sum(b.batch.num_rows for b in batches(reader)) for reader in found]
        assert counts == [kinds.count(kind) for kind in range(3)]


def test_the_time_of_an_event_is_that_of_its_number() -> None:
    config: dict[str, Any] = {"events": 200, "first_event_ms": 1_000_000, "inter_event_us": 2_500}
    for kind, offsets in (("person", [0]), ("auction", [1, 2, 3]), ("bid", range(4, 50))):
        numbers = [50 * n + offset for n in range(4) for offset in offsets]
        assert times(kind, **config).tolist() == [
            1_000_000 + number * 2_500 // 1_000 for number in numbers
        ]


def test_rows_may_be_out_of_order_by_the_bound_and_no_more() -> None:
    for kind in KINDS:
        config: dict[str, Any] = {"events": 20_000, "inter_event_us": 1_000}
        back = times(kind, **config) - times(kind, **config, out_of_orderness_ms=250)
        assert back.min() >= 0
        assert 240 <= back.max() <= 250


def times(kind: str, **config: Any) -> np.ndarray[Any, Any]:
    return table(kind, **config).column("date_time").to_numpy().astype(np.int64)


def test_ids_of_the_three_tables_agree() -> None:
    people = rows("person", "id", events=60_000)
    columns = ("id", "seller", "category", "initial_bid", "reserve", "date_time", "expires")
    auctions = rows("auction", *columns, events=60_000)
    bids = rows("bid", "auction", "bidder", events=60_000)
    assert [row["id"] for row in people] == list(range(1_000, 2_200))
    assert [row["id"] for row in auctions] == list(range(1_000, 4_600))
    assert max(row["seller"] for row in auctions) <= 2_199 + 10
    assert max(row["bidder"] for row in bids) <= 2_199 + 10
    for number, row in enumerate(bids):
        last = 1_000 + number // 46 * 3 + 2
        near = last - 100 <= row["auction"] <= last + 10
        assert near or row["auction"] == 1_000 + (last - 1_000) // 100 * 100
    assert {row["category"] for row in auctions} == set(range(10, 15))
    assert all(row["initial_bid"] < row["reserve"] for row in auctions)
    assert all(row["date_time"] < row["expires"] for row in auctions)


def test_hot_ones_get_their_share() -> None:
    bids = rows("bid", "auction", "bidder", events=50_000)
    auctions = rows("auction", "seller", events=50_000)
    hot = sum(row["auction"] % 100 == 0 for row in bids) / len(bids)
    by_hot = sum(row["bidder"] % 100 == 1 for row in bids) / len(bids)
    of_hot = sum(row["seller"] % 100 == 0 for row in auctions) / len(auctions)
    assert (round(hot, 1), round(by_hot, 2), round(of_hot, 1)) == (0.5, 0.75, 0.8)
    cold = rows("bid", "auction", events=50_000, hot_auction_ratio=1, hot_bidder_ratio=1)
    assert sum(row["auction"] % 100 == 0 for row in cold) < len(cold) / 50


def test_prices_are_even_on_a_logarithmic_scale() -> None:
    prices = [row["price"] for row in rows("bid", "price", events=50_000)]
    assert min(prices) >= 100
    assert max(prices) <= 100_000_000
    for decade in range(2, 8):
        share = sum(10**decade <= price < 10 ** (decade + 1) for price in prices) / len(prices)
        assert abs(share - 1 / 6) < 0.01


def test_channels_are_four_hot_ones_and_ten_thousand_others_with_their_own_address() -> None:
    addresses: dict[str, set[str]] = {}
    for row in rows("bid", "channel", "url", events=50_000):
        addresses.setdefault(row["channel"], set()).add(row["url"])
    assert {len(urls) for urls in addresses.values()} == {1}
    assert {"Google", "Facebook", "Baidu", "Apple"} < set(addresses)
    assert len(addresses) > 5_000
    tagged = [name for name, urls in addresses.items() if "&channel_id=" in min(urls)]
    assert 0.85 < len(tagged) / len(addresses) < 0.95
    assert not {"Google", "Facebook", "Baidu", "Apple"} & set(tagged)


def test_records_have_the_sizes_of_the_benchmark() -> None:
    for kind, size in (("person", 200), ("auction", 500), ("bid", 200)):
        found = table(kind, events=5_000)
        assert 0.8 < found.nbytes / found.num_rows / size < 1.2


def test_columns_that_nobody_looks_at_are_not_made_and_change_no_other() -> None:
    for kind in KINDS:
        whole = table(kind, events=500)
        for name in whole.column_names:
            assert table(kind, frozenset({name, "other"}), events=500) == whole.select([name])
        assert table(kind, frozenset(), events=500).num_rows == whole.num_rows


@pytest.mark.parametrize(
    ("kind", "digest"),
    [("person", "9e78d01f35e598fb"), ("auction", "8cee2b0ae8a732d7"), ("bid", "d1592acc0e11e76b")],
)
def test_the_rows_of_a_seed_never_change(kind: str, digest: str) -> None:
    """Positions in checkpoints are of these rows, and so are figures that were published."""
    found = table(kind, events=5_000, seed=42, out_of_orderness_ms=20).combine_chunks()
    text = b"".join(encode_lines(batch) for batch in found.to_batches())
    assert hashlib.blake2b(text, digest_size=8).hexdigest() == digest


@pytest.mark.parametrize("splits", [1, 3])
def test_it_restores_at_every_batch(splits: int) -> None:
    history = check_source_reader(
        lambda: made("auction", _CHECKED, events=4_000, splits=splits, batch_rows=30)
    )
    assert sum(len(found) for found in history.rows().values()) == 240


@settings(max_examples=25, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    events=st.integers(0, 9_000),
    splits=st.integers(1, 5),
    attempts=st.lists(
        st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(1, 700)), max_size=4
    ),
)
def test_the_rows_are_those_of_one_split_however_subtasks_and_batches_change(
    kind: str, events: int, splits: int, attempts: list[tuple[int, int, int]]
) -> None:
    def make(batch_rows: int) -> SourceReader:
        return made(kind, _CHECKED, events=events, splits=splits, batch_rows=batch_rows)

    places: dict[SplitId, SplitPosition] = {}
    found: list[tuple[Any, ...]] = []
    for parallelism, limit, batch_rows in (*attempts, (2, 10_000, 400)):
        known = tuple(places.values())
        shares = assigned(listed_splits(make(1), "source", known), known, parallelism)
        for share in shares:
            reader = make(batch_rows)
            reader.open([p for p in known if p.split in share.splits], share.splits)
            for batch in batches(reader, limit):
                found += _values(batch.batch)
                places[batch.split] = SplitPosition(batch.split, batch.position, batch.split_ended)
    whole = made(kind, _CHECKED, events=events)
    whole.open([])
    assert sorted(found) == sorted(row for b in batches(whole) for row in _values(b.batch))


_CHECKED = frozenset({"id", "auction", "bidder", "state", "date_time", "channel"})


def _values(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def test_splits_stay_close_in_time_while_one_subtask_reads_them_all() -> None:
    reader = made("bid", events=40_000, splits=4, batch_rows=500)
    reader.open([])
    ahead: dict[str, int] = {}
    for batch in batches(reader):
        ahead[batch.split] = ahead.get(batch.split, 0) + batch.batch.num_rows
        assert max(ahead.values()) - min(ahead.values() if len(ahead) == 4 else [0]) <= 500


def test_an_input_without_an_end_goes_on() -> None:
    reader = made("person", batch_rows=1)
    reader.open([SplitPosition(SplitId("nexmark-person"), _position(10**9))])
    (batch,) = batches(reader, 1)
    assert batch.batch.column("id").to_pylist() == [1_000 + 10**9]
    assert not batch.split_ended


def _position(made_rows: int) -> dict[str, Any]:
    reader = made("person", batch_rows=1)
    reader.open([])
    (first,) = batches(reader, 1)
    return {**first.position, "rows": made_rows}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"seed": 3}, "settings; was one of them changed"),
        ({"inter_event_us": 3}, "settings; was one of them changed"),
        ({"splits": 2}, "it has no split 'nexmark-person'; were `splits` changed"),
        ({"kind": "bid"}, "it has no split 'nexmark-person'"),
    ],
)
def test_a_position_of_other_rows_is_refused(changed: dict[str, Any], told: str) -> None:
    place = SplitPosition(SplitId("nexmark-person"), _position(5))
    other = made(**{"kind": "person", **changed})
    with pytest.raises(SourceError, match=told):
        other.open([place])
    with pytest.raises(SourceError, match="start the job without its positions"):
        listed_splits(other, "source", (place,))
    longer = made("person", events=600, batch_rows=2)
    longer.open([place])
    assert [batch.batch.num_rows for batch in batches(longer)] == [2, 2, 2, 1]


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({}, "missing required key 'kind'"),
        ({"kind": "bids"}, "must be one of 'person', 'auction', 'bid'; did you mean 'bid'"),
        ({"kind": "bid", "events": -1}, "must be at least 0"),
        ({"kind": "bid", "splits": 2_000}, "must be at most 1024"),
        ({"kind": "bid", "inter_event_us": 0}, "must be at least 1"),
        ({"kind": "bid", "hot_auction_ratio": 0}, "must be at least 1"),
        ({"kind": "bid", "seed": -1}, "must be at least 0"),
    ],
)
def test_wrong_settings_are_told(config: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        build_component(ComponentKind.INPUT, ComponentPlan("nexmark", config), BuildContext("s"))


def test_its_splits_are_what_subtasks_can_share() -> None:
    assert subtasks_max("nexmark", {"kind": "bid"}) == 1
    assert subtasks_max("nexmark", {"kind": "bid", "splits": 6}) == 6
    names: Seq[Any] = listed_splits(made("bid", splits=2), "source", ())
    assert [split.split for split in names] == ["nexmark-bid-0-of-2", "nexmark-bid-1-of-2"]
    reader = made("bid", events=0)
    reader.open([])
    assert (reader.splits(), reader.read(MonotonicMs(0))) == ((), SourceEnded())
