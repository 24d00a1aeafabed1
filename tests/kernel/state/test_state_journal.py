"""One transaction per lane item, over all states of a chain (S1-S3, R4)."""

from typing import Any

import pyarrow as pa
import pytest

from arkflow_kernel.errors import ProcessingError, ProtocolError
from arkflow_kernel.ids import OperatorId, WallMs
from arkflow_kernel.limits import MIB, STAGED_BYTES_MAX
from arkflow_kernel.state.api import StateAddress
from arkflow_kernel.state.memory import MemoryState
from arkflow_kernel.state_journal import CommitOnAck


def _journal() -> CommitOnAck:
    return CommitOnAck(lambda: WallMs(0))


def _state(
    journal: CommitOnAck, operator: str, kind: pa.DataType | None = None, name: str = "s"
) -> MemoryState:
    address = StateAddress("default", OperatorId(operator), name)
    state = MemoryState(address, ("k",), kind or pa.int64(), journal)
    journal.joined(state)
    return state


def _count(state: MemoryState, *keys: Any) -> list[Any]:
    batch = pa.record_batch({"k": pa.array(keys)})
    return list(state.increment(state.keys(batch)).to_pylist())


def test_an_item_that_fails_is_undone_in_every_operator() -> None:
    journal = _journal()
    first, second = _state(journal, "first"), _state(journal, "second")
    with journal.item():
        assert (_count(first, 1), _count(second, 1)) == ([1], [1])
    with pytest.raises(ZeroDivisionError), journal.item():
        _fail_after_counting(first, second)
    with journal.item():
        assert (_count(first, 1, 2), _count(second, 1, 3)) == ([2, 1], [2, 1])


def _fail_after_counting(*states: MemoryState) -> None:
    for state in states:
        _count(state, 1, 2, 2, 3)
    raise ZeroDivisionError


def test_a_part_that_fails_is_taken_back_alone() -> None:
    """S2: of `Finish`, the failing operator's own slice; the item goes on."""
    journal = _journal()
    state = _state(journal, "op")
    with journal.item():
        _count(state, 1, 2)
        with pytest.raises(ZeroDivisionError), journal.part():
            _fail_after_counting(state)
        with journal.part():
            assert _count(state, 1, 3) == [2, 1]
    with journal.item():
        assert _count(state, 1, 2, 3) == [3, 2, 2]


def test_states_of_two_operators_or_names_do_not_see_each_other() -> None:
    journal = _journal()
    states = [_state(journal, op, name=name) for op in ("a", "b") for name in ("s", "t")]
    with journal.item():
        assert [_count(state, *["k"] * n) for n, state in enumerate(states, 1)] == [
            [1],
            [1, 2],
            [1, 2, 3],
            [1, 2, 3, 4],
        ]


def test_an_item_that_changes_too_much_fails_with_the_operator_and_leaves_nothing() -> None:
    """S3: the bound holds for all operators of the chain together."""
    journal = _journal()
    first, second = (_state(journal, op, pa.large_binary()) for op in ("first", "second"))
    half = STAGED_BYTES_MAX // 2

    def item(*sizes: int) -> None:
        with journal.item():
            for state, size in zip((first, second), sizes, strict=True):
                keys = state.keys(pa.record_batch({"k": pa.array([1])}))
                state.put(keys, pa.array([b"x" * (size - 9)], pa.large_binary()))

    item(half, half)
    assert first.live_bytes == second.live_bytes == half
    with pytest.raises(ProcessingError, match=rf"'second'.*{64 * MIB + 1}.*{64 * MIB}"):
        item(half - 7, half + 8)
    assert first.live_bytes == second.live_bytes == half
    item(half - 7, half + 7)


def test_state_outside_of_an_item_is_a_broken_rule() -> None:
    journal = _journal()
    state = _state(journal, "op")
    with pytest.raises(ProtocolError, match="outside of a lane item"):
        _count(state, 1)
    with pytest.raises(ProtocolError, match="began while"), journal.item(), journal.item():
        pass
    with journal.item():
        assert _count(state, 1) == [1]


def test_items_of_a_chain_without_state_may_overlap() -> None:
    journal = _journal()
    with journal.item(), journal.part(), journal.item():
        assert journal.growth() == []


def test_growth_adds_up_to_what_the_states_hold() -> None:
    journal = _journal()
    state = _state(journal, "op")
    totals = [0, 0]
    for keys in ([1, 2], [2, 3, 3], []):
        with journal.item():
            _count(state, *keys)
        (grown,) = journal.growth()
        assert grown.operator == "op"
        assert grown.conserved()
        totals = [totals[0] + grown.state_keys, totals[1] + grown.state_bytes]
    assert totals == [state.live_keys, state.live_bytes] == [3, 3 * 17]
