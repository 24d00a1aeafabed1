"""Whether a Ray listens at an address, before Ray is asked: it tries for a quarter of an hour.

Ray's servers speak HTTP/2, within TLS where `RAY_USE_TLS` says so. Whoever speaks it answers the
preface of a client with its own settings (RFC 9113, 3.4); Ray proves the rest itself.
"""

import os
import socket
import ssl
from typing import Final

from arkflow_kernel.errors import ClusterError

CONNECT_TIMEOUT_S: Final = 10.0
"""For one connection to a cluster's head: more than any network needs that could run jobs."""

_SETTINGS: Final = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
"""A frame without settings: length 0, type 4, no flags, stream 0."""

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _SETTINGS
_FRAME_TYPE: Final = 3
_LISTENS: Final = "is it running, and does it listen there? `ray status` on the head node tells"
_TLS: Final = (
    "RAY_USE_TLS, RAY_TLS_SERVER_CERT, RAY_TLS_SERVER_KEY and RAY_TLS_CA_CERT must be set here as "
    "on the nodes of the cluster"
)


def check_address(address: str | None) -> None:
    """Whether a Ray listens at a `host:port`. Raises `ClusterError`.

    Words such as `auto` are Ray's to resolve.
    """
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    cannot = f"cannot reach Ray at '{address}'"
    try:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S) as plain:
            kind = _first_frame(plain)
    except TimeoutError as error:
        text = f"it said nothing for {CONNECT_TIMEOUT_S:.0f} s"
        raise ClusterError(f"{cannot}: {text}; {_LISTENS}") from error
    except (ssl.SSLError, ConnectionResetError, BrokenPipeError) as error:
        text = getattr(error, "reason", None) or error.strerror or str(error)
        raise ClusterError(f"{cannot}: {text}; {_TLS}") from error
    except (OSError, OverflowError) as error:
        text = getattr(error, "strerror", None) or str(error)
        raise ClusterError(f"{cannot}: {text}; {_LISTENS}") from error
    if kind is None:
        raise ClusterError(f"{cannot}: it hung up; {_TLS}")
    if kind != _SETTINGS[_FRAME_TYPE]:
        raise ClusterError(f"{cannot}: what listens there is no Ray, or one with TLS; {_TLS}")


def _first_frame(plain: socket.socket) -> int | None:
    """The type of the first frame that is answered; None: nothing is."""
    if os.environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
        return _answered(plain)
    with _context().wrap_socket(plain) as within:
        return _answered(within)


def _answered(connection: socket.socket) -> int | None:
    connection.sendall(_PREFACE)
    head = b""
    while len(head) <= _FRAME_TYPE:
        data = connection.recv(len(_SETTINGS))
        if not data:
            return None
        head += data
    return head[_FRAME_TYPE]


def _context() -> ssl.SSLContext:
    """TLS as Ray's own clients speak it. Names of hosts are left to Ray."""
    files = {}
    for name in ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT"):
        files[name] = os.environ.get(name, "")
        if not os.path.isfile(files[name]):
            raise ClusterError(f"RAY_USE_TLS is set, and {name} names no file: '{files[name]}'")
    certificate, key, authority = files.values()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # as strict as Ray, not more
    context.check_hostname = False
    context.load_verify_locations(authority)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["h2"])
    return context


__all__ = ["CONNECT_TIMEOUT_S", "check_address"]
