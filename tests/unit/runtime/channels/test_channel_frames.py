"""Frames say only what they may, and that is known before anything is allocated (H3, H4)."""

import pytest

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
from arkflow_ray.runtime.channels.frames import (
    BYE_FRAME,
    DATA_BYTES_MAX,
    GRANT,
    HEADER_BYTES,
    SCHEMA_BYTES_MAX,
    SCHEMAS_MAX,
    TO_SOURCE,
    TO_TARGET,
    FrameError,
    FrameKind,
    FrameRules,
    Header,
    control_envelope,
    control_frame,
    grants_frame,
    pack_header,
)

TARGET = FrameRules(TO_TARGET, [3, 4])
SOURCE = FrameRules(TO_SOURCE, [3, 4])
DATA = Header(FrameKind.DATA, 1, 3, 1, 100, 80)


@pytest.mark.parametrize(
    "envelope",
    [
        *(Barrier(CheckpointId(2**40), Generation(7), kind) for kind in RoundKind),
        Watermark(EventTimeMs(-(2**63))),
        Watermark(EventTimeMs(2**63 - 1)),
        Idle(),
        Reset(Generation(2**40)),
        EndOfStream(),
        EndOfStream(stopped=True),
    ],
)
def test_control_envelopes_survive_the_wire(envelope: Envelope) -> None:
    frame = control_frame(4, envelope)
    header = TARGET.parse(frame)
    assert header.number == 4
    assert header.length == len(frame) - HEADER_BYTES
    assert control_envelope(header.kind, frame[HEADER_BYTES:]) == envelope


def test_a_header_of_data_survives_the_wire() -> None:
    assert TARGET.parse(pack_header(DATA)) == DATA


@pytest.mark.parametrize(
    "header",
    [
        DATA._replace(length=DATA_BYTES_MAX + 1),
        DATA._replace(length=2**40),
        DATA._replace(length=0),
        DATA._replace(number=5),
        DATA._replace(schema_id=SCHEMAS_MAX),
        DATA._replace(sequence=0),
        DATA._replace(sequence=2**63),
        DATA._replace(weight=2**63),
        Header(FrameKind.SCHEMA, length=SCHEMA_BYTES_MAX + 1),
        Header(FrameKind.SCHEMA, schema_id=SCHEMAS_MAX, length=8),
        Header(FrameKind.SCHEMA, number=3, length=8),
        Header(FrameKind.BARRIER, number=3, length=18),
        Header(FrameKind.BARRIER, number=9, length=17),
        Header(FrameKind.IDLE, number=3, length=1),
        Header(FrameKind.IDLE, number=3, weight=1),
        Header(FrameKind.PING, number=3),
        Header(FrameKind.BYE, length=1),
        Header(FrameKind.GRANTS, length=GRANT.size),
    ],
)
def test_a_header_that_says_too_much_is_refused_by_a_target(header: Header) -> None:
    with pytest.raises(FrameError):
        TARGET.parse(pack_header(header))


@pytest.mark.parametrize("kind", [0, 11, 255])
def test_an_unknown_kind_is_refused(kind: int) -> None:
    with pytest.raises(FrameError, match=f"kind {kind}"):
        TARGET.parse(bytes([kind]) + BYE_FRAME[1:])


@pytest.mark.parametrize("kind", sorted(TO_TARGET - TO_SOURCE))
def test_a_target_sends_neither_data_nor_control(kind: FrameKind) -> None:
    with pytest.raises(FrameError, match=f"kind {kind.value}"):
        SOURCE.parse(pack_header(Header(kind, number=3, length=1)))


def test_grants_survive_the_wire() -> None:
    frame = grants_frame({3: (Sequence(9), Sequence(2**40)), 4: (Sequence(0), Sequence(0))})
    assert SOURCE.parse(frame).kind is FrameKind.GRANTS
    assert SOURCE.grants(frame[HEADER_BYTES:]) == [(3, 9, 2**40), (4, 0, 0)]


@pytest.mark.parametrize("length", [0, GRANT.size - 1, 3 * GRANT.size])
def test_grants_are_whole_records_for_the_channels_that_there_are(length: int) -> None:
    with pytest.raises(FrameError):
        SOURCE.parse(pack_header(Header(FrameKind.GRANTS, length=length)))


def test_a_grant_for_a_foreign_channel_is_refused() -> None:
    frame = grants_frame({8: (Sequence(1), Sequence(1))})
    with pytest.raises(FrameError, match="number 8"):
        SOURCE.grants(frame[HEADER_BYTES:])


@pytest.mark.parametrize(
    ("kind", "body"), [(FrameKind.BARRIER, bytes(16) + b"\x04"), (FrameKind.END, b"\x02")]
)
def test_a_control_record_that_says_nonsense_is_refused(kind: FrameKind, body: bytes) -> None:
    with pytest.raises(FrameError):
        control_envelope(kind, body)
