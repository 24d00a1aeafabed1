"""Two chain hosts with real channels between them, on one loop (E4, E6, H8a, D2, D5)."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest

from arkflow_kernel.checkpoint_ports import Staging
from arkflow_kernel.errors import ChannelError, SinkError
from arkflow_kernel.ids import Generation, JobId, MonotonicMs, Sequence
from arkflow_kernel.plan import (
    ONLY_SUBTASK,
    ChainPlan,
    OperatorPlan,
    SinkPlan,
    SourcePlan,
    Subtask,
)
from arkflow_kernel.ports import Operator, SinkWriter, SourceReader, WriteReceipt
from arkflow_kernel.protocol import ChainOutcome, ControlState, Desired, OutcomeKind
from arkflow_kernel.snapshot import NOTHING_RESTORED
from arkflow_kernel.testing.components import Row, ScriptedSource, rows_of
from arkflow_kernel.testing.plans import chain_plan, channel_plan
from arkflow_ray.runtime.chain_host import ChainHost
from arkflow_ray.runtime.channel_folder import short_folder
from arkflow_ray.runtime.channels.addresses import Address
from arkflow_ray.runtime.channels.exchange import Exchange
from arkflow_ray.runtime.channels.traffic import Inbox
from arkflow_ray.runtime.clock import SystemClock

FIRST = Generation(1)
RUN = ControlState(FIRST)
STOP = ControlState(FIRST, Desired.STOP)
CANCEL = ControlState(FIRST, Desired.CANCEL)
SECRET = bytes(range(32))
BATCHES, ROWS = 200, 10
CHANNEL = channel_plan("edge", "chain-0", "chain-1", capacity=2)
SENDING = chain_plan("chain-0", sinks=(), channels=(CHANNEL,))
RECEIVING = chain_plan("chain-1", inputs=(CHANNEL,))
EVERYTHING = [("s", n) for n in range(BATCHES * ROWS)]


class Kept:
    """A sink that keeps its rows; each write waits for `gate`, and fails if it is `failing`."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.failing = False
        self.last = Sequence(0)

    def open(self) -> None:
        pass

    def write(self, sequence: Sequence, batch: pa.RecordBatch, now_ms: MonotonicMs) -> WriteReceipt:
        self.entered.set()
        assert self.gate.wait(20)
        if self.failing:
            raise OSError(28, "No space left on device")
        self.rows += rows_of(batch)
        self.last = sequence
        return WriteReceipt(sequence)

    def roll(self, now_ms: MonotonicMs) -> WriteReceipt:
        return WriteReceipt(self.last)

    flush = roll

    def close(self) -> None:
        pass


class Pair:
    """A chain that reads, and one that writes what it sends."""

    def __init__(self, folder: str) -> None:
        self.source = ScriptedSource({"s": (ROWS,) * BATCHES})
        self.kept = Kept()
        self._folder = folder
        self.sending = self._host(SENDING)
        self.receiving = self._host(RECEIVING)
        addresses = {}
        for plan, host in ((SENDING, self.sending), (RECEIVING, self.receiving)):
            address = host.open(NOTHING_RESTORED, SECRET)
            assert address is not None
            addresses[plan.chain] = address
        _knock(addresses[RECEIVING.chain])
        assert self.sending.connect(addresses) is None
        assert self.receiving.connect({}) is None

    def control(self, state: ControlState) -> None:
        for host in (self.sending, self.receiving):
            host.control(state)

    async def run(self) -> list[ChainOutcome]:
        """Both to their ends."""
        return list(await asyncio.gather(self.sending.run(), self.receiving.run()))

    def sink(self, plan: SinkPlan, staging: Staging | None = None) -> SinkWriter:
        return self.kept

    def _host(self, plan: ChainPlan) -> ChainHost:
        def exchange(inbox: Inbox) -> Exchange:
            job = JobId("job")
            return Exchange(job, plan, FIRST, inbox, folder=self._folder, node_ip="127.0.0.1")

        return ChainHost(
            plan,
            FIRST,
            Parts(self.source, self.kept),
            SystemClock(),
            exchange=exchange,
            teardown_timeout_ms=10_000,
        )


def _knock(address: Address) -> None:
    """A stranger who sends garbage; returns when the door is closed, without a word."""
    assert address.unix_path is not None
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(20)
        stranger.connect(address.unix_path)
        stranger.sendall(bytes(256))
        try:
            assert stranger.recv(1) == b""
        except ConnectionResetError:
            return


class Parts:
    """A `ComponentFactory` over ready objects."""

    def __init__(self, source: SourceReader, sink: SinkWriter) -> None:
        self._source, self._sink = source, sink

    def source(self, plan: SourcePlan) -> SourceReader:
        return self._source

    def operator(self, plan: OperatorPlan, workers: int) -> Operator:
        raise AssertionError("these chains have no operators")

    def sink(
        self, plan: SinkPlan, staging: Staging | None = None, subtask: Subtask = ONLY_SUBTASK
    ) -> SinkWriter:
        return self._sink


Scenario = Callable[[Pair], Awaitable[None]]
Play = Callable[[Scenario], None]


@pytest.fixture
def play() -> Iterator[Play]:
    """Play a scenario with two chains that are open and connected; no socket may be left."""
    with TemporaryDirectory(prefix="afc-", dir=short_folder()) as folder:

        def run(scenario: Scenario) -> None:
            pair = Pair(folder)

            async def limited() -> None:
                await asyncio.wait_for(scenario(pair), 60)

            asyncio.run(limited())

        yield run


def test_every_row_crosses_the_channel_in_order(play: Play) -> None:
    async def scenario(pair: Pair) -> None:
        pair.control(RUN)
        outcomes = await pair.run()
        assert [outcome.kind for outcome in outcomes] == [OutcomeKind.FINISHED] * 2, outcomes
        assert pair.kept.rows == EVERYTHING
        assert outcomes[0].frontier[0].position == {"row": len(EVERYTHING)}
        report = pair.sending.report().result()
        (channel,) = report.statistics.channels
        assert channel.sent == channel.settled > 0
        received = pair.receiving.report().result()
        assert received.statistics.held_bytes == 0
        assert received.usage is not None
        assert received.usage.refused_peers == 1, "the stranger is counted (H2)"

    play(scenario)


def test_stop_settles_what_was_sent_in_both_chains(play: Play) -> None:
    async def scenario(pair: Pair) -> None:
        pair.kept.gate.clear()
        pair.control(RUN)
        running = asyncio.ensure_future(pair.run())
        await asyncio.to_thread(pair.kept.entered.wait, 20)
        pair.control(STOP)
        pair.kept.gate.set()
        outcomes = await running
        assert [outcome.kind for outcome in outcomes] == [OutcomeKind.STOPPED] * 2, outcomes
        assert pair.kept.rows == EVERYTHING[: len(pair.kept.rows)]
        assert outcomes[0].frontier[0].position == {"row": len(pair.kept.rows)}

    play(scenario)


def test_a_chain_whose_peer_failed_fails_by_its_channel(play: Play) -> None:
    async def scenario(pair: Pair) -> None:
        pair.kept.failing = True
        pair.control(RUN)
        sending, receiving = await pair.run()
        assert isinstance(receiving.error, SinkError)
        assert isinstance(sending.error, ChannelError)
        assert "edge[0-0]" in sending.error.message

    play(scenario)


def test_cancel_ends_both_chains_though_the_sink_is_at_work(play: Play) -> None:
    async def scenario(pair: Pair) -> None:
        pair.kept.gate.clear()
        pair.control(RUN)
        running = asyncio.ensure_future(pair.run())
        await asyncio.to_thread(pair.kept.entered.wait, 20)
        pair.control(CANCEL)
        pair.kept.gate.set()
        outcomes = await running
        assert {outcome.kind for outcome in outcomes} <= {OutcomeKind.CANCELLED, OutcomeKind.FAILED}
        assert OutcomeKind.CANCELLED in {outcome.kind for outcome in outcomes}

    play(scenario)


def test_a_report_counts_what_waits_and_is_given_while_the_sink_stands_still(play: Play) -> None:
    async def scenario(pair: Pair) -> None:
        pair.kept.gate.clear()
        pair.control(RUN)
        running = asyncio.ensure_future(pair.run())
        await asyncio.to_thread(pair.kept.entered.wait, 20)
        report = await asyncio.wrap_future(pair.receiving.report())
        while not report.statistics.held_bytes:
            report = await asyncio.wrap_future(pair.receiving.report())
        assert (report.chain, report.generation, report.waits) == ("chain-1", FIRST, ())
        pair.kept.gate.set()
        await running

    play(scenario)


def test_a_loop_that_hangs_gives_no_report(play: Play) -> None:
    """The heartbeat would be worth nothing if another thread answered it."""

    async def scenario(pair: Pair) -> None:
        asked, free = threading.Event(), threading.Event()
        task = pair.receiving._task
        assert task is not None
        handle = task.handle

        def hanging(event: object) -> object:
            asked.set()
            assert free.wait(20)
            return handle(event)  # type: ignore[arg-type]

        task.handle = hanging  # type: ignore[method-assign, assignment]
        pair.control(RUN)
        ending = [
            asyncio.to_thread(asyncio.run, host.run()) for host in (pair.sending, pair.receiving)
        ]
        both = asyncio.gather(*ending)
        await asyncio.to_thread(asked.wait, 20)
        answer = pair.receiving.report()
        await asyncio.wrap_future(pair.sending.report())
        assert not answer.done()
        free.set()
        await both
        assert answer.result(20).chain == "chain-1"

    play(scenario)


def test_a_chain_that_cannot_connect_ends_by_itself_with_the_reason(play: Play) -> None:
    async def scenario(pair: Pair) -> None:
        error = pair.sending.connect({})
        assert isinstance(error, ChannelError)
        assert "'chain-1'" in error.message
        pair.receiving.control(CANCEL)
        sending, _ = await pair.run()
        assert sending.error is error

    play(scenario)
