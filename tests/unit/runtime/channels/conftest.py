"""Exchanges over real sockets, and an inbox that tests can wait on."""

import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from arkflow_kernel.envelope import Data, Envelope
from arkflow_kernel.errors import ChannelError
from arkflow_kernel.ids import FIRST_GENERATION, ChannelId, Generation, JobId, Sequence
from arkflow_kernel.plan import ChannelPlan
from arkflow_kernel.testing.plans import chain_plan
from arkflow_ray.runtime.channels.exchange import Exchange

LOOPBACK = "127.0.0.1"
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


@dataclass
class Chains:
    """Makes exchanges of one generation; all are closed at the end."""

    folder: str
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
        node_ip: str = LOOPBACK,
        tcp: bool = False,
        ports: range | None = None,
    ) -> tuple[Exchange, Recorder]:
        """An exchange that does not listen yet, and its inbox."""
        plan = chain_plan(
            chain, source=None, sinks=("sink",) if inputs else (), inputs=inputs, channels=channels
        )
        recorder = Recorder()
        exchange = Exchange(
            JobId(job),
            plan,
            generation,
            recorder,
            folder=self.folder,
            node_ip=node_ip,
            tcp=tcp,
            ports=ports,
        )
        self.made.append(exchange)
        return exchange, recorder

    def source(self, *channels: ChannelPlan, node_ip: str = LOOPBACK) -> tuple[Exchange, Recorder]:
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


@pytest.fixture
def chains() -> Iterator[Chains]:
    """A maker of exchanges with a short private folder; nothing stays open behind a test."""
    before = _open_files()
    threads = threading.active_count()
    folder = tempfile.mkdtemp(prefix="afc-")
    made = Chains(os.path.join(folder, "s"))
    yield made
    made.close()
    shutil.rmtree(folder)
    assert _open_files() <= before, "a file descriptor was left open"
    assert threading.active_count() <= threads, "a thread was left running"


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
