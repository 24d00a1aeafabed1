"""What the gate of a source costs a row, beside one filter of the same batch.

    python benchmarks/event_time_gate.py --pairs 9

Batches of 8,192 rows of five columns, of various orders and types of times. Ours takes the times
out, judges every row and stamps those that are behind; the reference is one comparison of the time
with a constant and one `pyarrow` filter that keeps nearly all rows. Pairs alternate; the medians
and the median of the pairs' ratios are printed and written to benchmarks/results/. CPU is of this
process.
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from arkflow_kernel.event_time_gate import ROW_WATERMARK, EventTimeGate
from arkflow_kernel.ids import OperatorId, SplitId, WallMs
from arkflow_kernel.limits import SLICE_ROWS_MAX
from arkflow_kernel.plan import TimePlan
from arkflow_kernel.ports import SourceBatch

START = 1_760_000_000_000
STEP_MS = 10
BOUND_MS = 1_000
CALLS = 60
ROWS = SLICE_ROWS_MAX


def batch_of(times: Any, dice: np.random.Generator) -> pa.RecordBatch:
    """A batch with these times."""
    return pa.RecordBatch.from_pydict(
        {
            "auction": pa.array(dice.integers(0, 1_000, ROWS)),
            "bidder": pa.array(dice.integers(0, 5_000, ROWS)),
            "price": pa.array(dice.integers(100, 10**8, ROWS)),
            "channel": pa.array([f"channel-{n}" for n in dice.integers(0, 100, ROWS).tolist()]),
            "ts": times,
        }
    )


def cases(dice: np.random.Generator) -> dict[str, tuple[pa.RecordBatch, bool]]:
    """By name: a batch, and whether some of its rows are behind."""
    ordered = START + np.arange(ROWS) * STEP_MS
    shaken = ordered + dice.integers(0, BOUND_MS, ROWS)
    few = np.where(dice.random(ROWS) < 0.01, ordered - 10**6, ordered)
    micros: Any = pa.array(ordered * 1_000).view(pa.timestamp("us"))
    return {
        "in order": (batch_of(pa.array(ordered), dice), False),
        "in order, timestamp[us]": (batch_of(micros, dice), False),
        "in disorder within the bound": (batch_of(pa.array(shaken), dice), False),
        "1 % behind": (batch_of(pa.array(few), dice), True),
        "in no order": (batch_of(pa.array(dice.permutation(ordered)), dice), True),
        "1 % null": (batch_of(pa.array(ordered, mask=dice.random(ROWS) < 0.01), dice), False),
    }


def gated(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch as it leaves the gate, the first of its split."""
    gate = EventTimeGate(TimePlan("ts", BOUND_MS), OperatorId("bids"), late_route=True)
    return gate.apply(SourceBatch(SplitId("0"), batch, {}), WallMs(START))[0].batch


def ns_a_row(work: Callable[[], object]) -> float:
    """CPU of `work`, which handles one batch."""
    work()
    start = time.process_time_ns()
    for _ in range(CALLS):
        work()
    return (time.process_time_ns() - start) / (ROWS * CALLS)


def pairs_of(batch: pa.RecordBatch, pairs: int) -> list[dict[str, float]]:
    """Both, measured in turns."""
    edge: Any = pa.scalar(batch.column("ts")[ROWS // 100].as_py(), batch.column("ts").type)

    def filtered() -> pa.RecordBatch:
        times: Any = batch.column("ts")
        return batch.filter(pc.greater_equal(times, edge))

    return [
        {"ours": ns_a_row(lambda: gated(batch)), "filter": ns_a_row(filtered)} for _ in range(pairs)
    ]


def main() -> None:
    """Measure, print, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=9)
    pairs = parser.parse_args().pairs
    found: dict[str, object] = {}
    for name, (batch, behind) in cases(np.random.default_rng(7)).items():
        assert (ROW_WATERMARK in gated(batch).schema.names) == behind
        measured = pairs_of(batch, pairs)
        ratios = [pair["ours"] / pair["filter"] for pair in measured]
        medians = {key: statistics.median(pair[key] for pair in measured) for key in measured[0]}
        found[name] = {"ns_a_row": medians, "ratio_median": statistics.median(ratios)}
        print(
            f"{name}: {medians['ours']:.1f} ns a row, filter {medians['filter']:.1f}; median "
            f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        )
    result = {
        "benchmark": "event_time_gate",
        "date": datetime.date.today().isoformat(),
        "cores": os.cpu_count(),
        "rows_per_batch": ROWS,
        "cases": found,
    }
    folder = pathlib.Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    (folder / "event_time_gate.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
