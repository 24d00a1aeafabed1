"""An HTTP proxy on loopback that spoils requests by rule: the bad network of a store under test.

It also puts PUTs of one key in a row: the S3 server behind it looks whether a key is there and
writes it in two steps, which a real store does in one.
"""

import contextlib
import http.client
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

_HOP: Final = frozenset(("connection", "keep-alive", "transfer-encoding", "expect"))
_TIMEOUT_S: Final = 30
_SLOW_S: Final = 1.5


class Fault(Enum):
    """What becomes of a request."""

    DELAY = "the answer comes after the client's patience"
    SLOW = "the answer comes late, within any client's patience"
    NO_REQUEST = "the connection breaks before the request is forwarded"
    NO_ANSWER = "the request is done, and the connection breaks before the answer"
    TORN_ANSWER = "the connection breaks in the middle of the answer"
    BUSY = "503 SlowDown, nothing is done"
    CONFLICT = "409 ConditionalRequestConflict, nothing is done"
    BROKEN = "500 InternalError, though it was done"
    DENIED = "403 AccessDenied, nothing is done"
    LOST = "200, and nothing is done"
    UNCONDITIONAL = "`If-None-Match` is taken off"


_ERRORS: Final = {
    Fault.BUSY: (503, "SlowDown"),
    Fault.CONFLICT: (409, "ConditionalRequestConflict"),
    Fault.BROKEN: (500, "InternalError"),
    Fault.DENIED: (403, "AccessDenied"),
}


@dataclass
class Rule:
    """Spoils the next `times` requests of a method whose path and query match `pattern`."""

    fault: Fault
    method: str
    pattern: str
    times: int
    hits: int = 0

    def takes(self, method: str, path: str) -> bool:
        """Whether this request is to be spoilt."""
        return (
            self.hits < self.times and self.method == method and bool(re.search(self.pattern, path))
        )


@dataclass(frozen=True)
class Seen:
    """A request as it came, and the status that the client was told; 0 if it was told none."""

    method: str
    path: str
    status: int


@dataclass
class FaultProxy:
    """Forwards to one server on loopback. Use as a context; `url` is where clients go."""

    target_port: int
    port: int = 0
    seen: list[Seen] = field(default_factory=list)
    _rules: list[Rule] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _keys: dict[str, threading.Lock] = field(default_factory=dict)
    _ended: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"http://127.0.0.1:{self.port}"

    def spoil(self, fault: Fault, method: str, pattern: str, times: int = 1) -> Rule:
        """Spoil the next requests that match; the rule counts its hits."""
        rule = Rule(fault, method, pattern, times)
        with self._lock:
            self._rules.append(rule)
        return rule

    def heal(self) -> None:
        """Spoil nothing more, and forget what was seen."""
        with self._lock:
            self._rules.clear()
            self.seen.clear()

    def count(self, method: str, pattern: str) -> int:
        """How many requests came."""
        return sum(s.method == method and bool(re.search(pattern, s.path)) for s in self.seen)

    @contextlib.contextmanager
    def running(self) -> Iterator["FaultProxy"]:
        """Serve until the end of the context."""
        server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": self}))
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            server.shutdown()
            thread.join()
            server.server_close()

    def fault(self, method: str, path: str) -> Fault | None:
        """What becomes of this request; counts it."""
        with self._lock:
            for rule in self._rules:
                if rule.takes(method, path):
                    rule.hits += 1
                    return rule.fault
        return None

    def told(self, seen: Seen) -> None:
        """Keep what came, and how it was answered."""
        with self._lock:
            self.seen.append(seen)

    def turn(self, path: str) -> threading.Lock:
        """The lock of a key."""
        with self._lock:
            return self._keys.setdefault(path.partition("?")[0], threading.Lock())

    def wait(self) -> None:
        """Longer than any client waits."""
        self._ended.wait(_TIMEOUT_S)

    def linger(self) -> None:
        """Shorter than any client waits."""
        self._ended.wait(_SLOW_S)


@dataclass(frozen=True)
class _Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # with the default of 5, many clients at once are sent away


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    proxy: FaultProxy
    protocol_version = "HTTP/1.1"
    timeout = _TIMEOUT_S

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: tests look at `seen`."""

    def _any(self) -> None:
        with contextlib.suppress(ConnectionError):  # the client gave up
            self._serve(self._body())

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _any  # noqa: N815 (names that the base calls)

    def _serve(self, body: bytes) -> None:
        fault = self.proxy.fault(self.command, self.path)
        answer = self._spoilt(fault, body)
        gone = fault in (Fault.NO_REQUEST, Fault.NO_ANSWER, Fault.DELAY)
        self.proxy.told(Seen(self.command, self.path, 0 if gone else answer.status))
        if fault is Fault.DELAY:
            self.proxy.wait()
        if fault is Fault.SLOW:
            self.proxy.linger()
        if gone:
            self.close_connection = True
            return
        self._send(answer, torn=fault is Fault.TORN_ANSWER)

    def _spoilt(self, fault: Fault | None, body: bytes) -> _Answer:
        whole = (None, Fault.TORN_ANSWER, Fault.UNCONDITIONAL, Fault.SLOW)
        if fault in whole:
            return self._forward(body, conditional=fault is not Fault.UNCONDITIONAL)
        if fault in (Fault.NO_ANSWER, Fault.BROKEN, Fault.DELAY):
            self._forward(body)
        if fault not in _ERRORS:
            return _Answer(200, [("ETag", '"0"')], b"")
        status, code = _ERRORS[fault]
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>spoilt</Message></Error>"
        return _Answer(status, [("Content-Type", "application/xml")], text.encode())

    def _forward(self, body: bytes, *, conditional: bool = True) -> _Answer:
        headers = {
            name: value
            for name, value in self.headers.items()
            if name.lower() not in _HOP and (conditional or name.lower() != "if-none-match")
        }
        headers["Content-Length"] = str(len(body))
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.proxy.target_port, timeout=_TIMEOUT_S
        )
        with contextlib.closing(connection), self._turn():
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            return _Answer(answer.status, answer.getheaders(), answer.read())

    def _turn(self) -> contextlib.AbstractContextManager[object]:
        if self.command in ("PUT", "POST"):
            return self.proxy.turn(self.path)
        return contextlib.nullcontext()

    def _send(self, answer: _Answer, *, torn: bool) -> None:
        self.send_response_only(answer.status)
        length = str(len(answer.body))
        for name, value in answer.headers:
            if name.lower() == "content-length":
                length = value  # a HEAD tells the length of what it does not send
            elif name.lower() not in _HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if torn:
            self.close_connection = True
        self.wfile.write(answer.body[: len(answer.body) // 2] if torn else answer.body)
        self.wfile.flush()

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)


__all__ = ["Fault", "FaultProxy", "Rule", "Seen"]
