"""The frames of a connection: header, control records, limits (H3).

A frame is a header of `HEADER_BYTES` and a body of `length` bytes. All fields are little-endian.
`parse_header` refuses what no frame may say, before anybody allocates for it; what depends on the
connection (which channel numbers there are, who may send which kind) is in `FrameRules`.
"""

import struct
from collections.abc import Collection
from enum import IntEnum
from typing import Final, NamedTuple

from arkflow_kernel.envelope import (
    Barrier,
    EndOfStream,
    Envelope,
    Idle,
    Reset,
    RoundKind,
    Watermark,
)
from arkflow_kernel.ids import CheckpointId, EventTimeMs, Generation, Sequence
from arkflow_kernel.limits import FRAME_BYTES_MAX, INT64_MAX, MIB

_HEADER: Final = struct.Struct("<BxHIQQQ")
HEADER_BYTES: Final = _HEADER.size
SCHEMAS_MAX: Final = 64
"""Schemas that one side keeps per connection. The one used longest ago gives its id up."""

SCHEMA_BYTES_MAX: Final = 4 * MIB
"""One schema as IPC: some ten thousand columns."""

DATA_BYTES_MAX: Final = FRAME_BYTES_MAX + MIB
"""A batch as IPC: its bytes, and what IPC says about its columns."""

GRANT: Final = struct.Struct("<IQQ")
"""Channel number, taken up to, settled up to."""

_BARRIER: Final = struct.Struct("<QQB")
_WATERMARK: Final = struct.Struct("<q")
_RESET: Final = struct.Struct("<Q")
_END: Final = struct.Struct("<B")
_ROUND_KINDS: Final = (
    RoundKind.PERIODIC,
    RoundKind.SAVEPOINT,
    RoundKind.RESCALE,
    RoundKind.FINAL,
)


class FrameKind(IntEnum):
    """What a frame is. The numbers are the wire's."""

    SCHEMA = 1
    DATA = 2
    BARRIER = 3
    WATERMARK = 4
    IDLE = 5
    RESET = 6
    END = 7
    GRANTS = 8
    PING = 9
    BYE = 10


class FrameError(Exception):
    """A peer sent what no frame may be. The connection turns it into a `ChannelError`."""


class Header(NamedTuple):
    """One header. `weight` is the size that credit counts, of data only; unused fields are 0."""

    kind: FrameKind
    schema_id: int = 0
    number: int = 0
    sequence: int = 0
    length: int = 0
    weight: int = 0


CONTROL_BYTES: Final = {
    FrameKind.BARRIER: _BARRIER.size,
    FrameKind.WATERMARK: _WATERMARK.size,
    FrameKind.IDLE: 0,
    FrameKind.RESET: _RESET.size,
    FrameKind.END: _END.size,
}
"""Bodies of control envelopes are records of exactly this size."""

TO_TARGET: Final = frozenset(FrameKind) - {FrameKind.GRANTS}
"""What the sending chain of a channel may send."""

TO_SOURCE: Final = frozenset({FrameKind.GRANTS, FrameKind.PING, FrameKind.BYE})
"""What the receiving chain may send."""

_KINDS: Final = {int(kind): kind for kind in FrameKind}


class FrameRules:
    """What one side of one connection may receive."""

    def __init__(self, kinds: Collection[FrameKind], numbers: Collection[int]) -> None:
        self._kinds = frozenset(kinds)
        self._numbers = frozenset(numbers)
        self._grants_bytes_max = len(self._numbers) * GRANT.size

    def parse(self, buffer: "memoryview | bytes", offset: int = 0) -> Header:
        """The header at `offset`; `FrameError` if it says anything that it may not."""
        value, schema_id, number, sequence, length, weight = _HEADER.unpack_from(buffer, offset)
        kind = _KINDS.get(value)
        if kind is None or kind not in self._kinds:
            raise FrameError(f"a frame of kind {value}, which it may not send")
        header = Header(kind, schema_id, number, sequence, length, weight)
        if kind is FrameKind.DATA:
            self._check_data(header)
        elif kind in CONTROL_BYTES:
            self._check_number(number)
            _check_rest(header, (0, number, 0, CONTROL_BYTES[kind], 0))
        elif kind is FrameKind.SCHEMA:
            if not (schema_id < SCHEMAS_MAX and 0 < length <= SCHEMA_BYTES_MAX):
                raise FrameError(f"schema {schema_id} of {length:,} bytes")
            _check_rest(header, (schema_id, 0, 0, length, 0))
        elif kind is FrameKind.GRANTS:
            if not 0 < length <= self._grants_bytes_max or length % GRANT.size:
                raise FrameError(f"grants of {length:,} bytes")
            _check_rest(header, (0, 0, 0, length, 0))
        else:
            _check_rest(header, (0, 0, 0, 0, 0))
        return header

    def grants(self, body: "memoryview | bytes") -> list[tuple[int, Sequence, Sequence]]:
        """Number, taken, settled of every grant in a frame."""
        grants = [(n, Sequence(t), Sequence(s)) for n, t, s in GRANT.iter_unpack(body)]
        for number, _, _ in grants:
            self._check_number(number)
        return grants

    def _check_data(self, header: Header) -> None:
        self._check_number(header.number)
        if not 0 < header.length <= DATA_BYTES_MAX:
            raise FrameError(f"a batch of {header.length:,} bytes; the limit is {DATA_BYTES_MAX:,}")
        if header.schema_id >= SCHEMAS_MAX:
            raise FrameError(f"a batch of schema {header.schema_id}, which there cannot be")
        if not (0 < header.sequence <= INT64_MAX and header.weight <= INT64_MAX):
            raise FrameError(f"batch {header.sequence} that weighs {header.weight:,} bytes")

    def _check_number(self, number: int) -> None:
        if number not in self._numbers:
            raise FrameError(f"a frame for channel number {number}, which is not between us")


def _check_rest(header: Header, expected: tuple[int, int, int, int, int]) -> None:
    if header[1:] != expected:
        raise FrameError(f"a frame that is not well formed: {header}")


def pack_header(header: Header) -> bytes:
    """The header as it goes out."""
    return _HEADER.pack(*header)


def control_frame(number: int, envelope: Envelope) -> bytes:
    """A control envelope as a whole frame."""
    match envelope:
        case Barrier():
            kind = FrameKind.BARRIER
            index = _ROUND_KINDS.index(envelope.kind)
            body = _BARRIER.pack(envelope.round_id, envelope.generation, index)
        case Watermark():
            kind, body = FrameKind.WATERMARK, _WATERMARK.pack(envelope.time_ms)
        case Idle():
            kind, body = FrameKind.IDLE, b""
        case Reset():
            kind, body = FrameKind.RESET, _RESET.pack(envelope.generation)
        case EndOfStream():
            kind, body = FrameKind.END, _END.pack(envelope.stopped)
        case _:
            raise AssertionError(f"{type(envelope).__name__} is no control envelope")
    return pack_header(Header(kind, number=number, length=len(body))) + body


def control_envelope(kind: FrameKind, body: "memoryview | bytes") -> Envelope:
    """The control envelope in a frame whose header was checked."""
    match kind:
        case FrameKind.BARRIER:
            round_id, generation, index = _BARRIER.unpack(body)
            if index >= len(_ROUND_KINDS):
                raise FrameError(f"a barrier of a round of kind {index}")
            return Barrier(CheckpointId(round_id), Generation(generation), _ROUND_KINDS[index])
        case FrameKind.WATERMARK:
            return Watermark(EventTimeMs(_WATERMARK.unpack(body)[0]))
        case FrameKind.IDLE:
            return Idle()
        case FrameKind.RESET:
            return Reset(Generation(_RESET.unpack(body)[0]))
        case FrameKind.END:
            stopped: int = _END.unpack(body)[0]
            if stopped > 1:
                raise FrameError(f"an end of stream that says {stopped}")
            return EndOfStream(stopped == 1)
        case _:
            raise AssertionError(f"{kind.name} holds no control envelope")


def grants_frame(grants: dict[int, tuple[Sequence, Sequence]]) -> bytes:
    """Credit and settlement of some channels, by number: taken up to, settled up to (H4)."""
    body = b"".join(GRANT.pack(number, *upto) for number, upto in grants.items())
    return pack_header(Header(FrameKind.GRANTS, length=len(body))) + body


PING_FRAME: Final = pack_header(Header(FrameKind.PING))
BYE_FRAME: Final = pack_header(Header(FrameKind.BYE))

__all__ = [
    "BYE_FRAME",
    "CONTROL_BYTES",
    "DATA_BYTES_MAX",
    "GRANT",
    "HEADER_BYTES",
    "PING_FRAME",
    "SCHEMAS_MAX",
    "SCHEMA_BYTES_MAX",
    "TO_SOURCE",
    "TO_TARGET",
    "FrameError",
    "FrameKind",
    "FrameRules",
    "Header",
    "control_envelope",
    "control_frame",
    "grants_frame",
    "pack_header",
]
