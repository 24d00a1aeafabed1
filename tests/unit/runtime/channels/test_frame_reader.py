"""Frames come out whole wherever the stream is cut (H3)."""

import itertools
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkflow_kernel.envelope import Idle, Watermark
from arkflow_kernel.ids import EventTimeMs
from arkflow_ray.runtime.channels.frame_reader import SCRATCH_BYTES, FrameReader
from arkflow_ray.runtime.channels.frames import (
    HEADER_BYTES,
    PING_FRAME,
    TO_TARGET,
    FrameError,
    FrameKind,
    FrameRules,
    Header,
    control_frame,
    pack_header,
)

RULES = FrameRules(TO_TARGET, [0])
SIZES = st.one_of(
    st.integers(1, 200),
    st.integers(SCRATCH_BYTES - 100, SCRATCH_BYTES + 100),
    st.integers(1, 5 * SCRATCH_BYTES),
)
FRAMES = st.one_of(
    st.just(PING_FRAME),
    st.just(control_frame(0, Idle())),
    st.integers(-5, 5).map(lambda ms: control_frame(0, Watermark(EventTimeMs(ms)))),
    SIZES.map(lambda size: _frame_of(size)),
)


def _frame_of(size: int) -> bytes:
    header = Header(FrameKind.DATA, sequence=size, length=size)
    return pack_header(header) + bytes([size % 251]) * size


def _read_all(reader: FrameReader, sock: socket.socket) -> list[bytes]:
    """Every frame that is whole, as it stood on the wire."""
    frames = []
    more = True
    while more:
        try:
            _, more = reader.receive(sock)
        except BlockingIOError:
            break
        while (frame := reader.take()) is not None:
            frames.append(pack_header(frame[0]) + frame[1].to_pybytes())
    return frames


@settings(deadline=None, max_examples=60)
@given(st.lists(FRAMES, min_size=1, max_size=12), st.data())
def test_frames_come_out_whole_wherever_the_stream_is_cut(
    frames: list[bytes], data: st.DataObject
) -> None:
    wire = b"".join(frames)
    cuts = data.draw(st.lists(st.integers(0, len(wire)), max_size=20))
    edges = [0, *sorted(cuts), len(wire)]
    reader = FrameReader(RULES)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        found: list[bytes] = []
        for begin, end in itertools.pairwise(edges):
            theirs.sendall(wire[begin:end])
            found += _read_all(reader, ours)
        assert found == frames
        assert not reader.within_frame


@settings(deadline=None, max_examples=20)
@given(st.binary(min_size=HEADER_BYTES, max_size=3 * HEADER_BYTES))
def test_noise_is_refused_or_waits_for_more(noise: bytes) -> None:
    reader = FrameReader(RULES)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"\xee" + noise)
        ours.setblocking(False)
        reader.receive(ours)
        with pytest.raises(FrameError, match="kind 238"):
            reader.take()


def test_the_end_of_the_stream_in_a_header_and_in_a_body_is_within_a_frame() -> None:
    frame = pack_header(Header(FrameKind.DATA, 0, 0, 1, 9_000, 0)) + bytes(9_000)
    for cut in (1, HEADER_BYTES, HEADER_BYTES + 1, len(frame) - 1):
        ours, theirs = socket.socketpair()
        with ours:
            reader = FrameReader(RULES)
            theirs.sendall(frame[:cut])
            theirs.close()
            while reader.receive(ours)[0]:
                assert reader.take() is None
            assert reader.within_frame
