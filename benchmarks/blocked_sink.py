"""A sink that is blocked for two minutes at full input: what every actor holds meanwhile (E3, E5).

    python benchmarks/blocked_sink.py --seconds 120

A job of three chains (file | sql | stdout) reads as fast as it can; nobody takes the printed rows
for the given time, then everybody does. Once a second each actor's bytes in queues, lane and
outboxes (`held_bytes`) are compared with its budget, and its resident memory is read. Printed: the
largest share of the budget, the memory at 20 s and at the end of the block, the stall reports, and
whether the job went on by itself and printed every row.
"""

import argparse
import datetime
import json
import os
import pathlib
import tempfile
import threading
import time
from collections.abc import Mapping
from typing import Any

from arkflow_kernel.ids import ChainId

PAGE = os.sysconf("SC_PAGE_SIZE")
SETTLED_S = 20
GROWTH_MAX_MIB = 64


class BlockedLines:
    """Where stdout sinks print: takes nothing until it is opened, then counts lines."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.lines = 0

    def put(self, lines: bytes) -> None:
        self.open.wait()
        self.lines += lines.count(b"\n")


def generate(path: pathlib.Path, rows: int) -> None:
    """Write JSON lines of about 150 bytes each."""
    extra = "x" * 64
    with path.open("w") as out:
        out.writelines(
            f'{{"auction":{n % 9_973},"bidder":{n % 7_919},"price":{n * 37 % 10**8},'
            f'"channel":"channel-{n % 5}","ts":{1_760_000_000_000 + n},"extra":"{extra}"}}\n'
            for n in range(rows)
        )


def pipeline(source: pathlib.Path) -> dict[str, Any]:
    """Three operators, each in a chain of its own."""
    query = "SELECT auction, bidder, price, channel, ts, extra FROM flow"
    return {
        "streams": [
            {
                "id": "blocked",
                "input": {"type": "file", "input_type": {"type": "json", "path": str(source)}},
                "pipeline": {"chain": False, "processors": [{"type": "sql", "query": query}]},
                "output": {"type": "stdout"},
            }
        ]
    }


def sample(status: Any, budgets: Mapping[ChainId, int]) -> dict[str, dict[str, float]]:
    """Per chain: bytes held, its share of the budget, resident memory in MiB."""
    found = {}
    for chain, statistics in status.chains.items():
        usage = status.usage.get(chain)
        rss = 0.0
        if usage is not None:
            pages = pathlib.Path(f"/proc/{usage.pid}/statm").read_text().split()[1]
            rss = int(pages) * PAGE / 2**20
        held = statistics.held_bytes
        found[chain] = {"held": held, "share": held / budgets[chain], "rss_mib": rss}
    return found


def run(source: pathlib.Path, folder: pathlib.Path, seconds: int) -> dict[str, Any]:
    """Run the job; the samples, the stalls, and how it ended."""
    from arkflow_kernel.budget import held_bytes_max
    from arkflow_ray.config.project import check_file
    from arkflow_ray.runtime.launch import RunSettings, launch

    config = folder / "pipeline.json"
    config.write_text(json.dumps(pipeline(source)))
    checked = check_file(config)
    assert checked.ok, checked.issues
    graphs = [job.graph for job in checked.jobs if job.graph is not None]
    budgets = {plan.chain: held_bytes_max(plan) for graph in graphs for plan in graph.chains}
    lines = BlockedLines()
    jobs = launch(checked.jobs, RunSettings(), lines, lambda _: None)
    samples, stalls = [], set()
    try:
        (job,) = jobs.jobs.values()
        while not job.status().chains:
            jobs.wait(0.2)
        started = time.monotonic()
        while time.monotonic() - started < seconds:
            jobs.wait(1.0)
            status = job.status()
            samples.append((time.monotonic() - started, sample(status, budgets)))
            stalls |= {
                f"{chain}: {wait.on}: {wait.detail}"
                for chain, waits in status.waits.items()
                for wait in waits
            }
        printed = lines.lines
        lines.open.set()
        while not jobs.wait(1.0):
            pass
        (outcome,) = jobs.outcomes().values()
    finally:
        lines.open.set()
        jobs.close()
    return {
        "samples": samples,
        "stalls": sorted(stalls),
        "printed_while_blocked": printed,
        "printed": lines.lines,
        "outcome": outcome.kind.value,
        "budgets": budgets,
    }


def main() -> None:
    """Run once and print what it says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--rows", type=int, default=2_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = pathlib.Path(name)
        source = folder / "bids.jsonl"
        generate(source, arguments.rows)
        result = run(source, folder, arguments.seconds)
    _report(result, arguments.rows, arguments.seconds)


def _report(result: dict[str, Any], rows: int, seconds: int) -> None:
    samples = result["samples"]
    early = next(found for at, found in samples if at >= min(SETTLED_S, seconds / 2))
    late = samples[-1][1]
    chains = {}
    for chain in late:
        shares = [found[chain]["share"] for _, found in samples if chain in found]
        growth = late[chain]["rss_mib"] - early[chain]["rss_mib"]
        chains[chain] = {
            "budget_mib": result["budgets"][chain] / 2**20,
            "share_max": max(shares),
            "rss_early_mib": early[chain]["rss_mib"],
            "rss_late_mib": late[chain]["rss_mib"],
            "growth_mib": growth,
            "met": max(shares) <= 1 and growth <= GROWTH_MAX_MIB,
        }
        print(
            f"  {chain}: at most {max(shares):.0%} of {chains[chain]['budget_mib']:,.0f} MiB; "
            f"memory {early[chain]['rss_mib']:,.0f} MiB at {SETTLED_S} s, "
            f"{late[chain]['rss_mib']:,.0f} MiB at {seconds} s ({growth:+.0f})"
        )
    for stall in result["stalls"]:
        print(f"  stall: {stall}")
    print(
        f"  {result['outcome']}, {result['printed']:,} of {rows:,} rows printed, "
        f"{result['printed_while_blocked']:,} of them while blocked"
    )
    report = {
        "benchmark": "blocked_sink",
        "date": datetime.date.today().isoformat(),
        "cores": os.cpu_count(),
        "seconds": seconds,
        "rows": rows,
        "chains": chains,
        **{key: result[key] for key in ("stalls", "printed", "outcome")},
    }
    folder = pathlib.Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    (folder / "blocked_sink.json").write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
