"""Who is at the other end: three messages that prove a common secret (H2). Bytes only, no socket.

    connector -> listener   Hello: magic, version, direction, job, generation, both chains, nonce,
                            and a proof that the connector knows the secret
    listener -> connector   Answer: its nonce and its proof
    connector -> listener   Proof over both nonces

Every proof is an HMAC-SHA256 over a label and everything that was said before. The hello is proved
too, so whoever does not know the secret gets not one byte; a repeated hello gets a new nonce, which
a repeated proof does not match. The listener's first frame tells that it took the connector in.
"""

import hashlib
import hmac
import secrets
import struct
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final

from arkflow_kernel.errors import ChannelError
from arkflow_kernel.ids import ChainId, Generation, JobId

MAGIC: Final = b"arkflow\x00"
VERSION: Final = 1
SECRET_BYTES: Final = 32
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
NAME_BYTES_MAX: Final = 1_024
"""UTF-8 bytes of one name."""

UNAUTHENTICATED_MAX: Final = 64
HANDSHAKE_TIMEOUT_S: Final = 5.0

_FROM_SOURCE: Final = 1
"""Direction: the connector sends data, the listener grants."""

_HELLO: Final = struct.Struct(f"<8sHBxQHHH{NONCE_BYTES}s")
HELLO_FIXED_BYTES: Final = _HELLO.size
ANSWER_BYTES: Final = NONCE_BYTES + PROOF_BYTES


class Refusal(Enum):
    """Why a connection was closed without an answer; counted by reason."""

    MAGIC = "magic"
    VERSION = "version"
    DIRECTION = "direction"
    MALFORMED = "malformed"
    JOB = "job"
    GENERATION = "generation"
    NOT_A_PEER = "not_a_peer"
    SECRET = "secret"
    PROOF = "proof"
    DUPLICATE = "duplicate"
    TIMEOUT = "timeout"
    CROWDED_OUT = "crowded_out"
    CLOSED = "closed"


class HandshakeError(Exception):
    """The other side is not who it should be."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.value)
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class Pair:
    """The two ends of a connection in one attempt of a job."""

    job: JobId
    generation: Generation
    source: ChainId
    target: ChainId


class Connector:
    """The connecting side."""

    def __init__(self, secret: bytes, pair: Pair) -> None:
        self._secret = checked_secret(secret)
        names = [name.encode() for name in (pair.job, pair.source, pair.target)]
        if max(map(len, names)) > NAME_BYTES_MAX:
            raise ChannelError(f"a name is too long for a channel (over {NAME_BYTES_MAX} bytes)")
        said = _HELLO.pack(
            MAGIC,
            VERSION,
            _FROM_SOURCE,
            pair.generation,
            *map(len, names),
            secrets.token_bytes(NONCE_BYTES),
        )
        self._said = said + b"".join(names)

    def hello(self) -> bytes:
        """The first message."""
        return self._said + _proof(self._secret, b"hello", self._said)

    def proof(self, answer: bytes) -> bytes:
        """The third message. `HandshakeError` if the listener does not know the secret."""
        said = self._said + answer[:NONCE_BYTES]
        if not hmac.compare_digest(_proof(self._secret, b"listener", said), answer[NONCE_BYTES:]):
            raise HandshakeError(Refusal.SECRET)
        return _proof(self._secret, b"connector", said)


class Listener:
    """The listening side of one connection: `feed` it what comes until `peer` is known."""

    def __init__(
        self,
        secret: bytes,
        job: JobId,
        generation: Generation,
        target: ChainId,
        sources: Collection[ChainId],
    ) -> None:
        self._secret = checked_secret(secret)
        self._identity = (job, generation, target)
        self._sources = sources
        self._received = b""
        self._said = b""
        self._source: ChainId | None = None
        self.peer: ChainId | None = None

    @property
    def wanted(self) -> int:
        """Bytes that are still missing from the message under way."""
        return self._message_bytes() - len(self._received)

    def feed(self, received: bytes) -> bytes:
        """Take at most `wanted` bytes. The answer to send, or nothing; `HandshakeError`."""
        self._received += received
        if self._source is None:
            _check_fixed(self._received)
        if self.wanted > 0:
            return b""
        message, self._received = self._received, b""
        if self._source is None:
            return self._answer(message)
        if not hmac.compare_digest(_proof(self._secret, b"connector", self._said), message):
            raise HandshakeError(Refusal.PROOF)
        self.peer = self._source
        return b""

    def _message_bytes(self) -> int:
        if self._source is not None:
            return PROOF_BYTES
        if len(self._received) < HELLO_FIXED_BYTES:
            return HELLO_FIXED_BYTES
        lengths = _HELLO.unpack_from(self._received)[4:7]
        return HELLO_FIXED_BYTES + int(sum(lengths)) + PROOF_BYTES

    def _answer(self, hello: bytes) -> bytes:
        job, generation, source, target = _identity(hello)
        own_job, own_generation, own_chain = self._identity
        if job != own_job:
            raise HandshakeError(Refusal.JOB)
        if generation != own_generation:
            raise HandshakeError(Refusal.GENERATION)
        if target != own_chain or source not in self._sources:
            raise HandshakeError(Refusal.NOT_A_PEER)
        said = hello[:-PROOF_BYTES]
        if not hmac.compare_digest(_proof(self._secret, b"hello", said), hello[-PROOF_BYTES:]):
            raise HandshakeError(Refusal.SECRET)
        self._source = ChainId(source)
        nonce = secrets.token_bytes(NONCE_BYTES)
        self._said = said + nonce
        return nonce + _proof(self._secret, b"listener", self._said)


def checked_secret(secret: bytes) -> bytes:
    """The secret, if it has the right size; else `ChannelError`."""
    if len(secret) != SECRET_BYTES:
        raise ChannelError(f"the secret of a generation has {SECRET_BYTES} bytes")
    return secret


def _check_fixed(received: bytes) -> None:
    """Refuse a hello as soon as its first bytes are wrong."""
    if received[: len(MAGIC)] != MAGIC[: len(received)]:
        raise HandshakeError(Refusal.MAGIC)
    if len(received) < HELLO_FIXED_BYTES:
        return
    _, version, direction, _, *lengths, _ = _HELLO.unpack_from(received)
    if version != VERSION:
        raise HandshakeError(Refusal.VERSION)
    if direction != _FROM_SOURCE:
        raise HandshakeError(Refusal.DIRECTION)
    if not 0 < min(lengths) <= max(lengths) <= NAME_BYTES_MAX:
        raise HandshakeError(Refusal.MALFORMED)


def _identity(hello: bytes) -> tuple[str, int, str, str]:
    """Job, generation, source, target of a whole hello."""
    _, _, _, generation, job, source, target, _ = _HELLO.unpack_from(hello)
    names = hello[HELLO_FIXED_BYTES:-PROOF_BYTES]
    parts = (names[:job], names[job : job + source], names[job + source :])
    assert len(parts[2]) == target
    try:
        decoded = [part.decode() for part in parts]
    except UnicodeDecodeError as error:
        raise HandshakeError(Refusal.MALFORMED) from error
    return decoded[0], generation, decoded[1], decoded[2]


def _proof(secret: bytes, label: bytes, said: bytes) -> bytes:
    return hmac.new(secret, label + b"\x00" + said, hashlib.sha256).digest()


__all__ = [
    "ANSWER_BYTES",
    "HANDSHAKE_TIMEOUT_S",
    "HELLO_FIXED_BYTES",
    "MAGIC",
    "NONCE_BYTES",
    "PROOF_BYTES",
    "SECRET_BYTES",
    "UNAUTHENTICATED_MAX",
    "Connector",
    "HandshakeError",
    "Listener",
    "Pair",
    "Refusal",
    "checked_secret",
]
