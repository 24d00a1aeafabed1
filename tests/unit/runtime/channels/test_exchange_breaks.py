"""A peer that dies, hangs or leaves is a broken channel, told once and at once (H9)."""

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence as Items
from typing import TYPE_CHECKING

import pytest

from arkflow_kernel.envelope import Envelope, Reset
from arkflow_kernel.errors import ChannelError
from arkflow_kernel.ids import FIRST_GENERATION, ChainId, ChannelId, JobId, Sequence
from arkflow_kernel.testing.plans import channel_plan
from arkflow_ray.runtime.channels.connection import SILENCE_S
from arkflow_ray.runtime.channels.counters import Counters
from arkflow_ray.runtime.channels.ends import Received, ReceivingEnd, SendingEnd
from arkflow_ray.runtime.channels.frames import PING_FRAME
from arkflow_ray.runtime.channels.handshake import Pair

if TYPE_CHECKING:
    from tests.unit.runtime.channels.conftest import Chains

EDGE = channel_plan("edge", "a-0", "b-0", number=7)
SIDE = channel_plan("side", "c-0", "b-0", number=8)
RESET = Reset(FIRST_GENERATION)
PAIR = Pair(JobId("job"), FIRST_GENERATION, ChainId("a-0"), ChainId("b-0"))

PEER = """
import pickle, sys
from arkflow_kernel.envelope import Reset
from arkflow_kernel.testing.plans import chain_plan
from arkflow_ray.runtime.channels.exchange import Exchange

class Silent:
    def arrived(self, envelopes): pass
    def granted(self, grants): pass
    def broken(self, error): pass

plan, address, secret = pickle.load(sys.stdin.buffer)
chain = chain_plan(plan.source, source=None, sinks=(), channels=(plan,))
peer = Exchange("job", chain, 1, Silent(), folder="unused", node_ip="127.0.0.1")
peer.connect({plan.target: address}, secret)
peer.send(plan.channel, Reset(1))
print("connected", flush=True)
sys.stdin.buffer.read()
"""


def test_the_death_of_a_peers_process_is_seen_and_told_once(chains: "Chains") -> None:
    target, inbox = chains.target(EDGE)
    address = target.listen(chains.secret)
    peer = subprocess.Popen(
        [sys.executable, "-c", PEER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with peer:
        assert peer.stdin is not None
        assert peer.stdout is not None
        peer.stdin.write(pickle.dumps((EDGE, address, chains.secret)))
        peer.stdin.flush()
        assert peer.stdout.readline() == b"connected\n"
        inbox.wait_for_envelopes(1)
        assert inbox.errors == []
        os.kill(peer.pid, signal.SIGKILL)
        error = inbox.wait_for_break()
        peer.stdin.close()
    assert "edge[0-0] from chain 'a-0' to 'b-0', generation 1" in str(error)
    assert "without saying Bye" in str(error)
    assert "peer: chain 'a-0'" in str(error)
    target.close(flush=True, timeout_s=5)
    assert len(inbox.errors) == 1


@pytest.mark.parametrize("leaver", ["source", "target"])
def test_a_peer_that_leaves_without_bye_breaks_the_other_side(
    chains: "Chains", leaver: str
) -> None:
    (source, granted), (target, arrived) = chains.connected(EDGE)
    source.send(EDGE.channel, RESET)
    arrived.wait_for_envelopes(1)
    left, told = (source, arrived) if leaver == "source" else (target, granted)
    left.close(flush=False, timeout_s=5)
    assert "Bye" in str(told.wait_for_break())


def test_two_breaks_are_told_once_and_the_other_connection_lives_on(chains: "Chains") -> None:
    target, inbox = chains.target(EDGE, SIDE)
    address = target.listen(chains.secret)
    sources = [chains.source(plan)[0] for plan in (EDGE, SIDE)]
    for source in sources:
        source.connect({EDGE.target: address}, chains.secret)
    sources[0].close(flush=False, timeout_s=5)
    inbox.wait_for_break()
    sources[1].send(SIDE.channel, RESET)
    inbox.wait_for(lambda: inbox.of(SIDE.channel) == [RESET])
    sources[1].close(flush=False, timeout_s=5)
    target.close(flush=True, timeout_s=5)
    assert len(inbox.errors) == 1


def test_what_came_before_a_break_is_handed_over_before_it(chains: "Chains") -> None:
    (source, _), (_, inbox) = chains.connected(EDGE)
    order: list[str] = []
    arrived, broken = inbox.arrived, inbox.broken

    def note_arrived(envelopes: list[tuple[ChannelId, Envelope]]) -> None:
        order.append("arrived")
        arrived(envelopes)

    def note_broken(error: ChannelError) -> None:
        order.append("broken")
        broken(error)

    inbox.arrived, inbox.broken = note_arrived, note_broken  # type: ignore[method-assign]
    source.send(EDGE.channel, RESET)
    inbox.wait_for_envelopes(1)
    source.close(flush=False, timeout_s=5)
    inbox.wait_for_break()
    assert order == ["arrived", "broken"]


def test_an_inbox_that_fails_is_told_as_a_break(chains: "Chains") -> None:
    (source, _), (target, inbox) = chains.connected(EDGE)

    def fail(envelopes: Items[object]) -> None:
        raise ValueError("a bug of the chain")

    inbox.arrived = fail  # type: ignore[method-assign]
    source.send(EDGE.channel, RESET)
    assert "a bug of the chain" in str(inbox.wait_for_break())
    target.grant(EDGE.channel, Sequence(1), Sequence(1))


def test_a_chain_that_was_closed_neither_listens_nor_connects(chains: "Chains") -> None:
    target, _ = chains.target(EDGE)
    address = target.listen(chains.secret)
    source, _ = chains.source(EDGE)
    source.close(flush=True, timeout_s=1)
    with pytest.raises(ChannelError, match="'a-0' was closed while it connected"):
        source.connect({EDGE.target: address}, chains.secret)
    late, _ = chains.target(EDGE)
    late.close(flush=True, timeout_s=1)
    with pytest.raises(ChannelError, match="'b-0' was closed before it listened"):
        late.listen(chains.secret)


def test_silence_is_a_break_and_any_byte_is_none() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        end = ReceivingEnd(ours, PAIR, [EDGE], Counters(), Received(), now=100.0)
        end.tick(100.0 + SILENCE_S)
        theirs.send(PING_FRAME[:1])
        end.readable(100.0 + SILENCE_S)
        end.tick(100.0 + 2 * SILENCE_S)
        with pytest.raises(ChannelError, match=r"edge\[0-0\] .* silent for 10 s"):
            end.tick(100.0 + 2 * SILENCE_S + 0.1)


def test_pings_do_not_pile_up_for_a_peer_that_does_not_read() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        end = ReceivingEnd(ours, PAIR, [EDGE], Counters(), Received(), now=0.0)
        for _ in range(5):
            end.tick(1.0)
        end.flush()
        assert theirs.recv(1_000) == PING_FRAME
        end.tick(2.0)
        end.flush()
        assert theirs.recv(1_000) == PING_FRAME


def test_both_sides_ping_while_nothing_else_is_said(
    chains: "Chains", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arkflow_ray.runtime.channels.traffic.PING_INTERVAL_S", 0.02)
    (source, _), (target, _) = chains.connected(EDGE)
    done = threading.Event()
    for _ in range(500):
        if min(source.statistics().frames_in, target.statistics().frames_in) >= 5:
            break
        done.wait(0.02)
    else:
        pytest.fail("no pings came")


def test_a_ping_that_waits_is_nothing_that_is_owed() -> None:
    """A peer may say Bye while a ping is on its way: that is an orderly end, no break (H9)."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        end = SendingEnd(ours, PAIR, [EDGE], Counters(), Received(), now=0.0)
        end.tick(1.0)
        assert not end.owes
        end.put(EDGE.number, RESET)
        assert end.owes
        end.flush()
        assert not end.owes
