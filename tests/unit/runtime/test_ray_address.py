"""What is said of an address where no Ray listens, before Ray itself tries for minutes."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from arkflow_kernel.errors import ClusterError
from arkflow_ray.runtime import ray_address
from arkflow_ray.runtime.ray_address import check_address
from tests.certificates import certificate, tls_variables

SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
TLS_ALERT = b"\x15\x03\x01\x00\x02\x02\x46"


@contextmanager
def listener(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of a server that does `answer` with its one caller."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            caller, _ = server.accept()
            with caller:
                answer(caller)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(20)
        assert not thread.is_alive()


def says(data: bytes) -> Callable[[socket.socket], None]:
    """Read the caller's preface, answer, hang up."""

    def answer(caller: socket.socket) -> None:
        caller.recv(1000)
        if data:
            caller.sendall(data)

    return answer


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_USE_TLS", raising=False)


@pytest.mark.parametrize("prefix", ["", "ray://"])
def test_a_server_of_http_2_is_left_to_ray(prefix: str) -> None:
    with listener(says(SETTINGS)) as address:
        check_address(prefix + address)


@pytest.mark.parametrize("word", [None, "auto", "local"])
def test_a_word_is_left_to_ray(word: str | None) -> None:
    check_address(word)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "what listens there is no Ray, or one with TLS"),
        (TLS_ALERT, "what listens there is no Ray, or one with TLS"),
        (b"", "it hung up; RAY_USE_TLS, RAY_TLS_SERVER_CERT"),
    ],
)
def test_what_is_no_ray_is_told_at_once(data: bytes, told: str) -> None:
    with listener(says(data)) as address, pytest.raises(ClusterError) as caught:
        check_address(address)
    assert caught.value.message.startswith(f"cannot reach Ray at '{address}': {told}")


def test_one_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_address, "CONNECT_TIMEOUT_S", 0.2)
    gone = threading.Event()

    def wait(_: socket.socket) -> None:
        gone.wait(20)

    with listener(wait) as address:
        with pytest.raises(ClusterError, match="it said nothing for 0 s; is it running"):
            check_address(address)
        gone.set()


# --- TLS ---------------------------------------------------------------------------------------


def use_tls(monkeypatch: pytest.MonkeyPatch, own: Path, authority: Path) -> None:
    """The environment of a client as Ray wants it."""
    for name, value in tls_variables(own, authority).items():
        monkeypatch.setenv(name, value)


def within_tls(own: Path) -> Callable[[socket.socket], None]:
    """A server with TLS that only knows callers with its own certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own, own.with_suffix(".key"))
    context.load_verify_locations(own)
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])

    def answer(caller: socket.socket) -> None:
        try:
            with context.wrap_socket(caller, server_side=True) as within:
                says(SETTINGS)(within)
        except (ssl.SSLError, ConnectionError):
            return  # the caller is refused, or has refused us

    return answer


def test_a_server_with_tls_is_reached_with_it_and_told_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = certificate(tmp_path, "own")
    with listener(within_tls(own)) as address, pytest.raises(ClusterError, match="RAY_USE_TLS"):
        check_address(address)
    use_tls(monkeypatch, own, own)
    with listener(within_tls(own)) as address:
        check_address(address)


def test_another_authority_on_either_side_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = certificate(tmp_path, "own"), certificate(tmp_path, "other")
    for client, authority in ((own, other), (other, own)):
        use_tls(monkeypatch, client, authority)
        told = pytest.raises(ClusterError, match="RAY_TLS_CA_CERT must be set here")
        with listener(within_tls(own)) as address, told:
            check_address(address)


def test_a_file_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_tls(monkeypatch, tmp_path / "none.crt", tmp_path / "none.crt")
    told = pytest.raises(ClusterError, match=r"RAY_TLS_SERVER_CERT names no file: '.*none\.crt'")
    with listener(lambda _: None) as address, told:
        check_address(address)
