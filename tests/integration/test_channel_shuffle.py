"""A 64 x 64 shuffle over real sockets in one process (H8); its 128 threads make it slow."""

import os
import pathlib
import secrets
import shutil
import tempfile
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from arkflow_kernel.envelope import Data, EndOfStream, Envelope, Reset
from arkflow_kernel.errors import ChannelError
from arkflow_kernel.ids import FIRST_GENERATION, ChannelId, JobId, Sequence
from arkflow_kernel.plan import ChannelPlan
from arkflow_kernel.testing.plans import chain_plan, channel_plan
from arkflow_ray.runtime.channels.exchange import Exchange

SIZE = 64
PER_CHANNEL = 3
WAIT_S = 100.0


class _Inbox:
    """Counts to the number of envelopes that must come."""

    def __init__(self) -> None:
        self.numbers: dict[ChannelId, list[int]] = {}
        self.errors: list[ChannelError] = []
        self.complete = threading.Event()
        self._left = SIZE * PER_CHANNEL

    def arrived(self, envelopes: list[tuple[ChannelId, Envelope]]) -> None:
        for channel, envelope in envelopes:
            if isinstance(envelope, Data):
                column = envelope.pieces[0].column(0)
                self.numbers.setdefault(channel, []).append(int(column[0].as_py() or 0))
        self._left -= len(envelopes)
        if self._left == 0:
            self.complete.set()

    def granted(self, grants: list[tuple[ChannelId, Sequence, Sequence]]) -> None:
        pass

    def broken(self, error: ChannelError) -> None:
        self.errors.append(error)


@pytest.fixture
def folder() -> Iterator[str]:
    """A short private folder for sockets."""
    made = tempfile.mkdtemp(prefix="afc-")
    yield os.path.join(made, "s")
    shutil.rmtree(made)


def _exchange(
    folder: str, inputs: tuple[ChannelPlan, ...], outputs: tuple[ChannelPlan, ...]
) -> tuple[Exchange, _Inbox]:
    name = inputs[0].target if inputs else outputs[0].source
    sinks = ("sink",) if inputs else ()
    plan = chain_plan(name, source=None, sinks=sinks, inputs=inputs, channels=outputs)
    inbox = _Inbox()
    made = Exchange(JobId("job"), plan, FIRST_GENERATION, inbox, folder=folder, node_ip="127.0.0.1")
    return made, inbox


@pytest.mark.timeout(400)
def test_a_shuffle_of_64_by_64_chains_works_with_one_thread_for_each(folder: str) -> None:
    plans = {
        (s, t): channel_plan(f"e-{s}-{t}", f"s-{s}", f"t-{t}", number=s * SIZE + t)
        for s in range(SIZE)
        for t in range(SIZE)
    }
    secret = secrets.token_bytes(32)
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    targets = [_exchange(folder, tuple(plans[s, t] for s in range(SIZE)), ()) for t in range(SIZE)]
    sources = [_exchange(folder, (), tuple(plans[s, t] for t in range(SIZE))) for s in range(SIZE)]
    addresses = {plans[0, t].target: targets[t][0].listen(secret) for t in range(SIZE)}
    for source, _ in sources:
        source.connect(addresses, secret, timeout_s=WAIT_S)
    assert threading.active_count() == threads + 2 * SIZE
    assert not pathlib.Path(folder).exists()
    for (s, _), plan in plans.items():
        batch = pa.record_batch({"n": [plan.number]})
        source = sources[s][0]
        source.send(plan.channel, Reset(FIRST_GENERATION))
        source.send(plan.channel, Data(Sequence(1), (batch,), 8))
        source.send(plan.channel, EndOfStream())
    for t, (_, inbox) in enumerate(targets):
        assert inbox.complete.wait(WAIT_S)
        assert inbox.numbers == {plans[s, t].channel: [plans[s, t].number] for s in range(SIZE)}
    for exchange, inbox in (*sources, *targets):
        exchange.close(flush=True, timeout_s=WAIT_S)
        assert inbox.errors == []
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == files
