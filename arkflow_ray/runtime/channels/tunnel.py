"""A tunnel: the bytes of connections carried by calls, where chains cannot connect (H6).

    tunnel = Tunnel(chain)
    tunnel.lead_to(path)                       # where its own exchange listens
    sock = tunnel.dial(calls)                  # a socket that ends at the other chain's listener
    tunnel.put(connection, number, data)       # what the calls of others do here
    tunnel.take(connection, number)
    tunnel.close(timeout_s=1)

The exchange sees sockets and knows nothing of it; so handshake, frames, credit and pings are those
of any connection. Here is only the order of pieces. The chain that dials makes all calls: `put`
brings a piece to the other side, and its answer comes when the piece is in the socket there;
`take`, of which one is always under way, is answered with the bytes that go back. The number of
unanswered calls is bounded, and so is what waits on either side.

Whatever fails, a call, a piece out of its order, a socket, ends the connection: its sockets are
closed, and H9 says what follows. A call that is lost is not made again.
"""

import logging
import secrets
import socket
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Final

from arkflow_kernel.errors import ChannelError
from arkflow_kernel.ids import ChainId
from arkflow_ray.runtime.channels.addresses import prepare
from arkflow_ray.runtime.channels.io_thread import IoThread
from arkflow_ray.runtime.channels.tunnel_ends import AcceptedEnd, DialledEnd, TunnelCalls, give

_IDLE_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 5.0

_log = logging.getLogger("arkflow_ray.tunnel")


class Tunnel:
    """The ends of all tunnelled connections of one chain in one generation. One thread (H8).

    The thread is made with the first connection. All methods may be called from any thread.
    """

    def __init__(self, chain: ChainId) -> None:
        self._chain = chain
        self._thread: IoThread | None = None
        self._path: str | None = None
        self._ends: dict[str, DialledEnd | AcceptedEnd] = {}
        self._orders: deque[Callable[[], None]] = deque()
        self._changing = threading.Lock()
        self._closing = False
        self._stopping = False
        self._over = False

    def lead_to(self, path: str) -> None:
        """Connections of others end at this Unix socket of the chain's own exchange."""
        self._path = path

    def dial(self, calls: TunnelCalls) -> socket.socket:
        """A blocking socket that leads to another chain's listener. The way is made meanwhile.

        If that fails, the socket reaches its end. `ChannelError` after `close`.
        """
        ours, theirs = socket.socketpair()
        try:
            for sock in (ours, theirs):
                prepare(sock)
            ours.setblocking(False)
            end = DialledEnd(self, secrets.token_hex(8), ours, calls)
            if not self.order(partial(self._adopt, end)):
                raise ChannelError(f"chain '{self._chain}' was closed while it connected")
        except BaseException:
            ours.close()
            theirs.close()
            raise
        return theirs

    def put(self, connection: str, number: int, data: bytes) -> "Future[str | None]":
        """A piece from the chain that dialled: number 0 opens, no bytes end.

        Done when its bytes are in the socket here; it tells a refusal, which ended the connection.
        """
        answer: Future[str | None] = Future()
        if not self.order(partial(self._put, connection, number, data, answer)):
            answer.set_result(_over(self._chain))
        return answer

    def take(self, connection: str, number: int) -> "Future[bytes]":
        """The next bytes for the chain that dialled, once there are any; none are the end."""
        answer: Future[bytes] = Future()
        if not self.order(partial(self._take, connection, number, answer)):
            answer.set_result(b"")
        return answer

    def close(self, timeout_s: float) -> None:
        """End, when the exchange has closed its sockets: what they gave is carried before.

        After `timeout_s` all connections are cut. Not from the tunnel's thread.
        """
        with self._changing:
            thread = self._thread
            self._over = self._over or thread is None
        if thread is None:
            return
        self.order(self._close)
        if not thread.join(timeout_s):
            self.order(self._stop)
            if not thread.join(_STOP_TIMEOUT_S):
                raise ChannelError("the thread of the tunnel does not end")
        thread.close()

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread is not None and self._thread.alive

    @property
    def thread(self) -> IoThread:
        """The one that serves all ends."""
        assert self._thread is not None
        return self._thread

    def order(self, order: Callable[[], None]) -> bool:
        """Have something done in the thread; False if it has ended."""
        with self._changing:
            if self._over:
                return False
            self._orders.append(order)
            if self._thread is None:
                self._thread = IoThread(f"tunnel-{self._chain}", self)
                self._thread.start()
            thread = self._thread
        thread.wake()
        return True

    # --- what the thread does (`Passes`) -------------------------------------------------------

    def timeout_s(self) -> float:
        """It sleeps until something comes."""
        return _IDLE_S

    def work(self) -> bool:
        """Carry out what was ordered."""
        while self._orders:
            self._orders.popleft()()
        return not self._stopping and not (self._closing and not self._ends)

    def failed(self, error: BaseException) -> None:
        """A bug; all connections are cut."""
        _log.error("the thread of the tunnel of chain '%s' failed: %r", self._chain, error)

    def ended(self) -> None:
        """Cut what is left, and answer those who wait."""
        with self._changing:
            self._over = True
        for end in list(self._ends.values()):
            end.cut(_over(self._chain))
        while self._orders:
            self._orders.popleft()()

    def remove(self, connection: str) -> None:
        """A connection has ended."""
        self._ends.pop(connection, None)

    def _close(self) -> None:
        self._closing = True

    def _stop(self) -> None:
        self._stopping = True

    def _adopt(self, end: "DialledEnd") -> None:
        if self._over or self._closing:
            end.sock.close()
            return
        self._ends[end.connection] = end
        end.open()

    def _put(self, connection: str, number: int, data: bytes, answer: "Future[str | None]") -> None:
        end = self._ends.get(connection)
        if number == 0 and end is None:
            give(answer, self._accept(connection))
        elif isinstance(end, AcceptedEnd):
            end.put(number, data, answer)
        else:
            give(answer, f"chain '{self._chain}' has no such connection")

    def _take(self, connection: str, number: int, answer: "Future[bytes]") -> None:
        end = self._ends.get(connection)
        if isinstance(end, AcceptedEnd):
            end.take(number, answer)
        else:
            give(answer, b"")

    def _accept(self, connection: str) -> str | None:
        """Connect to the own listener; why that failed."""
        if self._over or self._closing:
            return _over(self._chain)
        if self._path is None:
            return f"chain '{self._chain}' does not listen"
        sock = socket.socket(socket.AF_UNIX)
        try:
            prepare(sock)
            sock.setblocking(False)
            sock.connect(self._path)
        except OSError as error:
            sock.close()
            return f"chain '{self._chain}' takes nobody in: {error.strerror}"
        self._ends[connection] = AcceptedEnd(self, connection, sock)
        return None


def _over(chain: ChainId) -> str:
    return f"chain '{chain}' has ended its tunnel"


__all__ = ["Tunnel"]
