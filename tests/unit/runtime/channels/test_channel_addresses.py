"""Where a chain listens: a private folder, a short path, one address of the node (H1)."""

import os
import pathlib
import pickle
import socket
import stat

import pytest

from arkflow_kernel.errors import ChannelError
from arkflow_kernel.ids import ChainId
from arkflow_ray.runtime.channels.addresses import (
    UNIX_PATH_BYTES_MAX,
    Address,
    dial,
    listen_tcp,
    listen_unix,
)

LOOPBACK = "127.0.0.1"


def test_the_socket_is_for_its_owner_alone_in_a_folder_that_is_too(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "s"
    listener, path = listen_unix(str(folder))
    listener.close()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_ISSOCK(os.stat(path).st_mode)
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700


def test_a_folder_that_others_may_enter_is_refused(tmp_path: pathlib.Path) -> None:
    tmp_path.chmod(0o750)
    with pytest.raises(ChannelError, match="mode 0700"):
        listen_unix(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_link_to_a_folder_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(ChannelError, match="mode 0700"):
        listen_unix(str(tmp_path / "link"))


def test_a_path_that_is_too_long_is_refused_with_its_length(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / ("x" * (UNIX_PATH_BYTES_MAX - len(str(tmp_path)) - 9))
    with pytest.raises(ChannelError, match=f"at most 107 bytes, .* has {UNIX_PATH_BYTES_MAX + 1}"):
        listen_unix(str(folder))
    assert not folder.exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ChannelError, match=r"cannot listen at .*No such file"):
        listen_unix(str(tmp_path / "a" / "b"))


@pytest.mark.parametrize("node_ip", ["0.0.0.0", "::", "", "localhost"])
def test_tcp_listens_at_one_address_only(node_ip: str) -> None:
    with pytest.raises(ChannelError):
        listen_tcp(node_ip, None)


def test_a_free_port_of_the_range_is_taken_or_any_if_there_is_none() -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        busy = taken.getsockname()[1]
        listener, port = listen_tcp(LOOPBACK, range(busy, busy + 1))
        listener.close()
        assert port not in (0, busy)
        ports = range(busy, min(busy + 200, 65_536))
        listener, port = listen_tcp(LOOPBACK, ports)
        assert listener.getsockname() == (LOOPBACK, port)
        listener.close()
        assert port in ports[1:]


def test_an_address_without_tcp_is_no_way_from_another_node() -> None:
    address = Address(ChainId("b-0"), "10.0.0.1", "/nowhere")
    assert pickle.loads(pickle.dumps(address)) == address
    with pytest.raises(ChannelError, match=r"'b-0' on node 10\.0\.0\.1 offers no way .* TCP"):
        dial(address, "10.0.0.2", 1)
