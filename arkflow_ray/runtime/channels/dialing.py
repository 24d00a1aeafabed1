"""Connects a chain to all chains that it sends to, in its own thread and with a deadline (H2).

All are greeted before the first answer is waited for, so many peers take as long as the slowest.
"""

import socket
import time
from collections.abc import Callable, Mapping

from arkflow_kernel.errors import ChannelError
from arkflow_ray.runtime.channels.addresses import Address
from arkflow_ray.runtime.channels.frames import PING_FRAME
from arkflow_ray.runtime.channels.handshake import ANSWER_BYTES, Connector, HandshakeError, Pair

Dial = Callable[[Address, float], socket.socket]
"""A blocking socket connected to a chain within so many seconds. `OSError`, `ChannelError`."""


def connect_all(
    peers: Mapping[Pair, Address], secret: bytes, dial: Dial, timeout_s: float
) -> dict[Pair, socket.socket]:
    """Non-blocking sockets to all peers, each of which has taken this chain in.

    `ChannelError` names the first chain that did not; then no socket is left open.
    """
    deadline = time.monotonic() + timeout_s
    sockets: dict[Pair, socket.socket] = {}
    connectors = {pair: Connector(secret, pair) for pair in peers}
    at = next(iter(peers), None)
    try:
        for at, address in peers.items():
            sockets[at] = dial(address, _left_s(deadline))
            _send(sockets[at], connectors[at].hello(), deadline)
        for at, sock in sockets.items():
            answer = _receive(sock, ANSWER_BYTES, deadline)
            _send(sock, connectors[at].proof(answer), deadline)
        for at in sockets:
            _await_ping(sockets[at], deadline)
            sockets[at].setblocking(False)
    except BaseException as error:
        for sock in sockets.values():
            sock.close()
        if at is not None and isinstance(error, OSError | HandshakeError):
            raise _refused(at, peers[at], error, timeout_s) from error
        raise
    return sockets


def _send(sock: socket.socket, message: bytes, deadline: float) -> None:
    sock.settimeout(_left_s(deadline))
    sock.sendall(message)


def _receive(sock: socket.socket, count: int, deadline: float) -> bytes:
    message = b""
    while len(message) < count:
        sock.settimeout(_left_s(deadline))
        received = sock.recv(count - len(message))
        if not received:
            raise ConnectionResetError("it refused the handshake")
        message += received
    return message


def _await_ping(sock: socket.socket, deadline: float) -> None:
    if _receive(sock, len(PING_FRAME), deadline) != PING_FRAME:
        raise ConnectionError("it does not speak our protocol")


def _left_s(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _refused(pair: Pair, address: Address, error: Exception, timeout_s: float) -> ChannelError:
    where = address.unix_path if address.node_ip == "" else f"node {address.node_ip}"
    if isinstance(error, TimeoutError):
        reason = f"no connection within {timeout_s:g} s"
    elif isinstance(error, HandshakeError):
        reason = "whoever listens there does not know the secret of this generation"
    elif isinstance(error, ConnectionResetError):
        reason = "it refused the handshake, or died; its statistics count refusals by reason"
    else:
        reason = f"{getattr(error, 'strerror', None) or error}"
    return ChannelError(
        f"chain '{pair.source}' cannot connect to chain '{pair.target}' on {where}, generation "
        f"{pair.generation}: {reason}"
    )


__all__ = ["Dial", "connect_all"]
