"""Pieces of a tunnel: their order, what is refused, how much waits, how it ends (H6, P2, P3).

What is above a tunnel is tested by the tests of exchanges, which run over one, too.
"""

import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from arkflow_kernel.errors import ChannelError
from arkflow_kernel.ids import ChainId
from arkflow_ray.runtime.channels.tunnel import Tunnel
from arkflow_ray.runtime.channels.tunnel_ends import PIECE_BYTES_MAX, PUTS_MAX

if TYPE_CHECKING:
    from arkflow_ray.runtime.channels.tunnel_ends import Done

WAIT_S = 20.0
ID = "a connection"


@dataclass
class Target:
    """A tunnel that leads to a listener of this test."""

    tunnel: Tunnel
    listener: socket.socket
    taken_in: list[socket.socket] = field(default_factory=list)

    def opened(self) -> socket.socket:
        """What the listener gets when `ID` is opened."""
        assert self.tunnel.put(ID, 0, b"").result(WAIT_S) is None
        return self.accepted()

    def accepted(self) -> socket.socket:
        """The next one that was connected."""
        sock, _ = self.listener.accept()
        sock.settimeout(WAIT_S)
        self.taken_in.append(sock)
        return sock


class Calls:
    """Calls that are answered when a test says so."""

    def __init__(self) -> None:
        self.puts: list[tuple[int, bytes, Done[str | None]]] = []
        self.takes: list[tuple[int, Done[bytes]]] = []
        self._changed = threading.Condition()

    def put(self, connection: str, number: int, data: bytes, done: "Done[str | None]", /) -> None:
        """Keep."""
        with self._changed:
            self.puts.append((number, data, done))
            self._changed.notify_all()

    def take(self, connection: str, number: int, done: "Done[bytes]", /) -> None:
        """Keep."""
        with self._changed:
            self.takes.append((number, done))
            self._changed.notify_all()

    def wait_for(self, test: Callable[[], bool]) -> None:
        """Return when it holds."""
        with self._changed:
            assert self._changed.wait_for(test, WAIT_S), (len(self.puts), len(self.takes))

    def after(self, count: int) -> "tuple[int, bytes, Done[str | None]]":
        """The next piece after so many, once it was put."""
        self.wait_for(lambda: len(self.puts) > count)
        return self.puts[count]

    def open(self) -> None:
        """The other side is there, and waits to be asked."""
        self.wait_for(lambda: len(self.puts) == 1)
        number, data, done = self.puts[0]
        assert (number, data) == (0, b"")
        done(None)
        self.wait_for(lambda: len(self.takes) == 1)


def received(sock: socket.socket, count: int) -> bytes:
    """So many bytes, or what there is until the end."""
    got = b""
    while len(got) < count and (more := sock.recv(count - len(got))):
        got += more
    return got


@pytest.fixture
def target() -> Iterator[Target]:
    """A tunnel with a listener behind it; nothing is left of them."""
    folder = tempfile.mkdtemp(prefix="afc-")
    path = os.path.join(folder, "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        listener.settimeout(WAIT_S)
        found = Target(Tunnel(ChainId("b-0")), listener)
        found.tunnel.lead_to(path)
        yield found
        for sock in found.taken_in:
            sock.close()
        found.tunnel.close(timeout_s=0)
    shutil.rmtree(folder)
    assert not found.tunnel.alive


@pytest.fixture
def source() -> Iterator[Tunnel]:
    """The tunnel of a chain that dials."""
    found = Tunnel(ChainId("a-0"))
    yield found
    found.close(timeout_s=0)
    assert not found.alive


@pytest.fixture
def calls() -> Calls:
    """Calls that go nowhere."""
    return Calls()


@pytest.fixture
def dialled(source: Tunnel, calls: Calls) -> Iterator[socket.socket]:
    """A connection whose other side is the test."""
    with source.dial(calls) as sock:
        sock.settimeout(WAIT_S)
        yield sock


def test_pieces_that_come_in_any_order_are_written_in_theirs(target: Target) -> None:
    """P3."""
    sock = target.opened()
    third, second = target.tunnel.put(ID, 3, b"c"), target.tunnel.put(ID, 2, b"b")
    assert target.tunnel.put(ID, 1, b"a").result(WAIT_S) is None
    assert (second.result(WAIT_S), third.result(WAIT_S)) == (None, None)
    assert received(sock, 3) == b"abc"
    assert target.tunnel.put(ID, 4, b"").result(WAIT_S) is None
    assert sock.recv(1) == b"", "a piece of no bytes is the end"


def test_what_the_chain_says_is_the_answer_of_takes_and_so_is_its_end(target: Target) -> None:
    sock = target.opened()
    first = target.tunnel.take(ID, 1)
    sock.sendall(b"grants")
    assert first.result(WAIT_S) == b"grants"
    sock.sendall(b"Bye")
    sock.close()
    assert target.tunnel.take(ID, 2).result(WAIT_S) == b"Bye"
    assert target.tunnel.take(ID, 3).result(WAIT_S) == b""
    assert "no such connection" in str(target.tunnel.put(ID, 1, b"late").result(WAIT_S))


@pytest.mark.parametrize("number", [0, 1, PUTS_MAX + 2])
def test_a_piece_that_cannot_be_due_is_refused_and_ends_the_connection(
    target: Target, number: int
) -> None:
    """Repeated, or beyond what may be unanswered."""
    sock = target.opened()
    assert target.tunnel.put(ID, 1, b"a").result(WAIT_S) is None
    waiting = target.tunnel.put(ID, 3, b"c")
    refusal = target.tunnel.put(ID, number, b"x").result(WAIT_S)
    assert refusal == f"piece {number} instead of 2 to {PUTS_MAX + 1}"
    assert waiting.result(WAIT_S) == refusal
    assert received(sock, 9) == b"a"
    assert target.tunnel.take(ID, 1).result(WAIT_S) == b""


@pytest.mark.parametrize("number", [1, 3])
def test_one_take_waits_at_a_time_and_another_ends_the_connection(
    target: Target, number: int
) -> None:
    sock = target.opened()
    first = target.tunnel.take(ID, 1)
    assert target.tunnel.take(ID, number).result(WAIT_S) == b""
    assert first.result(WAIT_S) == b""
    assert sock.recv(1) == b""


def test_a_connection_that_was_not_opened_or_leads_nowhere_is_refused(target: Target) -> None:
    tunnel = target.tunnel
    assert tunnel.put(ID, 1, b"a").result(WAIT_S) == "chain 'b-0' has no such connection"
    assert tunnel.take(ID, 1).result(WAIT_S) == b""
    tunnel.lead_to("/nowhere")
    refusal = "chain 'b-0' takes nobody in: No such file or directory"
    assert tunnel.put(ID, 0, b"").result(WAIT_S) == refusal
    other = Tunnel(ChainId("c-0"))
    assert other.put(ID, 0, b"").result(WAIT_S) == "chain 'c-0' does not listen"
    other.close(timeout_s=WAIT_S)
    assert other.put(ID, 0, b"").result(WAIT_S) == "chain 'c-0' has ended its tunnel"
    assert other.take(ID, 1).result(WAIT_S) == b""


def test_a_piece_is_answered_when_it_is_in_the_socket(target: Target) -> None:
    """The reader's pace is the caller's: what waits here is bounded by what is unanswered."""
    sock = target.opened()
    pieces = [bytes([n]) * 4 * PIECE_BYTES_MAX for n in range(PUTS_MAX)]
    answers = [target.tunnel.put(ID, n, data) for n, data in enumerate(pieces, 1)]
    # A take is answered after what was ordered before it.
    sock.sendall(b"go")
    assert target.tunnel.take(ID, 1).result(WAIT_S) == b"go"
    assert not answers[0].done(), "the socket takes less than this piece"
    for data, answer in zip(pieces, answers, strict=True):
        assert received(sock, len(data)) == data
        assert answer.result(WAIT_S) is None


def test_calls_are_bounded_in_number_and_size_and_the_next_waits_for_an_answer(
    dialled: socket.socket, calls: Calls
) -> None:
    calls.open()
    data = os.urandom(8 * PUTS_MAX * PIECE_BYTES_MAX)
    writer = threading.Thread(target=dialled.sendall, args=(data,))
    writer.start()
    got = b""
    answered = 1
    while len(got) < len(data):
        number, piece, done = calls.after(answered)
        assert len(calls.puts) - answered <= PUTS_MAX
        assert number == answered
        assert 0 < len(piece) <= PIECE_BYTES_MAX
        got += piece
        answered += 1
        done(None)
    writer.join()
    assert got == data


def test_nothing_is_sent_before_the_other_side_is_there(
    dialled: socket.socket, calls: Calls
) -> None:
    dialled.sendall(b"hello")
    calls.open()
    calls.wait_for(lambda: len(calls.puts) == 2)
    assert calls.puts[1][:2] == (1, b"hello")


def test_the_next_take_comes_when_the_bytes_of_the_last_are_written(
    dialled: socket.socket, calls: Calls
) -> None:
    calls.open()
    data = os.urandom(8 * PIECE_BYTES_MAX)
    calls.takes[0][1](data)
    assert received(dialled, PIECE_BYTES_MAX) == data[:PIECE_BYTES_MAX]
    assert len(calls.takes) == 1
    assert received(dialled, len(data) - PIECE_BYTES_MAX) == data[PIECE_BYTES_MAX:]
    calls.wait_for(lambda: len(calls.takes) == 2)
    assert [number for number, _ in calls.takes] == [1, 2]


FAILED = ChannelError("the actor died")


@pytest.mark.parametrize("answer", [FAILED, "piece 1 instead of 2 to 5"])
def test_a_put_that_fails_or_is_refused_closes_the_socket(
    dialled: socket.socket, calls: Calls, answer: ChannelError | str
) -> None:
    """H9."""
    calls.open()
    dialled.sendall(b"a")
    calls.wait_for(lambda: len(calls.puts) == 2)
    calls.puts[1][2](answer)
    assert dialled.recv(1) == b""
    calls.takes[0][1](b"late")  # is of no more interest


@pytest.mark.parametrize("answer", [FAILED, b""])
def test_a_take_that_fails_or_tells_the_end_closes_the_socket(
    dialled: socket.socket, calls: Calls, answer: ChannelError | bytes
) -> None:
    calls.open()
    calls.takes[0][1](answer)
    assert dialled.recv(1) == b""


def test_an_end_waits_for_the_answers_to_what_was_said_before(
    source: Tunnel, dialled: socket.socket, calls: Calls
) -> None:
    calls.open()
    dialled.sendall(b"last")
    dialled.close()
    closing = threading.Thread(target=source.close, args=(WAIT_S,))
    closing.start()
    calls.wait_for(lambda: len(calls.puts) == 3)
    assert [data for _, data, _ in calls.puts[1:]] == [b"last", b""]
    for _, _, done in calls.puts[1:]:
        assert closing.is_alive()
        done(None)
    closing.join(WAIT_S)
    assert not closing.is_alive()


def test_a_peer_that_answers_nothing_keeps_nobody(
    source: Tunnel, dialled: socket.socket, calls: Calls
) -> None:
    calls.open()
    dialled.sendall(b"a")
    calls.wait_for(lambda: len(calls.puts) == 2)
    source.close(timeout_s=0.01)
    assert not source.alive
    assert dialled.recv(1) == b""
    calls.puts[1][2](None)
    with pytest.raises(ChannelError, match="'a-0' was closed while it connected"):
        source.dial(calls)


def test_a_tunnel_that_is_not_used_has_no_thread_and_no_file() -> None:
    before = threading.active_count(), len(os.listdir("/proc/self/fd"))
    tunnel = Tunnel(ChainId("a-0"))
    tunnel.lead_to("/nowhere")
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == before
    tunnel.close(timeout_s=0)
    tunnel.close(timeout_s=0)
