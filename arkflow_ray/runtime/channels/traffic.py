"""What an exchange's I/O thread does: connections, their clocks, hand-over to the chain (H8a, H9).

A pass: serve the sockets that are ready, hand over what they brought, take the posts of other
threads, write. Posts are taken in the order in which they were made, so a channel keeps its order.
"""

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from arkflow_kernel.envelope import Envelope
from arkflow_kernel.errors import ChannelError
from arkflow_kernel.ids import ChannelId, Sequence
from arkflow_ray.runtime.channels.connection import PING_INTERVAL_S, Connection
from arkflow_ray.runtime.channels.counters import Counters
from arkflow_ray.runtime.channels.ends import Received, ReceivingEnd, SendingEnd
from arkflow_ray.runtime.channels.io_thread import WRITE, IoThread
from arkflow_ray.runtime.channels.reception import Reception

_LATE_S: Final = 1.0
"""A tick that comes so late means that this process itself stood still."""


class Inbox(Protocol):
    """What an exchange tells its chain. Called in the I/O thread; must not block or raise."""

    def arrived(self, envelopes: list[tuple[ChannelId, Envelope]]) -> None:
        """What came in one pass, in order per channel, checked (E6). Data have one piece."""

    def granted(self, grants: list[tuple[ChannelId, Sequence, Sequence]]) -> None:
        """Channel, taken up to, settled up to: the newest word on each channel (H4, E8)."""

    def broken(self, error: ChannelError) -> None:
        """A connection broke, and the attempt with it (H9). Told once."""


Post = tuple[Connection, int, Envelope | tuple[Sequence, Sequence]]
"""Something for a connection: an envelope to send, or a grant, with the channel's number."""


class Traffic:
    """The state of the I/O thread. Only `post` and `order` may be called from other threads."""

    def __init__(self, name: str, inbox: Inbox, counters: Counters) -> None:
        self.thread = IoThread(name, self)
        self.received = Received()
        self.unsent: list[ChannelError] = []
        self._inbox = inbox
        self._counters = counters
        self._posts: deque[Post] = deque()
        self._orders: deque[Callable[[], None]] = deque()
        self._connections: set[Connection] = set()
        self._dirty: set[Connection] = set()
        self._reception: Reception | None = None
        self._next_tick = time.monotonic() + PING_INTERVAL_S
        self._told = False
        self._closing = False
        self._stopping = False

    def post(self, post: Post) -> None:
        """Have something sent. Any thread; never blocks."""
        self._posts.append(post)
        self.thread.wake()

    def order(self, order: Callable[[], None]) -> None:
        """Have something done in the thread, before later posts. Any thread; never blocks."""
        self._orders.append(order)
        self.thread.wake()

    def receive_at(self, reception: Reception) -> None:
        """Let sources in. In the thread."""
        self._reception = reception

    def adopt(self, connection: Connection) -> None:
        """Serve a connection from now on. In the thread."""
        self._connections.add(connection)
        self._counters.connections += 1
        self.thread.watch(connection.sock, partial(self._ready, connection))
        self._dirty.add(connection)

    def say_bye(self) -> None:
        """End every connection in order, then the thread. In the thread."""
        self._closing = True
        if self._reception is not None:
            self._reception.close()
        for connection in self._connections:
            connection.say_bye()
        self._dirty |= self._connections

    def stop(self) -> None:
        """End the thread in this pass. In the thread."""
        self._stopping = True

    def timeout_s(self) -> float:
        """Until the next ping, or the deadline of one who knocks."""
        due = self._next_tick
        deadline = None if self._reception is None else self._reception.next_deadline()
        if deadline is not None:
            due = min(due, deadline)
        return max(0.0, due - time.monotonic())

    def work(self) -> bool:
        """Hand over, take posts, write, look at the clock."""
        self._hand_over()
        while self._orders:
            self._orders.popleft()()
        self._take_posts()
        for connection in self._dirty:
            self._flush(connection)
        self._dirty.clear()
        self._look_at_clock()
        return not self._stopping and not (self._closing and not self._connections)

    def failed(self, error: BaseException) -> None:
        """The thread itself failed: a bug, told like a broken channel."""
        self._tell_once(ChannelError(f"the I/O thread of the channels failed: {error!r}"))

    def ended(self) -> None:
        """Close what is open."""
        for connection in self._connections:
            if connection.owes:
                self.unsent.append(connection.error("not everything was sent before it was closed"))
            connection.sock.close()
        self._connections.clear()
        if self._reception is not None:
            self._reception.close()

    def _ready(self, connection: Connection, mask: int) -> None:
        if connection not in self._connections:
            return  # ended by another socket's handler of this pass
        try:
            if mask & ~WRITE:
                connection.readable(time.monotonic())
        except ChannelError as error:
            self._break(connection, error)
            return
        if mask & WRITE or connection.ending:
            self._dirty.add(connection)

    def _flush(self, connection: Connection) -> None:
        if connection not in self._connections:
            return
        was_blocked = connection.blocked
        try:
            connection.flush()
        except ChannelError as error:
            self._break(connection, error)
            return
        if connection.finished:
            self._drop(connection)
        elif connection.blocked != was_blocked:
            handler = partial(self._ready, connection)
            self.thread.watch(connection.sock, handler, writing=connection.blocked)

    def _take_posts(self) -> None:
        posts = self._posts
        while posts:
            connection, number, what = posts.popleft()
            if connection not in self._connections:
                self._missed(connection)
            elif isinstance(connection, ReceivingEnd):
                assert isinstance(what, tuple)
                connection.grant(number, *what)
                self._dirty.add(connection)
            else:
                assert isinstance(connection, SendingEnd)
                assert not isinstance(what, tuple)
                self._put(connection, number, what)

    def _put(self, connection: SendingEnd, number: int, envelope: Envelope) -> None:
        try:
            connection.put(number, envelope)
        except ChannelError as error:
            self._break(connection, error)
            return
        self._dirty.add(connection)

    def _missed(self, connection: Connection) -> None:
        """A post for a connection that has ended: grants do not matter, envelopes do."""
        if isinstance(connection, SendingEnd):
            self._tell(connection.error("it ended while there was more to send"))

    def _look_at_clock(self) -> None:
        now = time.monotonic()
        if self._reception is not None:
            self._reception.tick(now)
        late = now - self._next_tick
        if late < 0:
            return
        self._next_tick = now + PING_INTERVAL_S
        for connection in list(self._connections):
            if late > _LATE_S:
                connection.heard_at += late
            try:
                connection.tick(now)
            except ChannelError as error:
                self._break(connection, error)
                continue
            self._flush(connection)

    def _hand_over(self) -> None:
        received = self.received
        if received.envelopes:
            envelopes, received.envelopes = received.envelopes, []
            self._inbox.arrived(envelopes)
        if received.grants:
            grants = [(channel, *upto) for channel, upto in received.grants.items()]
            received.grants.clear()
            self._inbox.granted(grants)

    def _break(self, connection: Connection, error: ChannelError) -> None:
        if self._closing and connection.owes:
            self.unsent.append(error)
        self._drop(connection)
        self._tell(error)

    def _drop(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._counters.connections -= 1
        self.thread.unwatch(connection.sock)
        connection.sock.close()

    def _tell(self, error: ChannelError) -> None:
        if self._closing or self._stopping:
            return
        # What came before the break is still the chain's.
        self._hand_over()
        self._tell_once(error)

    def _tell_once(self, error: ChannelError) -> None:
        if self._told:
            return
        self._told = True
        self._counters.last_error = error.message
        self._inbox.broken(error)


__all__ = ["Inbox", "Post", "Traffic"]
