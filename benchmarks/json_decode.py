"""Rows per CPU second of input `file` over JSON lines, alone and beside the bare reader.

Run: `python benchmarks/json_decode.py [rows]`. Prints the median of five runs; CPU is user and
system time of this process. The lines are Nexmark bids of about 200 bytes.
"""

import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

import pyarrow as pa
import pyarrow.json as pj

from arkflow_kernel.ids import MonotonicMs
from arkflow_kernel.plan import ComponentPlan
from arkflow_kernel.ports import SourceBatch, SourceEnded
from arkflow_ray.components.api import BuildContext, ComponentKind
from arkflow_ray.components.building import build_component

RUNS = 5


def write_bids(path: str, rows: int) -> None:
    """A file of bids, the same on every run."""
    dice = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    with open(path, "w") as file:
        for i in range(rows):
            name = "".join(dice.choices(letters, k=16))
            file.write(
                f'{{"auction":{dice.randrange(1000, 20000)},"bidder":{dice.randrange(1000, 9999)},'
                f'"price":{dice.randrange(100, 10**7)},"channel":"channel-{dice.randrange(10**4)}",'
                f'"url":"https://www.nexmark.com/{name}/item.htm?query=1",'
                f'"dateTime":{1_700_000_000_000 + i},'
                f'"extra":"{"".join(dice.choices(letters, k=36))}"}}\n'
            )


def read_as_input(path: str) -> int:
    """All batches of input `file`."""
    plan = ComponentPlan("file", {"input_type": {"type": "json", "path": path}})
    reader = build_component(ComponentKind.INPUT, plan, BuildContext("bench"))
    reader.open([])  # type: ignore[union-attr,call-arg]
    rows = 0
    while True:
        result = reader.read(MonotonicMs(0))  # type: ignore[union-attr]
        if isinstance(result, SourceEnded):
            reader.close()  # type: ignore[union-attr]
            return rows
        if isinstance(result, SourceBatch):
            assert result.bad is None
            rows += result.batch.num_rows


def read_bare(path: str) -> int:
    """`pyarrow.json` over the same blocks, without a check of anything."""
    rows, schema, rest = 0, None, b""
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(4 << 20):
            cut = chunk.rfind(b"\n") + 1
            block, rest = rest + chunk[:cut], chunk[cut:]
            table = pj.read_json(
                pa.BufferReader(block),  # type: ignore[arg-type]  # the stubs lack it
                read_options=pj.ReadOptions(use_threads=False, block_size=len(block) + 1),
                parse_options=pj.ParseOptions(explicit_schema=schema),
            )
            schema = table.schema
            rows += table.num_rows
    return rows


def measure(work: Callable[[str], int], path: str) -> float:
    """Median of the million rows per CPU second."""
    found = []
    for _ in range(RUNS):
        start = time.process_time()
        rows = work(path)
        found.append(rows / (time.process_time() - start) / 1e6)
    return statistics.median(found)


def main() -> None:
    """Print one line a reader."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "bids.jsonl")
        write_bids(path, rows)
        size = os.path.getsize(path) / rows
        for name, work in (("input file", read_as_input), ("pyarrow.json alone", read_bare)):
            rate = measure(work, path)
            print(f"{name:20s} {rate:5.2f} M rows/CPU s  {rate * size:5.0f} MB/CPU s")


if __name__ == "__main__":
    main()
