"""Keys and values come back to the bit from a run, and from a local file (S5, S8, S10, S11)."""

import datetime
import decimal
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from arkflow_kernel.errors import RestoreError
from arkflow_kernel.state.arrow_numpy import AnyArray
from arkflow_kernel.state.run_format import parsed_type
from tests.kernel.state.snapshot_bench import Chain, Objects

pytestmark = pytest.mark.thorough

NAN_WITH_PAYLOAD = np.array([0x7FF8_0000_0000_BEEF], np.uint64).view(np.float64)[0]
TIME = datetime.datetime(2024, 2, 29, 12, 30, 1, 234567, datetime.UTC)

VALUES: list[AnyArray] = [
    pa.array([2**53 + 1, -(2**63), None, 2**63 - 1]),
    pa.array([2**64 - 1, 0, None], pa.uint64()),
    pa.array([-128, None, 127], pa.int8()),
    pa.array([True, None, False]),
    pa.array([-0.0, 0.1, NAN_WITH_PAYLOAD, float("-inf"), None], from_pandas=False),
    pa.array([np.float32(0.1), None], pa.float32()),
    pa.array([np.float16(0.1), None], pa.float16()),
    pa.array([decimal.Decimal("123456789012345678.90"), None], pa.decimal128(20, 2)),
    pa.array([decimal.Decimal("-1.5"), None], pa.decimal256(60, 1)),
    pa.array([TIME, None], pa.timestamp("us", "Europe/Berlin")),
    pa.array([TIME.replace(tzinfo=None), None], pa.timestamp("ns")),
    pa.array([TIME.date(), None], pa.date32()),
    pa.array([TIME.time(), None], pa.time64("us")),
    pa.array([datetime.timedelta(days=9), None], pa.duration("ms")),
    pa.array(["", "ü", None, "x" * 500]),
    pa.array(["a", None, "a text longer than a view holds"], pa.string_view()),
    pa.array(["a", None], pa.large_string()),
    pa.array([b"\0\xff", None, b""]),
    pa.array([b"12345", None], pa.binary(5)),
]

KEYS: list[AnyArray] = [
    *(v for v in VALUES if not pa.types.is_float16(v.type)),
    pa.array([None], pa.null()),
    pa.array([1, 2**63, None, 2**64 - 1], pa.uint64()),
]


def bits(values: AnyArray) -> list[Any]:
    """Values as they lie in memory; None for a null."""
    if pa.types.is_floating(values.type):
        code = {16: "e", 32: "f", 64: "d"}[values.type.bit_width]
        memory = values.to_numpy(zero_copy_only=False)
        raw = memory.astype(np.dtype(code)).tobytes()
        each = struct.iter_unpack(f"{values.type.bit_width // 8}s", raw)
        nulls = values.is_null().to_pylist()
        return [None if null else one for (one,), null in zip(each, nulls, strict=True)]
    if pa.types.is_timestamp(values.type) or pa.types.is_duration(values.type):
        return values.cast(pa.int64()).to_pylist()
    return values.to_pylist()


def _told(chain: Chain) -> list[tuple[Any, ...]]:
    """Keys and values of every entry, bit by bit, in any order."""
    rows = []
    for piece in chain.state[0].entries():
        assert piece.values.type == chain.value_type
        types = [str(key.type) for key in piece.keys]
        keys = zip(*map(bits, piece.keys), strict=True)
        for group, key, value in zip(piece.groups.tolist(), keys, bits(piece.values), strict=True):
            rows.append((group, key, value, types))
    return sorted(rows, key=repr)


@pytest.mark.parametrize("budget", [None, 1], ids=["in-memory", "spilled"])
@pytest.mark.parametrize("values", VALUES, ids=lambda values: str(values.type))
def test_values_come_back_to_the_bit(values: Any, budget: int | None, tmp_path: Path) -> None:
    objects = Objects(tmp_path)
    given: Any = {"value_type": values.type, "memory_bytes": budget}
    chain = Chain(objects, **given)
    chain.put(pa.array(range(len(values))), values)
    found = {key[0]: value for _, key, value, _ in _told(chain)}
    assert [found[number] for number in range(len(values))] == bits(values)
    restored = chain.take(1).restored(Chain(objects, generation=2, **given))
    assert _told(restored) == _told(chain)
    with restored.journal.item():
        keys = restored.state[0].keys(restored.batch(pa.array(range(len(values)))))
        read = restored.state[0].get(keys)
    assert read.present.all()
    assert bits(read.values) == bits(values)
    assert restored.state[0].live_bytes == chain.state[0].live_bytes


@pytest.mark.parametrize("budget", [None, 1], ids=["in-memory", "spilled"])
@pytest.mark.parametrize("keys", KEYS, ids=lambda keys: str(keys.type))
def test_keys_of_every_type_are_found_again(keys: Any, budget: int | None, tmp_path: Path) -> None:
    """Their types and groups too: a ledger that is restored is the one that was written."""
    objects = Objects(tmp_path)
    chain = Chain(objects, fields=("k", "l"), memory_bytes=budget)
    other = pa.array([f"row {row}" for row in range(len(keys))])
    assert chain.count(keys, other) == [1] * len(keys)
    given: Any = {"fields": ("k", "l"), "memory_bytes": budget}
    restored = chain.take(1).restored(Chain(objects, generation=2, **given))
    assert _told(restored) == _told(chain)
    assert restored.state[0].types == chain.state[0].types
    assert restored.state[0].live_bytes == chain.state[0].live_bytes
    assert restored.count(keys, other) == [2] * len(keys)
    again = restored.take(2).restored(Chain(objects, generation=3, **given))
    assert again.count(keys, other) == [3] * len(keys)


@pytest.mark.parametrize("budget", [None, 1], ids=["in-memory", "spilled"])
def test_integers_among_float_keys_keep_every_bit(budget: int | None, tmp_path: Path) -> None:
    """S8, S10: the column became Float64, which does not hold them."""
    objects = Objects(tmp_path)
    chain = Chain(objects, memory_bytes=budget)
    large = [2**53 + 1, 2**53 + 3, -(2**63), 2**63 - 1]
    chain.count(large)
    chain.count(pa.array([2**64 - 1], pa.uint64()))
    chain.count([0.5, float("nan")])
    restored = chain.take(1).restored(Chain(objects, generation=2, memory_bytes=budget))
    assert restored.state[0].types == (pa.float64(),)
    assert restored.count(large) == [2] * 4
    assert restored.count(pa.array([2**64 - 1], pa.uint64())) == [2]
    assert restored.count([0.5, float("nan")]) == [2, 2]
    assert restored.count([float(2**53 + 2), float(2**63)]) == [1, 1], "near, and not equal"


def test_a_type_that_is_not_known_is_named() -> None:
    with pytest.raises(RestoreError, match=r"type 'list<item: int8>'"):
        parsed_type(str(pa.list_(pa.int8())))
