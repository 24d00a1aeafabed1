"""Batches between two Ray actors on one node: our channels beside Ray's actor calls (H7).

    .venv/bin/python benchmarks/channel.py [--seconds 4] [--runs 3]

The path is the real one: the sender's event loop -> Exchange -> I/O thread -> socket -> I/O thread
-> the receiver's event loop through a `Mailbox` -> grant, with 16 batches outstanding and the
kernel's `CreditLedger`. Batches are Nexmark-like bids (7 columns, about 152 bytes a row). CPU is
user and system time of both processes. Prints medians beside the goals and writes
benchmarks/results/channel.json.
"""

import argparse
import asyncio
import datetime
import json
import os
import platform
import resource
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from arkflow_kernel.channel import CreditLedger
from arkflow_kernel.envelope import Data, Envelope, Reset
from arkflow_kernel.errors import ChannelError
from arkflow_kernel.ids import FIRST_GENERATION, ChainId, ChannelId, JobId, Sequence
from arkflow_kernel.limits import CHANNEL_BYTES_MAX, MIB
from arkflow_kernel.testing.plans import chain_plan, channel_plan
from arkflow_ray.runtime.channels.addresses import Address
from arkflow_ray.runtime.channels.exchange import Exchange
from arkflow_ray.runtime.mailbox import Mailbox

ROWS: Final = (256, 1_000, 8_192, 65_536)
WINDOW: Final = 16
NODE_IP: Final = "127.0.0.1"
ROUND_TRIPS: Final = 1_000
PLAN: Final = channel_plan(capacity=WINDOW, capacity_bytes=WINDOW * 16 * MIB)
CHANNEL: Final = PLAN.channel
POOL_BYTES: Final = 2 * CHANNEL_BYTES_MAX
"""Different batches that the sender goes through, so that not all lies in a cache."""

RESULTS: Final = Path(__file__).parent / "results" / "channel.json"
Figures = dict[str, float]


def bids(rows: int, seed: int) -> pa.RecordBatch:
    """Nexmark-like bids."""
    random = np.random.default_rng(seed)
    auctions = random.integers(1_000, 100_000, rows)
    return pa.record_batch(
        {
            "auction": auctions,
            "bidder": random.integers(1_000, 50_000, rows),
            "price": random.integers(100, 100_000_000, rows),
            "channel": [f"channel-{n % 100:03d}" for n in auctions],
            "url": [f"https://www.nexmark.com/{n:08d}/item.htm?query=1" for n in auctions],
            "date_time": pa.array(np.arange(rows) + 1_760_000_000_000, pa.timestamp("ms")),
            "extra": ["x" * 48] * rows,
        }
    )


class _Peer:
    """One end: an exchange, and a mailbox on the process's event loop."""

    def __init__(self, chain: str, folder: str) -> None:
        sys.setswitchinterval(0.0005)
        sends = chain == PLAN.source
        plan = chain_plan(
            chain,
            sinks=() if sends else ("sink",),
            channels=(PLAN,) if sends else (),
            inputs=() if sends else (PLAN,),
        )
        self.mailbox: Mailbox[Any] = Mailbox()
        self.exchange = Exchange(
            JobId("bench"), plan, FIRST_GENERATION, self, folder=folder, node_ip=NODE_IP
        )

    def arrived(self, envelopes: list[tuple[ChannelId, Envelope]]) -> None:
        """Envelopes of one pass: one post."""
        self.mailbox.post(envelopes)

    def granted(self, grants: list[tuple[ChannelId, Sequence, Sequence]]) -> None:
        """Grants of one pass: one post."""
        self.mailbox.post(grants)

    def broken(self, error: ChannelError) -> None:
        """The benchmark ends."""
        self.mailbox.post(error)

    async def cpu_s(self) -> float:
        """User and system time of this process."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime

    async def close(self) -> None:
        """End in order."""
        await asyncio.to_thread(self.exchange.close, flush=True, timeout_s=5)

    async def next(self) -> Any:
        """The next post."""
        while (event := self.mailbox.take()) is None:
            await self.mailbox.wait(10)
        if isinstance(event, ChannelError):
            raise event
        return event


class Receiver(_Peer):
    """Takes batches, grants at once."""

    def __init__(self, folder: str) -> None:
        super().__init__(PLAN.target, folder)
        self._rows = 0
        self._loop: asyncio.Task[None] | None = None

    async def listen(self, secret: bytes) -> Address:
        """Listen, and take from now on."""
        self.mailbox.attach()
        self._loop = asyncio.create_task(self._take())
        return self.exchange.listen(secret)

    async def call(self, batch: pa.RecordBatch) -> int:
        """The plain Ray call."""
        return batch.num_rows

    async def _take(self) -> None:
        while True:
            taken = Sequence(0)
            for _, envelope in await self.next():
                if isinstance(envelope, Data):
                    self._rows += envelope.num_rows
                    taken = envelope.sequence
            if taken:
                self.exchange.grant(CHANNEL, taken, taken)


class Sender(_Peer):
    """Sends batches as long as it has credit."""

    def __init__(self, folder: str) -> None:
        super().__init__(PLAN.source, folder)
        self._pools: dict[int, list[pa.RecordBatch]] = {}
        self._ledger = CreditLedger(CHANNEL, PLAN.capacity, PLAN.capacity_bytes)

    async def connect(self, address: Address, secret: bytes) -> None:
        """Connect to the receiver."""
        self.mailbox.attach()
        await asyncio.to_thread(self.exchange.connect, {ChainId(PLAN.target): address}, secret)
        self.exchange.send(CHANNEL, Reset(FIRST_GENERATION))

    async def stream(self, rows: int, seconds: float) -> Figures:
        """Send for so long; batches, bytes and the seconds until the last was granted."""
        pool = self._batches(rows)
        sizes = [batch.get_total_buffer_size() for batch in pool]
        start = time.perf_counter()
        count = size = 0
        while time.perf_counter() - start < seconds:
            while self._ledger.can_send(sizes[count % len(pool)]):
                index = count % len(pool)
                self._send(pool[index], sizes[index])
                count += 1
                size += sizes[index]
            await self._granted()
        while self._ledger.outstanding:
            await self._granted()
        return {"batches": count, "bytes": size, "seconds": time.perf_counter() - start}

    async def round_trips(self) -> list[float]:
        """Microseconds of one tiny batch and its grant, with pauses between."""
        batch = bids(1, 0)

        async def once() -> None:
            self._send(batch, batch.get_total_buffer_size())
            while self._ledger.outstanding:
                await self._granted()

        return await _timed(once)

    async def ray_calls(self, receiver: Any, rows: int, seconds: float) -> Figures:
        """The same by plain actor calls with the batch as argument."""
        pool = self._batches(rows)
        start = time.perf_counter()
        counts = [0] * WINDOW

        async def caller(number: int) -> None:
            while time.perf_counter() - start < seconds:
                await receiver.call.remote(pool[(counts[number] + number) % len(pool)])
                counts[number] += 1

        await asyncio.gather(*(caller(number) for number in range(WINDOW)))
        size = sum(counts) * pool[0].get_total_buffer_size()
        taken_s = time.perf_counter() - start
        return {"batches": sum(counts), "bytes": size, "seconds": taken_s}

    async def ray_round_trips(self, receiver: Any) -> list[float]:
        """Microseconds of one actor call with a tiny batch."""
        batch = bids(1, 0)

        async def once() -> None:
            await receiver.call.remote(batch)

        return await _timed(once)

    def _batches(self, rows: int) -> list[pa.RecordBatch]:
        if rows not in self._pools:
            self._pools[rows] = _pool(rows)
        return self._pools[rows]

    def _send(self, batch: pa.RecordBatch, size: int) -> None:
        sequence = self._ledger.send(size)
        self.exchange.send(CHANNEL, Data(sequence, (batch,), size))

    async def _granted(self) -> None:
        for _, taken, settled in await self.next():
            self._ledger.granted(taken, settled)


async def _timed(once: Callable[[], Awaitable[None]]) -> list[float]:
    times = []
    for _ in range(ROUND_TRIPS):
        await asyncio.sleep(0.002)
        start = time.perf_counter()
        await once()
        times.append((time.perf_counter() - start) * 1e6)
    return times


def _pool(rows: int) -> list[pa.RecordBatch]:
    one = bids(rows, 0)
    count = max(2, min(32, POOL_BYTES // one.nbytes))
    return [one, *(bids(rows, seed) for seed in range(1, count))]


class _Actor:
    """Calls a Ray actor and waits."""

    def __init__(self, kind: Any, folder: str) -> None:
        import ray

        self._get = ray.get
        options: dict[str, Any] = {"num_cpus": 0.01, "max_concurrency": 64}
        remote: Any = ray.remote(**options)(kind)
        self.handle = remote.remote(folder)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *arguments: self._get(getattr(self.handle, name).remote(*arguments))


def measured(run: Callable[[], Figures], *peers: Any) -> Figures:
    """Rates of one run, and the CPU of both processes."""
    before = sum(peer.cpu_s() for peer in peers)
    figures = run()
    cpu_s = sum(peer.cpu_s() for peer in peers) - before
    return {
        "batches_per_s": figures["batches"] / figures["seconds"],
        "gb_per_s": figures["bytes"] / figures["seconds"] / 1e9,
        "cpu_us_per_batch": cpu_s / figures["batches"] * 1e6,
    }


def percentiles(times: list[float]) -> Figures:
    """p50 and p99 of round trips."""
    ranked = np.percentile(times, [50, 99])
    return {"p50_us": float(ranked[0]), "p99_us": float(ranked[1])}


def run_all(seconds: float) -> dict[str, Figures]:
    """One run of every case, in a pair of new actors."""
    cases: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory(prefix="afc-", dir=_short_folder()) as folder:
        secret = secrets.token_bytes(32)
        receiver, sender = _Actor(Receiver, f"{folder}/s"), _Actor(Sender, f"{folder}/s")
        sender.connect(receiver.listen(secret), secret)
        cases["channel round trip"] = percentiles(sender.round_trips())
        for rows in ROWS:
            sender.stream(rows, 0.5)  # warm, and the batches are made
            run = lambda rows=rows: sender.stream(rows, seconds)  # noqa: E731
            cases[f"channel {rows}"] = measured(run, sender, receiver)
        cases["ray round trip"] = percentiles(sender.ray_round_trips(receiver.handle))
        for rows in ROWS:
            run = lambda rows=rows: sender.ray_calls(receiver.handle, rows, seconds)  # noqa: E731
            cases[f"ray {rows}"] = measured(run, sender, receiver)
        sender.close()
        receiver.close()
    return cases


def _short_folder() -> str:
    folder = tempfile.gettempdir()
    return folder if len(folder) <= 30 else "/tmp"


def goals(cases: dict[str, Figures]) -> list[tuple[str, float, bool]]:
    """The goals of H7: what, how much, met."""
    small = cases["channel 1000"]["batches_per_s"]
    norm, large = cases["channel 8192"]["gb_per_s"], cases["channel 65536"]["gb_per_s"]
    p99 = cases["channel round trip"]["p99_us"]
    return [
        (">= 10,000 batches/s at 1,000 rows", small, small >= 10_000),
        (">= 2 GB/s at 8,192 rows", norm, norm >= 2),
        ("no collapse at 65,536: half the GB/s of 8,192 or more", large, large >= norm / 2),
        ("tiny round trip p99 <= 1,000 us", p99, p99 <= 1_000),
    ]


def report(runs: list[dict[str, Figures]]) -> None:
    """Print the medians and the goals, write the JSON."""
    medians = {
        case: {key: statistics.median(run[case][key] for run in runs) for key in runs[0][case]}
        for case in runs[0]
    }
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes")
    load = os.getloadavg()[0]
    where = f"two Ray actors, {os.cpu_count()} cores, load {load:.1f}"
    print(f"median of {len(runs)} runs, {where}, {date}")
    for case, figures in medians.items():
        if "p50_us" in figures:
            print(f"  {case:20} p50 {figures['p50_us']:8,.0f} us  p99 {figures['p99_us']:8,.0f} us")
        else:
            print(
                f"  {case:20} {figures['batches_per_s']:10,.0f} batches/s"
                f" {figures['gb_per_s']:6.2f} GB/s {figures['cpu_us_per_batch']:8,.0f} CPU us"
            )
    ratios = {
        rows: medians[f"channel {rows}"]["batches_per_s"] / medians[f"ray {rows}"]["batches_per_s"]
        for rows in ROWS
    }
    told_ratios = ", ".join(f"{ratio:.1f} at {rows:,}" for rows, ratio in ratios.items())
    print(f"  channel / ray, batches/s: {told_ratios}")
    judged = goals(medians)
    for goal, value, met in judged:
        print(f"  {'met   ' if met else 'MISSED'} {goal}: {value:,.1f}")
    told = {
        "benchmark": "channel",
        "date": date,
        "cores": os.cpu_count(),
        "load": load,
        "python": platform.python_version(),
        "medians": medians,
        "ratios": ratios,
        "goals": [{"goal": goal, "value": value, "met": met} for goal, value, met in judged],
        "runs": runs,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0, help="of each case")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    from arkflow_ray.runtime.ray_session import open_session

    session = open_session(None, print)
    try:
        runs = [run_all(arguments.seconds) for _ in range(arguments.runs)]
    finally:
        session.close()
    report(runs)


if __name__ == "__main__":
    main()
