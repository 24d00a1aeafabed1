"""Strangers get no answer; peers that break the rules break the attempt (H2, H3, E6)."""

import contextlib
import functools
import os
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from arkflow_kernel.envelope import Barrier, Data, EndOfStream, Envelope, Reset, RoundKind
from arkflow_kernel.errors import ChannelError
from arkflow_kernel.ids import (
    FIRST_GENERATION,
    ChainId,
    CheckpointId,
    Generation,
    JobId,
    Sequence,
)
from arkflow_kernel.testing.plans import channel_plan
from arkflow_ray.runtime.channels.addresses import Address, dial
from arkflow_ray.runtime.channels.batches import BatchEncoder
from arkflow_ray.runtime.channels.dialing import connect_all
from arkflow_ray.runtime.channels.exchange import Exchange
from arkflow_ray.runtime.channels.frames import (
    BYE_FRAME,
    PING_FRAME,
    FrameKind,
    Header,
    control_frame,
    pack_header,
)
from arkflow_ray.runtime.channels.handshake import ANSWER_BYTES, Connector, Pair

if TYPE_CHECKING:
    from tests.unit.runtime.channels.conftest import Chains, Recorder

EDGE = channel_plan("edge", "a-0", "b-0", number=7)
SIDE = channel_plan("side", "c-0", "b-0", number=8)
RESET = Reset(FIRST_GENERATION)
SECOND = Generation(2)
OTHER_SECRET = bytes(32)


def _pair(generation: Generation = FIRST_GENERATION, job: str = "job", source: str = "a-0") -> Pair:
    return Pair(JobId(job), generation, ChainId(source), ChainId("b-0"))


@contextlib.contextmanager
def _knock(address: Address) -> Iterator[socket.socket]:
    assert address.unix_path is not None
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(address.unix_path)
        yield client


@contextlib.contextmanager
def _authenticated(address: Address, secret: bytes) -> Iterator[socket.socket]:
    """A peer that proved itself and may now say what it likes."""
    here = functools.partial(_dial, address.node_ip)
    (client,) = connect_all({_pair(): address}, secret, here, 10).values()
    with client:
        client.settimeout(20)
        yield client


def _dial(node_ip: str, address: Address, timeout_s: float) -> socket.socket:
    return dial(address, node_ip, timeout_s)


def _to_end(client: socket.socket) -> bytes:
    """What the other side says until it closes."""
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while received := client.recv(4096):
            said += received
    return said


def _still_takes_its_sources(target: Exchange, chains: "Chains", address: Address) -> None:
    source, _ = chains.source(EDGE)
    source.connect({EDGE.target: address}, chains.secret)
    assert target.statistics().last_error is None


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: b-0\r\n\r\n", "magic"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), "magic"),
        (b"arkflow\x00\x63\x00" + bytes(300), "version"),
        (b"arkflow\x00\x01\x00\x02" + bytes(300), "direction"),
        (b"arkflow\x00\x01\x00\x01\x00" + b"\xff" * 300, "malformed"),
        (Connector(OTHER_SECRET, _pair()).hello(), "secret"),
        (Connector(OTHER_SECRET, _pair(SECOND)).hello(), "generation"),
        (Connector(OTHER_SECRET, _pair(job="other")).hello(), "job"),
        (Connector(OTHER_SECRET, _pair(source="x-0")).hello(), "not_a_peer"),
    ],
    # A hello has a new nonce each time, and a test the same name.
    ids=lambda value: value if isinstance(value, str) else "message",
)
def test_a_stranger_is_closed_without_an_answer_and_counted(
    chains: "Chains", message: bytes, reason: str
) -> None:
    target, inbox = chains.target(EDGE)
    address = target.listen(chains.secret)
    with _knock(address) as client:
        client.sendall(message)
        assert _to_end(client) == b""
    assert target.statistics().refused == {reason: 1}
    _still_takes_its_sources(target, chains, address)
    assert inbox.errors == []


def test_a_repeated_handshake_fails(chains: "Chains") -> None:
    target, _ = chains.target(EDGE, SIDE)
    address = target.listen(chains.secret)
    connector = Connector(chains.secret, _pair())
    with _knock(address) as client:
        client.sendall(connector.hello())
        proof = connector.proof(client.recv(ANSWER_BYTES, socket.MSG_WAITALL))
        client.sendall(proof)
        assert client.recv(len(PING_FRAME), socket.MSG_WAITALL) == PING_FRAME
        with _knock(address) as replay:
            replay.sendall(connector.hello())
            assert len(replay.recv(ANSWER_BYTES, socket.MSG_WAITALL)) == ANSWER_BYTES
            replay.sendall(proof)
            assert _to_end(replay) == b""
    assert target.statistics().refused == {"proof": 1}


def test_a_second_connection_of_the_same_source_is_refused(chains: "Chains") -> None:
    target, _ = chains.target(EDGE, SIDE)
    address = target.listen(chains.secret)
    first, _ = chains.source(EDGE)
    first.connect({EDGE.target: address}, chains.secret)
    second, _ = chains.source(EDGE)
    with pytest.raises(ChannelError, match=r"'a-0' cannot connect to chain 'b-0' .* refused"):
        second.connect({EDGE.target: address}, chains.secret)
    assert target.statistics().refused == {"duplicate": 1}


def test_nobody_can_knock_any_more_once_all_sources_are_in(chains: "Chains") -> None:
    target, _ = chains.target(EDGE)
    address = target.listen(chains.secret)
    source, _ = chains.source(EDGE)
    source.connect({EDGE.target: address}, chains.secret)
    assert not os.path.exists(chains.folder)
    with pytest.raises(FileNotFoundError), _knock(address):
        pass


def test_a_hundred_silent_clients_keep_no_source_out(chains: "Chains") -> None:
    target, _ = chains.target(EDGE)
    address = target.listen(chains.secret)
    with contextlib.ExitStack() as silent:
        clients = [silent.enter_context(_knock(address)) for _ in range(100)]
        assert _to_end(clients[0]) == b"", "the oldest made room"
        _still_takes_its_sources(target, chains, address)
    assert target.statistics().refused["crowded_out"] >= 36


def test_sources_that_all_come_at_once_and_speak_late_are_all_let_in(chains: "Chains") -> None:
    """Each connects before the first has said its hello: none of them crowds another one out."""
    plans = [channel_plan(f"e-{i}", f"s-{i}", "b-0", number=i) for i in range(80)]
    target, _ = chains.target(*plans)
    address = target.listen(chains.secret)
    with contextlib.ExitStack() as all_of_them:
        clients = [all_of_them.enter_context(_knock(address)) for _ in plans]
        connectors = [Connector(chains.secret, _pair(source=plan.source)) for plan in plans]
        for client, connector in zip(clients, connectors, strict=True):
            client.sendall(connector.hello())
        for client, connector in zip(clients, connectors, strict=True):
            client.sendall(connector.proof(client.recv(ANSWER_BYTES, socket.MSG_WAITALL)))
            assert client.recv(len(PING_FRAME), socket.MSG_WAITALL) == PING_FRAME
    assert target.statistics().refused == {}


def test_a_client_that_says_nothing_is_closed_in_time(
    chains: "Chains", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arkflow_ray.runtime.channels.reception.HANDSHAKE_TIMEOUT_S", 0.05)
    target, _ = chains.target(EDGE)
    with _knock(target.listen(chains.secret)) as client:
        with contextlib.suppress(BrokenPipeError):  # closed already on a busy machine
            client.sendall(b"arkf")
        assert _to_end(client) == b""
    assert target.statistics().refused == {"timeout": 1}


def test_a_connector_refuses_a_listener_with_another_secret(chains: "Chains") -> None:
    """Whoever has taken the place of a chain learns nothing and gets nothing."""
    target, _ = chains.target(EDGE)
    address = target.listen(OTHER_SECRET)
    source, _ = chains.source(EDGE)
    with pytest.raises(ChannelError, match=r"'a-0' cannot connect to chain 'b-0'") as caught:
        source.connect({EDGE.target: address}, chains.secret)
    assert chains.secret.hex() not in str(caught.value)


def test_a_listener_that_does_not_answer_ends_connect_at_its_time(chains: "Chains") -> None:
    folder = os.path.dirname(chains.folder)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/mute")
        listener.listen()
        source, _ = chains.source(EDGE)
        address = Address(EDGE.target, "127.0.0.1", f"{folder}/mute")
        with pytest.raises(ChannelError, match=r"no connection within 0\.1 s"):
            source.connect({EDGE.target: address}, chains.secret, timeout_s=0.1)


def test_an_address_where_nobody_listens_is_named(chains: "Chains") -> None:
    source, _ = chains.source(EDGE)
    with pytest.raises(ChannelError, match=r"'b-0' on node 127\.0\.0\.1, .*No such file"):
        source.connect({EDGE.target: Address(EDGE.target, "127.0.0.1", "/nowhere")}, chains.secret)
    with pytest.raises(ChannelError, match="was not told the address of chain 'b-0'"):
        source.connect({}, chains.secret)
    with pytest.raises(ChannelError, match="was not told the secret"):
        source.connect({EDGE.target: Address(EDGE.target, "127.0.0.1", "/nowhere")})


def _broken(chains: "Chains", message: bytes) -> "tuple[Recorder, ChannelError]":
    """What the target tells after a proved peer has said `message`."""
    target, inbox = chains.target(EDGE)
    with _authenticated(target.listen(chains.secret), chains.secret) as client:
        client.sendall(message)
        error = inbox.wait_for_break()
        _to_end(client)
    assert "edge[0-0] from chain 'a-0' to 'b-0', generation 1" in str(error)
    assert target.statistics().last_error == str(error)
    assert len(inbox.errors) == 1
    return inbox, error


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (pack_header(Header(FrameKind.DATA, 0, 7, 1, 2**40, 8)), "1,099,511,627,776 bytes"),
        (pack_header(Header(FrameKind.SCHEMA, length=2**40)), "1,099,511,627,776 bytes"),
        (pack_header(Header(FrameKind.DATA, 0, 6, 1, 8, 8)), "channel number 6"),
        (pack_header(Header(FrameKind.GRANTS, length=20)), "kind 8"),
        (b"\xff" * 32, "kind 255"),
        (pack_header(Header(FrameKind.DATA, 0, 7, 1, 8, 8)) + bytes(8), "schema 0, which"),
        (BYE_FRAME + PING_FRAME, "PING after its Bye"),
        (PING_FRAME[:9], "in the middle of a frame"),
        (b"", "without saying Bye"),
    ],
)
def test_a_peer_that_sends_what_no_frame_may_be_breaks_the_attempt(
    chains: "Chains", message: bytes, reason: str
) -> None:
    if message and "middle" not in reason:
        _, error = _broken(chains, message)
    else:
        target, inbox = chains.target(EDGE)
        with _authenticated(target.listen(chains.secret), chains.secret) as client:
            client.sendall(message)
        error = inbox.wait_for_break()
    assert reason in str(error)


def _wire(*envelopes: Envelope) -> bytes:
    encoder = BatchEncoder()
    wire = b""
    for envelope in envelopes:
        if isinstance(envelope, Data):
            parts, _ = encoder.frames(7, envelope)
            wire += b"".join(bytes(memoryview(part)) for part in parts)
        else:
            wire += control_frame(7, envelope)
    return wire


def _data(sequence: int) -> Data:
    return Data(Sequence(sequence), (pa.record_batch({"n": [sequence]}),), 8)


@pytest.mark.parametrize(
    ("envelopes", "reason"),
    [
        ([_data(1)], "before the channel was reset"),
        ([RESET, _data(2)], "batch 2 after batch 0"),
        ([RESET, _data(1), _data(1)], "batch 1 after batch 1"),
        ([RESET, _data(1), _data(3)], "batch 3 after batch 1"),
        ([Reset(SECOND)], "reset for generation 2"),
        ([RESET, RESET], "second reset"),
        ([RESET, Barrier(CheckpointId(1), SECOND, RoundKind.PERIODIC)], "barrier of generation 2"),
        ([RESET, EndOfStream(), _data(1)], "after the end of the stream"),
    ],
)
def test_a_gap_a_repetition_or_another_generation_breaks_the_attempt(
    chains: "Chains", envelopes: list[Envelope], reason: str
) -> None:
    inbox, error = _broken(chains, _wire(*envelopes))
    assert "it broke the order" in str(error)
    assert reason in str(error)
    assert len(inbox.of(EDGE.channel)) == len(envelopes) - 1, "what was right has arrived"
