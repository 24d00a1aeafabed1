"""Exchanges over real sockets, and an inbox that tests can wait on.

Tests of exchanges run over each transport: `unix`, `tcp`, and the `tunnel` of H6, whose calls stay
in this process. Those of refusals knock at the listener itself, so they run over one.
"""

import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from arkflow_kernel.envelope import Data, Envelope
from arkflow_kernel.errors import ChannelError
from arkflow_kernel.ids import FIRST_GENERATION, ChainId, ChannelId, Generation, JobId, Sequence
from arkflow_kernel.plan import ChannelPlan
from arkflow_kernel.testing.plans import chain_plan
from arkflow_ray.runtime.channels.addresses import Address
from arkflow_ray.runtime.channels.exchange import CONNECT_TIMEOUT_S, Exchange
from arkflow_ray.runtime.channels.tunnel import Tunnel
from arkflow_ray.runtime.channels.tunnel_ends import Done

LOOPBACK = "127.0.0.1"
ELSEWHERE = "127.0.0.2"
"""Another node's address, for whom the Unix sockets of this one are out of reach."""

TRANSPORTS = ("unix", "tcp", "tunnel")
OVER_EACH_TRANSPORT = ("test_exchange", "test_exchange_breaks")
WAIT_S = 20.0


class Recorder:
    """An inbox that keeps everything."""

    def __init__(self) -> None:
        self.envelopes: list[tuple[ChannelId, Envelope]] = []
        self.grants: list[tuple[ChannelId, Sequence, Sequence]] = []
        self.errors: list[ChannelError] = []
        self.posts = 0
        self._changed = threading.Condition()

    def arrived(self, envelopes: list[tuple[ChannelId, Envelope]]) -> None:
        """Keep."""
        with self._changed:
            self.posts += 1
            self.envelopes += envelopes
            self._changed.notify_all()

    def granted(self, grants: list[tuple[ChannelId, Sequence, Sequence]]) -> None:
        """Keep."""
        with self._changed:
            self.grants += grants
            self._changed.notify_all()

    def broken(self, error: ChannelError) -> None:
        """Keep."""
        with self._changed:
            self.errors.append(error)
            self._changed.notify_all()

    def wait_for(self, test: Callable[[], bool]) -> None:
        """Return when the test holds; fail if it does not in time."""
        with self._changed:
            assert self._changed.wait_for(test, WAIT_S), (len(self.envelopes), self.errors)

    def wait_for_envelopes(self, count: int) -> None:
        """Return when so many have come."""
        self.wait_for(lambda: len(self.envelopes) >= count)

    def wait_for_break(self) -> ChannelError:
        """The error."""
        self.wait_for(lambda: bool(self.errors))
        return self.errors[0]

    def of(self, channel: ChannelId) -> list[Envelope]:
        """What came on one channel."""
        return [envelope for name, envelope in self.envelopes if name == channel]

    def data(self, channel: ChannelId) -> list[Data]:
        """Data of one channel."""
        return [envelope for envelope in self.of(channel) if isinstance(envelope, Data)]


T = TypeVar("T")


class CallsHere:
    """Calls of a tunnel in this process."""

    def __init__(self, tunnel: Tunnel) -> None:
        self._tunnel = tunnel

    def put(self, connection: str, number: int, data: bytes, done: Done[str | None], /) -> None:
        """Call."""
        _tell(self._tunnel.put(connection, number, data), done)

    def take(self, connection: str, number: int, done: Done[bytes], /) -> None:
        """Call."""
        _tell(self._tunnel.take(connection, number), done)


def _tell(answer: "Future[T]", done: Done[T]) -> None:
    answer.add_done_callback(lambda answered: done(answered.result()))


class OneExchange(Exchange):
    """An exchange that reaches others through their tunnels, if there are any."""

    tunnels: Mapping[ChainId, Tunnel]

    def connect(
        self,
        peers: Mapping[ChainId, Address],
        secret: bytes | None = None,
        *,
        calls: object = None,
        timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        """Connect, with the calls that a coordinator would hand over."""
        assert calls is None
        made = {chain: CallsHere(self.tunnels[chain]) for chain in peers if chain in self.tunnels}
        super().connect(peers, secret, calls=made, timeout_s=timeout_s)


@dataclass
class Chains:
    """Makes exchanges of one generation; all are closed at the end."""

    folder: str
    transport: str = "unix"
    tunnels: dict[ChainId, Tunnel] = field(default_factory=dict)
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    made: list[Exchange] = field(default_factory=list)

    def exchange(
        self,
        chain: str,
        *,
        inputs: tuple[ChannelPlan, ...] = (),
        channels: tuple[ChannelPlan, ...] = (),
        generation: Generation = FIRST_GENERATION,
        job: str = "job",
        node_ip: str | None = None,
        tcp: bool = False,
        ports: range | None = None,
    ) -> tuple[Exchange, Recorder]:
        """An exchange that does not listen yet, and its inbox.

        Over TCP each chain that sends is on a node of its own.
        """
        over_tcp = self.transport == "tcp"
        if node_ip is None:
            node_ip = ELSEWHERE if over_tcp and channels and not inputs else LOOPBACK
        tunnel = Tunnel(ChainId(chain)) if self.transport == "tunnel" else None
        if tunnel is not None and inputs:
            self.tunnels[ChainId(chain)] = tunnel
        plan = chain_plan(
            chain, source=None, sinks=("sink",) if inputs else (), inputs=inputs, channels=channels
        )
        recorder = Recorder()
        exchange = OneExchange(
            JobId(job),
            plan,
            generation,
            recorder,
            folder=self.folder,
            node_ip=node_ip,
            tcp=tcp or over_tcp,
            ports=ports,
            tunnel=tunnel,
        )
        exchange.tunnels = self.tunnels
        self.made.append(exchange)
        return exchange, recorder

    @property
    def threads(self) -> int:
        """How many threads a chain has for all its channels (H8)."""
        return 2 if self.transport == "tunnel" else 1

    def source(
        self, *channels: ChannelPlan, node_ip: str | None = None
    ) -> tuple[Exchange, Recorder]:
        """The source of these channels."""
        return self.exchange(channels[0].source, channels=channels, node_ip=node_ip)

    def target(
        self, *channels: ChannelPlan, tcp: bool = False, ports: range | None = None
    ) -> tuple[Exchange, Recorder]:
        """The target of these channels."""
        return self.exchange(channels[0].target, inputs=channels, tcp=tcp, ports=ports)

    def connected(
        self, *channels: ChannelPlan
    ) -> tuple[tuple[Exchange, Recorder], tuple[Exchange, Recorder]]:
        """Source and target of channels between two chains, connected."""
        source, target = self.source(*channels), self.target(*channels)
        address = target[0].listen(self.secret)
        source[0].connect({channels[0].target: address}, self.secret)
        return source, target

    def close(self) -> None:
        """Close all."""
        for exchange in self.made:
            exchange.close(flush=False, timeout_s=5)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests of exchanges run over each transport (H6)."""
    module = metafunc.module.__name__.rpartition(".")[2]
    if "chains" in metafunc.fixturenames and module in OVER_EACH_TRANSPORT:
        metafunc.parametrize("chains", TRANSPORTS, indirect=True)


@pytest.fixture
def chains(request: pytest.FixtureRequest) -> Iterator[Chains]:
    """A maker of exchanges with a short private folder; nothing stays open behind a test."""
    before = _open_files()
    threads = threading.active_count()
    folder = tempfile.mkdtemp(prefix="afc-")
    made = Chains(os.path.join(folder, "s"), getattr(request, "param", "unix"))
    yield made
    made.close()
    shutil.rmtree(folder)
    assert _open_files() <= before, "a file descriptor was left open"
    assert threading.active_count() <= threads, "a thread was left running"


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
