"""Envelopes and credit between exchanges over real sockets (H1-H5, H8, H8a, H9, E6, P5)."""

import concurrent.futures
import os
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

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
from arkflow_kernel.ids import (
    FIRST_GENERATION,
    CheckpointId,
    EventTimeMs,
    Sequence,
)
from arkflow_kernel.plan import ChannelPlan
from arkflow_kernel.testing.plans import channel_plan

if TYPE_CHECKING:
    from tests.unit.runtime.channels.conftest import Chains

pytestmark = pytest.mark.thorough

EDGE = channel_plan("edge", "a-0", "b-0", number=7)
SIDE = channel_plan("side", "a-0", "b-0", number=8)
RESET = Reset(FIRST_GENERATION)


def _data(sequence: int, *values: int) -> Data:
    return Data(Sequence(sequence), (pa.record_batch({"n": values or [sequence]}),), 8)


def _numbers(envelopes: list[Data]) -> list[int]:
    columns: list[Any] = [envelope.pieces[0].column(0) for envelope in envelopes]
    return [n for column in columns for n in column.to_pylist()]


def test_every_kind_of_envelope_arrives_in_order_on_its_channel(chains: "Chains") -> None:
    (source, _), (_, target) = chains.connected(EDGE, SIDE)
    barrier = Barrier(CheckpointId(4), FIRST_GENERATION, RoundKind.SAVEPOINT)
    sent: list[Envelope] = [
        RESET,
        _data(1),
        Watermark(EventTimeMs(-5)),
        _data(2),
        Idle(),
        barrier,
        EndOfStream(stopped=True),
        barrier,
    ]
    for envelope in sent:
        for channel in (EDGE.channel, SIDE.channel):
            source.send(channel, envelope)
    target.wait_for_envelopes(2 * len(sent))
    for channel in (EDGE.channel, SIDE.channel):
        arrived = target.of(channel)
        assert [e for e in arrived if not isinstance(e, Data)] == [
            e for e in sent if not isinstance(e, Data)
        ]
        assert list(map(type, arrived)) == list(map(type, sent))
        assert _numbers(target.data(channel)) == [1, 2]
        assert [e.size_bytes for e in target.data(channel)] == [8, 8]


def test_pieces_arrive_as_one_batch(chains: "Chains") -> None:
    (source, _), (_, target) = chains.connected(EDGE)
    piece = pa.record_batch({"n": [1, 2]})
    source.send(EDGE.channel, RESET)
    source.send(EDGE.channel, Data(Sequence(1), (piece, piece.slice(1)), 24))
    target.wait_for_envelopes(2)
    (data,) = target.data(EDGE.channel)
    assert len(data.pieces) == 1
    assert _numbers([data]) == [1, 2, 2]


def test_channels_between_two_chains_share_one_connection(chains: "Chains") -> None:
    (source, _), (target, arrived) = chains.connected(EDGE, SIDE)
    source.send(EDGE.channel, RESET)
    source.send(SIDE.channel, RESET)
    arrived.wait_for_envelopes(2)
    assert source.statistics().connections == target.statistics().connections == 1


def test_grants_arrive_and_the_newest_word_wins(chains: "Chains") -> None:
    (source, granted), (target, arrived) = chains.connected(EDGE, SIDE)
    for channel in (EDGE.channel, SIDE.channel):
        source.send(channel, RESET)
        for n in range(1, 101):
            source.send(channel, _data(n))
    arrived.wait_for_envelopes(202)
    for n in range(1, 101):
        target.grant(EDGE.channel, Sequence(n), Sequence(n // 2))
    target.grant(SIDE.channel, Sequence(7), Sequence(0))
    last = {(EDGE.channel, 100, 50), (SIDE.channel, 7, 0)}
    granted.wait_for(lambda: last <= set(granted.grants))
    of_edge = [grant for grant in granted.grants if grant[0] == EDGE.channel]
    assert of_edge == sorted(of_edge)


def test_what_many_threads_send_keeps_the_order_of_each_channel(chains: "Chains") -> None:
    plans = tuple(channel_plan(f"e{n}", "a-0", "b-0", number=n) for n in range(4))
    (source, _), (_, target) = chains.connected(*plans)

    def run(plan: ChannelPlan) -> None:
        source.send(plan.channel, RESET)
        for n in range(1, 301):
            source.send(plan.channel, _data(n))

    threads = [threading.Thread(target=run, args=(plan,)) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    target.wait_for_envelopes(4 * 301)
    for plan in plans:
        assert _numbers(target.data(plan.channel)) == list(range(1, 301))
    assert target.posts < 4 * 301, "several envelopes are handed over at once"


def test_large_batches_pass_while_grants_flow(chains: "Chains") -> None:
    """Frames far above a socket's buffer are cut by both sides at will."""
    (source, granted), (target, arrived) = chains.connected(EDGE)
    batch = pa.record_batch({"n": range(400_000), "text": ["some text"] * 400_000})
    source.send(EDGE.channel, RESET)
    for n in range(1, 9):
        source.send(EDGE.channel, Data(Sequence(n), (batch,), batch.nbytes))
    for n in range(1, 9):
        arrived.wait_for_envelopes(n + 1)
        target.grant(EDGE.channel, Sequence(n), Sequence(n))
    granted.wait_for(lambda: (EDGE.channel, 8, 8) in granted.grants)
    assert all(data.pieces[0].equals(batch) for data in arrived.data(EDGE.channel))
    assert target.statistics().bytes_in > 8 * batch.nbytes
    source.close(flush=True, timeout_s=10)
    target.close(flush=True, timeout_s=10)
    assert source.statistics().bytes_out == target.statistics().bytes_in


def test_tcp_is_used_from_another_node_and_is_as_good(chains: "Chains") -> None:
    target, arrived = chains.target(EDGE, tcp=True)
    source, granted = chains.source(EDGE, node_ip="127.0.0.2")
    address = target.listen(chains.secret)
    assert address.port is not None
    source.connect({EDGE.target: address}, chains.secret)
    batch = pa.record_batch({"n": range(300_000)})
    source.send(EDGE.channel, RESET)
    for n in range(1, 4):
        source.send(EDGE.channel, Data(Sequence(n), (batch,), 1))
    arrived.wait_for_envelopes(4)
    assert arrived.data(EDGE.channel)[2].pieces[0].equals(batch)
    target.grant(EDGE.channel, Sequence(3), Sequence(3))
    granted.wait_for(lambda: bool(granted.grants))
    source.close(flush=True, timeout_s=10)
    target.close(flush=True, timeout_s=10)
    assert granted.errors == arrived.errors == []


def test_a_chain_in_the_middle_serves_both_sides_with_one_thread(chains: "Chains") -> None:
    onward = channel_plan("onward", "b-0", "c-0", number=9)
    middle, middle_inbox = chains.exchange("b-0", inputs=(EDGE,), channels=(onward,))
    source, _ = chains.source(EDGE)
    last, last_inbox = chains.target(onward)
    before = threading.active_count()
    middle_address = middle.listen(chains.secret)
    last_address = last.listen(chains.secret)
    middle.connect({onward.target: last_address})
    source.connect({EDGE.target: middle_address}, chains.secret)
    assert threading.active_count() == before + 3 * chains.threads
    source.send(EDGE.channel, RESET)
    source.send(EDGE.channel, _data(1))
    middle_inbox.wait_for_envelopes(2)
    for _, envelope in middle_inbox.envelopes:
        middle.send(onward.channel, envelope)
    last_inbox.wait_for_envelopes(2)
    assert _numbers(last_inbox.data(onward.channel)) == [1]


@pytest.mark.parametrize("first", ["source", "target"])
def test_an_orderly_end_flushes_and_breaks_nothing(chains: "Chains", first: str) -> None:
    (source, granted), (target, arrived) = chains.connected(EDGE)
    source.send(EDGE.channel, RESET)
    for n in range(1, 201):
        source.send(EDGE.channel, _data(n))
    source.send(EDGE.channel, EndOfStream())
    if first == "target":
        arrived.wait_for_envelopes(202)
        target.grant(EDGE.channel, Sequence(200), Sequence(200))
        target.close(flush=True, timeout_s=10)
        assert granted.grants[-1] == (EDGE.channel, 200, 200)
        source.close(flush=True, timeout_s=10)
    else:
        source.close(flush=True, timeout_s=10)
        arrived.wait_for_envelopes(202)
        target.close(flush=True, timeout_s=10)
    assert _numbers(arrived.data(EDGE.channel)) == list(range(1, 201))
    assert granted.errors == arrived.errors == []
    assert source.statistics().connections == target.statistics().connections == 0
    assert not os.path.exists(chains.folder)


def test_after_the_end_nothing_can_be_sent_and_a_second_end_is_none(chains: "Chains") -> None:
    (source, granted), (target, arrived) = chains.connected(EDGE)
    source.close(flush=True, timeout_s=10)
    source.close(flush=True, timeout_s=10)
    source.send(EDGE.channel, RESET)
    target.grant(EDGE.channel, Sequence(0), Sequence(0))
    target.close(flush=True, timeout_s=10)
    assert granted.errors == arrived.errors == []
    assert arrived.envelopes == []


def test_a_target_that_ends_first_is_told_by_the_next_envelope(chains: "Chains") -> None:
    (source, granted), (target, _) = chains.connected(EDGE)
    target.close(flush=True, timeout_s=10)
    assert granted.errors == []
    source.send(EDGE.channel, RESET)
    assert "ended while there was more to send" in str(granted.wait_for_break())


def test_a_flush_that_nobody_reads_ends_at_its_time_and_says_what_was_lost(
    chains: "Chains",
) -> None:
    (source, _), (_, arrived) = chains.connected(EDGE)
    gate = threading.Event()
    arrived.arrived = lambda envelopes: gate.wait()  # type: ignore[assignment, method-assign]
    batch = pa.record_batch({"n": range(2_000_000)})
    source.send(EDGE.channel, RESET)
    for n in range(1, 5):
        source.send(EDGE.channel, Data(Sequence(n), (batch,), 1))
    try:
        with pytest.raises(ChannelError, match=r"edge\[0-0\] .* not everything was sent"):
            source.close(flush=True, timeout_s=0.2)
    finally:
        gate.set()


def test_channels_of_others_are_refused_at_once(chains: "Chains") -> None:
    (source, _), (target, _) = chains.connected(EDGE)
    with pytest.raises(ChannelError, match=r"side\[0-0\]"):
        source.send(SIDE.channel, RESET)
    with pytest.raises(ChannelError, match=r"edge\[0-0\]"):
        target.send(EDGE.channel, RESET)
    with pytest.raises(ChannelError, match=r"edge\[0-0\]"):
        source.grant(EDGE.channel, Sequence(1), Sequence(1))


def test_a_chain_without_channels_opens_nothing(chains: "Chains") -> None:
    alone, _ = chains.exchange("alone-0")
    before = threading.active_count(), len(os.listdir("/proc/self/fd"))
    address = alone.listen(chains.secret)
    alone.connect({})
    assert (address.unix_path, address.port) == (None, None)
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == before


def test_batches_are_encoded_and_decoded_off_the_callers_thread(chains: "Chains") -> None:
    """`send` only queues: a batch that cannot travel is an error of the channel (P5)."""
    (source, granted), _ = chains.connected(EDGE)
    column = pa.array(["a"]).dictionary_encode()
    source.send(EDGE.channel, RESET)
    source.send(EDGE.channel, Data(Sequence(1), (pa.record_batch({"colour": column}),), 1))
    assert "column 'colour' is dictionary-encoded" in str(granted.wait_for_break())


@pytest.mark.parametrize(("sources", "targets"), [(12, 12), (80, 1), (1, 80)])
def test_each_chain_needs_one_thread_whatever_the_number_of_its_peers(
    chains: "Chains", sources: int, targets: int
) -> None:
    """More than 64 sources at once is more than may be unauthenticated at once (H2, H8)."""
    plans = {
        (s, t): channel_plan(f"e-{s}-{t}", f"s-{s}", f"t-{t}", number=s * targets + t)
        for s in range(sources)
        for t in range(targets)
    }
    before = threading.active_count()
    receivers = [chains.target(*(plans[s, t] for s in range(sources))) for t in range(targets)]
    addresses = {plans[0, t].target: receivers[t][0].listen(chains.secret) for t in range(targets)}
    senders = [chains.source(*(plans[s, t] for t in range(targets))) for s in range(sources)]
    with concurrent.futures.ThreadPoolExecutor(sources) as pool:
        list(pool.map(lambda sender: sender[0].connect(addresses, chains.secret), senders))
    assert threading.active_count() == before + (sources + targets) * chains.threads
    for (s, _), plan in plans.items():
        senders[s][0].send(plan.channel, RESET)
        senders[s][0].send(plan.channel, _data(1, plan.number))
    for t, (_, inbox) in enumerate(receivers):
        inbox.wait_for_envelopes(2 * sources)
        for s in range(sources):
            assert _numbers(inbox.data(plans[s, t].channel)) == [plans[s, t].number]
    for exchange, inbox in (*senders, *receivers):
        exchange.close(flush=True, timeout_s=20)
        assert inbox.errors == []
