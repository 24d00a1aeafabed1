"""Both sides prove the secret of the generation; whatever differs is refused by reason (H2)."""

import struct

import pytest

from arkflow_kernel.errors import ChannelError
from arkflow_kernel.ids import ChainId, Generation, JobId
from arkflow_ray.runtime.channels.handshake import (
    ANSWER_BYTES,
    HELLO_FIXED_BYTES,
    MAGIC,
    NONCE_BYTES,
    PROOF_BYTES,
    Connector,
    HandshakeError,
    Listener,
    Pair,
    Refusal,
)

SECRET = bytes(range(32))
OTHER_SECRET = bytes(32)
PAIR = Pair(JobId("job"), Generation(3), ChainId("quelle-grün-0"), ChainId("target-0"))


def _listener(secret: bytes = SECRET) -> Listener:
    return Listener(secret, PAIR.job, PAIR.generation, PAIR.target, [PAIR.source])


def _feed(listener: Listener, message: bytes) -> bytes:
    """Feed as the reception does: never more than is wanted."""
    answer = b""
    while message and not answer and listener.peer is None:
        taken = listener.wanted
        answer = listener.feed(message[:taken])
        message = message[taken:]
    return answer


def _refusal(listener: Listener, message: bytes) -> Refusal:
    with pytest.raises(HandshakeError) as caught:
        _feed(listener, message)
    assert listener.peer is None
    return caught.value.refusal


def test_two_that_know_the_secret_know_each_other() -> None:
    connector, listener = Connector(SECRET, PAIR), _listener()
    answer = _feed(listener, connector.hello())
    assert len(answer) == ANSWER_BYTES
    assert listener.peer is None
    assert _feed(listener, connector.proof(answer)) == b""
    assert listener.peer == PAIR.source


def test_the_hello_may_come_byte_by_byte() -> None:
    listener = _listener()
    hello = Connector(SECRET, PAIR).hello()
    assert [listener.feed(hello[n : n + 1]) for n in range(len(hello) - 1)] == [b""] * (
        len(hello) - 1
    )
    assert len(listener.feed(hello[-1:])) == ANSWER_BYTES


@pytest.mark.parametrize(
    ("pair", "refusal"),
    [
        (Pair(JobId("other"), PAIR.generation, PAIR.source, PAIR.target), Refusal.JOB),
        (Pair(PAIR.job, Generation(2), PAIR.source, PAIR.target), Refusal.GENERATION),
        (Pair(PAIR.job, PAIR.generation, ChainId("x-0"), PAIR.target), Refusal.NOT_A_PEER),
        (Pair(PAIR.job, PAIR.generation, PAIR.source, ChainId("x-0")), Refusal.NOT_A_PEER),
        (Pair(PAIR.job, PAIR.generation, PAIR.target, PAIR.source), Refusal.NOT_A_PEER),
    ],
)
def test_another_identity_gets_no_answer(pair: Pair, refusal: Refusal) -> None:
    assert _refusal(_listener(), Connector(SECRET, pair).hello()) is refusal


def test_another_secret_gets_no_answer() -> None:
    assert _refusal(_listener(), Connector(OTHER_SECRET, PAIR).hello()) is Refusal.SECRET


@pytest.mark.parametrize("at", range(len(MAGIC) + 3))
def test_each_of_the_first_bytes_counts(at: int) -> None:
    hello = bytearray(Connector(SECRET, PAIR).hello())
    hello[at] ^= 0x40
    expected = Refusal.MAGIC if at < len(MAGIC) else Refusal.VERSION
    if at == len(MAGIC) + 2:
        expected = Refusal.DIRECTION
    assert _refusal(_listener(), bytes(hello)) is expected


def test_a_wrong_first_byte_is_refused_at_once() -> None:
    with pytest.raises(HandshakeError, match="magic"):
        _listener().feed(b"G")


@pytest.mark.parametrize("at", [HELLO_FIXED_BYTES - 1, -PROOF_BYTES, -1])
def test_a_changed_nonce_or_proof_is_refused(at: int) -> None:
    hello = bytearray(Connector(SECRET, PAIR).hello())
    hello[at] ^= 1
    assert _refusal(_listener(), bytes(hello)) is Refusal.SECRET


@pytest.mark.parametrize("length", [0, 65_535])
def test_names_have_a_length_that_names_have(length: int) -> None:
    hello = bytearray(Connector(SECRET, PAIR).hello())
    struct.pack_into("<H", hello, HELLO_FIXED_BYTES - NONCE_BYTES - 2, length)
    assert _refusal(_listener(), bytes(hello)) is Refusal.MALFORMED


def test_names_are_text() -> None:
    hello = bytearray(Connector(SECRET, PAIR).hello())
    hello[HELLO_FIXED_BYTES] = 0xFF
    assert _refusal(_listener(), bytes(hello)) is Refusal.MALFORMED


def test_a_repeated_handshake_fails_at_the_new_nonce() -> None:
    connector, first = Connector(SECRET, PAIR), _listener()
    hello = connector.hello()
    proof = connector.proof(_feed(first, hello))
    second = _listener()
    assert len(_feed(second, hello)) == ANSWER_BYTES
    assert _refusal(second, proof) is Refusal.PROOF


def test_the_listeners_proof_is_no_proof_of_a_connector() -> None:
    connector, listener = Connector(SECRET, PAIR), _listener()
    answer = _feed(listener, connector.hello())
    assert _refusal(listener, answer[NONCE_BYTES:]) is Refusal.PROOF


@pytest.mark.parametrize("at", [0, NONCE_BYTES - 1, NONCE_BYTES, ANSWER_BYTES - 1])
def test_a_connector_refuses_a_listener_that_does_not_know_the_secret(at: int) -> None:
    connector, listener = Connector(SECRET, PAIR), _listener()
    answer = bytearray(_feed(listener, connector.hello()))
    answer[at] ^= 1
    with pytest.raises(HandshakeError, match="secret"):
        connector.proof(bytes(answer))


@pytest.mark.parametrize("secret", [b"", bytes(31), bytes(33)])
def test_a_secret_has_32_bytes_and_the_error_does_not_show_it(secret: bytes) -> None:
    with pytest.raises(ChannelError, match="32 bytes"):
        Connector(secret, PAIR)
    with pytest.raises(ChannelError, match="32 bytes"):
        _listener(secret)
