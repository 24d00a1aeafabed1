"""One connection between two chains, seen from one end. Lives in the I/O thread alone (H3, H9).

Rules
- What is written is a queue of whole frames. `_refill` adds frames while little is queued, so
  batches wait as references and are encoded when their turn comes.
- Reading and writing are bounded per call: no peer keeps the thread for itself.
- A connection ends in order when both sides have said Bye. An end of the stream, an error of the
  socket or silence before the peer's Bye is a break.
"""

import socket
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final

import pyarrow as pa

from arkflow_kernel.errors import ChannelError
from arkflow_kernel.limits import MIB
from arkflow_kernel.plan import ChannelPlan
from arkflow_ray.runtime.channels.batches import Part
from arkflow_ray.runtime.channels.counters import Counters
from arkflow_ray.runtime.channels.frame_reader import FrameReader
from arkflow_ray.runtime.channels.frames import (
    BYE_FRAME,
    PING_FRAME,
    FrameError,
    FrameKind,
    FrameRules,
    Header,
)
from arkflow_ray.runtime.channels.handshake import Pair

PING_INTERVAL_S: Final = 1.0
SILENCE_S: Final = 10.0
READ_BYTES_PER_PASS: Final = 2 * MIB
WRITE_BYTES_PER_PASS: Final = 4 * MIB
WRITE_AHEAD_BYTES: Final = MIB
"""Encoded bytes that may wait for the socket: small frames go out together."""

_PARTS_MAX: Final = 512
"""Pieces of one vectored write; Linux takes 1,024."""

_CHANNELS_NAMED: Final = 3


class Connection(ABC):
    """What both ends have in common."""

    def __init__(
        self,
        sock: socket.socket,
        pair: Pair,
        peer: str,
        channels: Sequence[ChannelPlan],
        rules: FrameRules,
        counters: Counters,
        now: float,
    ) -> None:
        self.sock = sock
        self.heard_at = now
        self.blocked = False
        self._pair = pair
        self._peer = peer
        self._channels = channels
        self._counters = counters
        self._reader = FrameReader(rules)
        self._unsent: deque[Part] = deque()
        self._unsent_bytes = 0
        self._unsent_envelopes = False
        self._bye_wanted = False
        self._bye_queued = False
        self._bye_heard = False
        self._gone = False

    @property
    def finished(self) -> bool:
        """Both sides have said Bye, or the peer did and left."""
        return self._bye_heard and (self._gone or (self._bye_queued and not self._unsent))

    @property
    def ending(self) -> bool:
        """Whether Bye was said or is to be said: there may be something to finish."""
        return self._bye_wanted

    @property
    @abstractmethod
    def owes(self) -> bool:
        """Whether envelopes that were given to it have not gone out."""

    def readable(self, now: float) -> None:
        """Take what has come. `ChannelError` if the connection is broken."""
        budget = READ_BYTES_PER_PASS
        more = True
        while more and budget > 0 and not self._gone:
            try:
                count, more = self._reader.receive(self.sock)
            except BlockingIOError:
                return
            except OSError as error:
                self._end(f"the connection failed ({error.strerror})")
                return
            if count == 0:
                within = " in the middle of a frame" if self._reader.within_frame else ""
                self._end(f"it closed the connection{within} without saying Bye")
                return
            self.heard_at = now
            budget -= count
            self._counters.bytes_in += count
            self._take_frames()

    def flush(self) -> None:
        """Write as much as the socket takes. `ChannelError` if the connection is broken."""
        self.blocked = False
        budget = WRITE_BYTES_PER_PASS
        while not self._gone:
            self._refill_and_bye()
            if not self._unsent:
                self._unsent_envelopes = False
                return
            if budget <= 0:
                self.blocked = True
                return
            parts = list(islice(self._unsent, _PARTS_MAX))
            try:
                sent = self.sock.sendmsg(parts)
            except BlockingIOError:
                self.blocked = True
                return
            except OSError as error:
                self._end(f"the connection failed ({error.strerror})")
                return
            budget -= sent
            self._counters.bytes_out += sent
            self._unsent_bytes -= sent
            self._drop(sent)

    def tick(self, now: float) -> None:
        """Once a second: a ping, and `ChannelError` if the peer has been silent for too long."""
        if now - self.heard_at > SILENCE_S:
            raise self.error(f"it has been silent for {SILENCE_S:.0f} s")
        if not self._unsent and not self._bye_queued:
            self._queue([PING_FRAME], len(PING_FRAME))

    def say_bye(self) -> None:
        """Bye goes out after what was given before."""
        self._bye_wanted = True

    def error(self, reason: str) -> ChannelError:
        """An error that names the channels, both chains and the reason."""
        names = [str(plan.channel) for plan in self._channels[:_CHANNELS_NAMED]]
        more = len(self._channels) - len(names)
        told = ", ".join(names) + (f" and {more} more" if more else "")
        pair = self._pair
        return ChannelError(
            f"channel {told} from chain '{pair.source}' to '{pair.target}', generation "
            f"{pair.generation}: {reason} (peer: chain '{self._peer}')"
        )

    def _take_frames(self) -> None:
        try:
            while (frame := self._reader.take()) is not None:
                header, body = frame
                self._counters.frames_in += 1
                if self._bye_heard:
                    raise FrameError(f"a frame of kind {header.kind.name} after its Bye")
                if header.kind is FrameKind.BYE:
                    self._bye_heard = True
                    self._heard_bye()
                elif header.kind is not FrameKind.PING:
                    self._take(header, body)
        except FrameError as error:
            raise self.error(f"it sent {error}") from error

    def _end(self, reason: str) -> None:
        """The socket is of no more use."""
        self._gone = True
        if not self._bye_heard:
            raise self.error(reason)

    def _heard_bye(self) -> None:
        """The peer sends nothing more, and takes nothing more."""
        self.say_bye()

    @abstractmethod
    def _take(self, header: Header, body: pa.Buffer, /) -> None:
        """Take a frame that is neither Ping nor Bye."""

    @abstractmethod
    def _refill(self) -> bool:
        """Queue frames while fewer than `WRITE_AHEAD_BYTES` wait; True if nothing is left."""

    def _refill_and_bye(self) -> None:
        if self._bye_queued:
            return
        if self._refill() and self._bye_wanted:
            self._bye_queued = True
            self._queue([BYE_FRAME], len(BYE_FRAME))

    def _queue(self, parts: Sequence[Part], size: int) -> None:
        self._unsent.extend(parts)
        self._unsent_bytes += size
        self._counters.frames_out += 1

    def _drop(self, sent: int) -> None:
        unsent = self._unsent
        while sent:
            part = unsent.popleft()
            size = len(part)
            if size > sent:
                unsent.appendleft(memoryview(part).cast("B")[sent:])
                return
            sent -= size


__all__ = [
    "PING_INTERVAL_S",
    "SILENCE_S",
    "WRITE_AHEAD_BYTES",
    "Connection",
]
