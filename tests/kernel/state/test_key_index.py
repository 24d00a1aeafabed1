"""The hash table: hashes that collide, keys inserted and taken back, compaction (S1)."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkflow_kernel.state import key_form, key_rows
from arkflow_kernel.state.growing import Words
from arkflow_kernel.state.key_form import KeyPart, hash_bytes
from arkflow_kernel.state.key_index import KeyIndex

pytestmark = pytest.mark.thorough


def _keys(values: list[Any]) -> key_rows.KeyRows:
    return key_rows.key_rows([pa.array(values)])


def _inserted(index: KeyIndex, keys: key_rows.KeyRows) -> list[int]:
    missing = np.flatnonzero(index.find(keys) < 0)
    if len(missing):
        index.insert(keys, missing)
    return [int(slot) for slot in index.find(keys)[keys.codes]]


@pytest.fixture(params=["hashes differ", "half of each hash is equal", "all hashes are equal"])
def hashing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How well the keys' hashes tell them apart."""
    honest = key_form.combined_hashes

    def poor(parts: tuple[KeyPart, ...]) -> Words:
        if request.param == "all hashes are equal":
            return np.zeros(len(parts[0].words), np.uint64)
        return honest(parts) & np.uint64(0xFFFF)

    def same(values: Any) -> Words:
        return np.zeros(len(values), np.uint64)

    if request.param != "hashes differ":
        monkeypatch.setattr(key_rows, "combined_hashes", poor)
        monkeypatch.setattr(key_form, "hash_bytes", same)


@pytest.mark.usefixtures("hashing")
@pytest.mark.parametrize("kind", ["int", "text"])
def test_keys_keep_their_slots_however_their_hashes_collide(kind: str) -> None:
    index = KeyIndex(1)
    slots: dict[Any, int] = {}
    for start in (0, 10, 5, 40):
        names = [n if kind == "int" else f"k{n}" for n in range(start, start + 25)]
        for name, slot in zip(names, _inserted(index, _keys(names)), strict=True):
            assert slots.setdefault(name, slot) == slot
    assert sorted(slots.values()) == list(range(len(slots)))
    assert index.find(_keys([-5] if kind == "int" else ["k"])).tolist() == [-1]


@pytest.mark.usefixtures("hashing")
def test_what_is_inserted_last_can_be_taken_back() -> None:
    index = KeyIndex(1)
    _inserted(index, _keys(list(range(20))))
    _inserted(index, _keys(list(range(20, 50))))
    index.truncate(20)
    assert index.find(_keys(list(range(50)))).tolist() == [*range(20), *([-1] * 30)]
    assert _inserted(index, _keys([49, 3])) == [20, 3]


def test_keys_are_found_when_what_made_their_table_grow_is_taken_back() -> None:
    index = KeyIndex(1)
    known = _keys(list(range(2_000)))
    _inserted(index, known)
    small = index.size_bytes
    _inserted(index, _keys(list(range(2_000, 6_000))))
    assert index.size_bytes > small, "the table has grown"
    index.truncate(2_000)
    assert index.find(known).tolist() == list(range(2_000))
    assert _inserted(index, _keys([5_999, 7])) == [2_000, 7]
    index.truncate(2_000)
    assert index.find(known).tolist() == list(range(2_000))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.lists(st.integers(0, 9_000), max_size=40), st.booleans())))
def test_an_index_says_what_a_dict_says(batches: list[tuple[list[int], bool]]) -> None:
    index = KeyIndex(1)
    model: dict[str | None, int] = {}
    for numbers, compacts in batches:
        names = [None if n == 0 else "x" * (n % 13) + str(n) for n in numbers]
        for name in names:
            model.setdefault(name, len(model))
        assert _inserted(index, _keys(names)) == [model[name] for name in names]
        if compacts:
            kept = list(model)[::2]
            index.keep(np.arange(len(model))[::2])
            model = {name: slot for slot, name in enumerate(kept)}
    assert index.size == len(model)


def test_a_table_grows_with_its_keys_and_shrinks_when_they_go() -> None:
    index = KeyIndex(1)
    _inserted(index, _keys(list(range(100_000))))
    assert _inserted(index, _keys([99_999, 0])) == [99_999, 0]
    large = index.size_bytes
    index.keep(np.array([7, 99_999]))
    assert index.find(_keys([99_999, 7, 8])).tolist() == [1, 0, -1]
    assert index.size_bytes < large // 10


def test_a_text_column_may_begin_with_nulls() -> None:
    index = KeyIndex(1)
    assert _inserted(index, key_rows.key_rows([pa.nulls(2)])) == [0, 0]
    assert _inserted(index, _keys(["a", None, "b"])) == [1, 0, 2]
    assert _inserted(index, key_rows.key_rows([pa.nulls(1)])) == [0]
    assert _inserted(index, _keys(["b", "c"])) == [2, 3]
    index.truncate(2)
    assert _inserted(index, _keys(["c", "a"])) == [2, 1]


@given(st.lists(st.one_of(st.binary(max_size=40), st.binary(min_size=120, max_size=300))))
def test_bytes_hash_by_their_content_alone(values: list[bytes]) -> None:
    column = pa.array([b"before", *values, b"behind"], pa.large_binary()).slice(1, len(values))
    alone = [int(hash_bytes(pa.array([value], pa.large_binary()))[0]) for value in values]
    assert hash_bytes(column).tolist() == alone
    assert len(set(alone)) == len(set(values))
