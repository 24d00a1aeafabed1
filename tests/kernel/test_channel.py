"""Credit against a plain list, and what may follow what on a channel (E1, E3, E4, E6)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.channel import CreditLedger, SequenceCheck
from arkflow_kernel.envelope import (
    Barrier,
    Data,
    EndOfStream,
    Envelope,
    Idle,
    Reset,
    RoundKind,
    Watermark,
)
from arkflow_kernel.errors import ChannelError
from arkflow_kernel.ids import ChannelId, CheckpointId, EventTimeMs, Generation, Sequence
from arkflow_kernel.testing.components import rows_batch, rows_of

CHANNEL = ChannelId("e[0-1]")
G2 = Generation(2)
BATCH = rows_batch("a", [1])


class Model:
    """A ledger beside the list of all sizes ever sent, and two counters."""

    def __init__(self, capacity: int, capacity_bytes: int) -> None:
        self.ledger = CreditLedger(CHANNEL, capacity, capacity_bytes)
        self.capacity, self.capacity_bytes = capacity, capacity_bytes
        self.sizes: list[int] = []
        self.taken = self.settled = 0

    def send(self, size: int) -> None:
        out = self.sizes[self.taken :]
        fits = len(out) < self.capacity and sum(out) + size <= self.capacity_bytes
        assert self.ledger.can_send(size) == (not out or fits)
        if self.ledger.can_send(size):
            self.sizes.append(size)
            assert self.ledger.send(size) == len(self.sizes)

    def grant(self, taken: int, settled: int) -> None:
        possible = settled <= taken <= len(self.sizes)
        if not possible:
            with pytest.raises(ChannelError, match=r"e\[0-1\]: the receiver claims"):
                self.ledger.granted(Sequence(taken), Sequence(settled))
            return
        news = taken > self.taken or settled > self.settled
        assert self.ledger.granted(Sequence(taken), Sequence(settled)) == news
        self.taken, self.settled = max(self.taken, taken), max(self.settled, settled)

    def check(self) -> None:
        self.ledger.validate()
        out = self.sizes[self.taken :]
        ledger = self.ledger
        assert (ledger.sent, ledger.taken, ledger.settled) == (
            len(self.sizes),
            self.taken,
            self.settled,
        )
        assert (ledger.outstanding, ledger.outstanding_bytes) == (len(out), sum(out))
        assert len(out) <= self.capacity
        assert sum(out) <= self.capacity_bytes or len(out) == 1


sizes = st.integers(0, 5).map(lambda tens: 10 * tens)
sends = st.tuples(st.just("send"), sizes, st.just(0))
grants = st.tuples(st.just("grant"), st.integers(-6, 3), st.integers(-6, 3))


@given(
    st.integers(1, 5), st.sampled_from([1, 10, 20, 50, 100]), st.lists(sends | grants, min_size=30)
)
def test_a_ledger_is_what_a_plain_list_would_be_under_any_sends_and_grants(
    capacity: int, capacity_bytes: int, script: list[tuple[str, int, int]]
) -> None:
    model = Model(capacity, capacity_bytes)
    for kind, first, second in script:
        if kind == "send":
            model.send(first)
        else:  # old words, repeated ones, new ones, and impossible ones
            model.grant(max(0, len(model.sizes) + first), max(0, len(model.sizes) + second))
        model.check()


def test_an_empty_channel_takes_one_envelope_of_any_size() -> None:
    ledger = CreditLedger(CHANNEL, 4, 100)
    assert ledger.can_send(10**9)
    ledger.send(10**9)
    ledger.validate()
    assert not ledger.can_send(0)
    ledger.granted(Sequence(1), Sequence(0))
    assert ledger.can_send(10**9)


def test_the_newest_word_says_all_that_lost_ones_did_and_a_late_one_changes_nothing() -> None:
    ledger = CreditLedger(CHANNEL, 4, 100)
    for _ in range(3):
        ledger.send(10)
    assert ledger.granted(Sequence(3), Sequence(2))
    assert not ledger.granted(Sequence(1), Sequence(1))
    assert (ledger.taken, ledger.settled, ledger.outstanding) == (3, 2, 0)
    assert ledger.granted(Sequence(3), Sequence(3))


# --- what may follow what ----------------------------------------------------------------------


def _data(sequence: int) -> Data:
    return Data(Sequence(sequence), (BATCH,), 10)


def _barrier(generation: Generation = G2) -> Barrier:
    return Barrier(CheckpointId(1), generation, RoundKind.PERIODIC)


kinds = st.sampled_from(["data", "watermark", "idle", "barrier"])


def _legal(before: list[str], ends: bool, after: int) -> list[Envelope]:
    """Reset, anything with numbered data, and perhaps the end with barriers behind it."""
    envelopes: list[Envelope] = [Reset(G2)]
    sequence = 0
    for kind in before:
        sequence += kind == "data"
        made: dict[str, Envelope] = {
            "data": _data(sequence),
            "watermark": Watermark(EventTimeMs(5)),
            "idle": Idle(),
            "barrier": _barrier(),
        }
        envelopes.append(made[kind])
    if ends:
        envelopes += [EndOfStream(), *(_barrier() for _ in range(after))]
    return envelopes


legal = st.builds(_legal, st.lists(kinds, max_size=20), st.booleans(), st.integers(0, 3))


def _check(envelopes: list[Envelope]) -> None:
    check = SequenceCheck(CHANNEL, G2)
    for envelope in envelopes:
        check.check(envelope)


@given(legal)
def test_every_legal_sequence_is_accepted(envelopes: list[Envelope]) -> None:
    _check(envelopes)


@given(legal, st.data())
def test_every_envelope_that_may_not_come_is_refused(
    envelopes: list[Envelope], data: st.DataObject
) -> None:
    """One envelope is lost, repeated, of another attempt, or comes after the end."""
    at = data.draw(st.integers(0, len(envelopes) - 1))
    chosen, before, behind = envelopes[at], envelopes[:at], envelopes[at + 1 :]
    ended = any(isinstance(envelope, EndOfStream) for envelope in before)
    wrong: list[list[Envelope]] = [[*envelopes, Reset(G2)], [*before, Reset(Generation(1))]]
    if isinstance(chosen, Reset):
        wrong += [[other] for other in behind]
        wrong += [[_data(1)], [EndOfStream()], [Idle()], [_barrier()]]
    if isinstance(chosen, Data):
        wrong.append([*before, chosen, chosen])
        wrong.append([*before, _data(chosen.sequence + 1)])
        if any(isinstance(envelope, Data) for envelope in behind):
            wrong.append([*before, *behind])
    if isinstance(chosen, Barrier):
        wrong.append([*before, _barrier(Generation(1))])
        wrong.append([*before, _barrier(Generation(3))])
    if isinstance(chosen, EndOfStream) or ended:
        last = sum(isinstance(envelope, Data) for envelope in envelopes)
        for late in (_data(last + 1), Watermark(EventTimeMs(9)), Idle(), EndOfStream()):
            wrong.append([*before, chosen, late])
    for each in wrong:
        with pytest.raises(ChannelError, match=r"channel e\[0-1\] of generation 2 delivered"):
            _check(each)


def test_a_gap_names_both_numbers() -> None:
    with pytest.raises(ChannelError, match="batch 3 after batch 1"):
        _check([Reset(G2), _data(1), _data(3)])


def test_pieces_of_data_are_joined_into_one_batch_with_the_same_rows() -> None:
    pieces = (rows_batch("a", [1, 2]), rows_batch("a", [3]))
    data = Data(Sequence(4), pieces, 30)
    assert data.num_rows == 3
    joined = data.joined()
    assert (joined.sequence, joined.size_bytes, len(joined.pieces)) == (4, 30, 1)
    assert rows_of(joined.pieces[0]) == [("a", 1), ("a", 2), ("a", 3)]
    assert joined.joined() is joined
