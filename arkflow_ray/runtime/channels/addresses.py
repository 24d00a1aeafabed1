"""Where a chain listens, and the sockets behind it (H1).

On the node of the listener its Unix socket is used, from other nodes TCP. The Unix socket lies in
a folder that nobody else may enter; TCP is bound to one address of the node, never to all.
"""

import contextlib
import ipaddress
import os
import secrets
import socket
import stat
from dataclasses import dataclass
from typing import Final

from arkflow_kernel.errors import ChannelError
from arkflow_kernel.ids import ChainId
from arkflow_kernel.limits import MIB

UNIX_PATH_BYTES_MAX: Final = 107
SOCKET_BUFFER_BYTES: Final = MIB
"""Measured: the default costs 2.5 to 5 times the context switches, 4 MiB are slower."""

_BACKLOG: Final = 512


@dataclass(frozen=True, slots=True)
class Address:
    """Where one chain of one generation is reached. Picklable; holds no secret.

    `unix_path` is for chains of the same node, `port` (of `node_ip`) for those of others. A chain
    without inputs has neither.
    """

    chain: ChainId
    node_ip: str
    unix_path: str | None = None
    port: int | None = None


def listen_unix(folder: str) -> tuple[socket.socket, str]:
    """A listening Unix socket of mode 0600 with a new name in a private folder, and its path.

    The folder is made if it is not there. `ChannelError` if others may enter it, or its path is
    too long.
    """
    path = os.path.join(folder, secrets.token_hex(4))
    length = len(os.fsencode(path))
    if length > UNIX_PATH_BYTES_MAX:
        raise ChannelError(
            f"the path of a Unix socket has at most {UNIX_PATH_BYTES_MAX} bytes, {path} has "
            f"{length}: choose a shorter folder for the job's sockets"
        )
    try:
        _make_private(folder)
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(path)
            os.chmod(path, 0o600)
            _start(listener)
        except BaseException:
            listener.close()
            raise
    except OSError as error:
        raise ChannelError(f"cannot listen at {path}: {error.strerror}") from error
    return listener, path


def _make_private(folder: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    found = os.lstat(folder)
    private = stat.S_ISDIR(found.st_mode) and not stat.S_IMODE(found.st_mode) & 0o077
    if not private or found.st_uid != os.getuid():
        raise ChannelError(
            f"{folder} must be a folder of this user that nobody else may enter (mode 0700)"
        )


def listen_tcp(node_ip: str, ports: range | None) -> tuple[socket.socket, int]:
    """A listening TCP socket at one address of the node, and its port.

    The first free port of `ports` is taken; any other if there is none (H1).
    """
    try:
        parsed = ipaddress.ip_address(node_ip)
    except ValueError as error:
        raise ChannelError(f"'{node_ip}' is no IP address of a node") from error
    if parsed.is_unspecified:
        raise ChannelError(f"{node_ip} would listen on every network: name one address of the node")
    refusal: OSError | None = None
    for port in (*(ports or ()), 0):
        listener = socket.socket(socket.AF_INET6 if parsed.version == 6 else socket.AF_INET)
        try:
            listener.bind((node_ip, port))
            prepare(listener)
            _start(listener)
        except OSError as error:
            listener.close()
            refusal = error
            continue
        return listener, listener.getsockname()[1]
    assert refusal is not None
    raise ChannelError(f"cannot listen at {node_ip}: {refusal.strerror}") from refusal


def _start(listener: socket.socket) -> None:
    listener.listen(_BACKLOG)
    listener.setblocking(False)


def dial(address: Address, node_ip: str, timeout_s: float) -> socket.socket:
    """A blocking socket connected to a chain: Unix on the same node, TCP otherwise.

    `OSError` if nobody listens or the time is over; `ChannelError` if the address offers no way.
    """
    path, port = address.unix_path, address.port
    # Two containers may share an address of the network and no file system.
    if path is not None and address.node_ip == node_ip and (port is None or os.path.exists(path)):
        sock = socket.socket(socket.AF_UNIX)
        target: str | tuple[str, int] = path
    elif port is not None:
        family = socket.AF_INET6 if ":" in address.node_ip else socket.AF_INET
        sock = socket.socket(family)
        target = (address.node_ip, port)
    else:
        raise ChannelError(
            f"chain '{address.chain}' on node {address.node_ip} offers no way for a chain on "
            f"node {node_ip}: it must listen on TCP"
        )
    try:
        prepare(sock)
        sock.settimeout(timeout_s)
        sock.connect(target)
    except BaseException:
        sock.close()
        raise
    return sock


def prepare(sock: socket.socket) -> None:
    """Buffers, and no waiting for company on TCP."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


__all__ = [
    "SOCKET_BUFFER_BYTES",
    "UNIX_PATH_BYTES_MAX",
    "Address",
    "dial",
    "listen_tcp",
    "listen_unix",
    "prepare",
]
