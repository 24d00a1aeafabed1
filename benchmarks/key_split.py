"""Rows per CPU second of the split of a batch by key, beside one filter per target.

    python benchmarks/key_split.py --targets 4 --pairs 9

Batches of 8,192 Nexmark-like bids. Ours hashes the key, sorts and takes once; the reference is
told the targets and filters the batch with `pyarrow.compute` once per target. Pairs alternate;
the medians and the median of the pairs' ratios are printed and written to benchmarks/results/.
Behind them stand the rates of the hash alone, by kind of key. CPU is of this process.
"""

import argparse
import datetime
import functools
import json
import os
import pathlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from arkflow_kernel.ids import ChainId, ChannelId, EdgeId, OutputId
from arkflow_kernel.key_groups import key_groups
from arkflow_kernel.limits import SLICE_ROWS_MAX
from arkflow_kernel.outlet import OutletRouter, owners_of_key_groups
from arkflow_kernel.plan import ChannelPlan, EdgeKind, OutletPlan

KEY_GROUPS = 128
CALLS = 60


def texts(dice: np.random.Generator, width: int, distinct: int) -> Any:
    """One text a row, of `width` letters; about `distinct` different ones."""
    letters = dice.integers(97, 123, (distinct, width)).astype(np.uint8)
    words = [row.tobytes().decode() for row in letters]
    if distinct == SLICE_ROWS_MAX:
        return pa.array(words)
    return pa.array([words[i] for i in dice.integers(0, distinct, SLICE_ROWS_MAX).tolist()])


def bids(dice: np.random.Generator) -> pa.RecordBatch:
    """A batch of bids of about 150 bytes: 1,000 auctions, 5,000 bidders."""
    rows = SLICE_ROWS_MAX
    return pa.RecordBatch.from_pydict(
        {
            "auction": pa.array(dice.integers(0, 1_000, rows)),
            "bidder": pa.array(dice.integers(0, 5_000, rows)),
            "price": pa.array(dice.integers(100, 10**8, rows)),
            "channel": texts(dice, 9, 100),
            "url": texts(dice, 50, rows),
            "ts": pa.array(1_760_000_000_000 + np.arange(rows)),
            "extra": texts(dice, 36, rows),
        }
    )


def router(key: str, targets: int) -> OutletRouter:
    """A partitioned edge with `targets` channels."""
    ends = EdgeId("edge"), ChainId("from-0")
    channels = tuple(
        ChannelPlan(ChannelId(f"edge[0-{i}]"), i, *ends, ChainId(f"to-{i}")) for i in range(targets)
    )
    plan = OutletPlan(OutputId("edge"), EdgeKind.PARTITIONED, channels, (key,), KEY_GROUPS)
    return OutletRouter(plan, "from")


def filtered(
    batch: pa.RecordBatch, owners: npt.NDArray[np.uint16], targets: int
) -> list[pa.RecordBatch]:
    """The reference: one comparison and one filter of the whole batch per target."""
    of_row = pa.array(owners.astype(np.int64), pa.int64())
    return [batch.filter(pc.equal(of_row, pa.scalar(i))) for i in range(targets)]


def rate(work: Callable[[], object]) -> float:
    """Rows per CPU second of `work`, which handles one batch."""
    work()
    start = time.process_time()
    for _ in range(CALLS):
        work()
    return SLICE_ROWS_MAX * CALLS / (time.process_time() - start)


def pairs_of(batch: pa.RecordBatch, key: str, targets: int, pairs: int) -> list[dict[str, float]]:
    """Rates of both, measured in turns. Asserts first that both split alike."""
    outlet = router(key, targets)
    owners = owners_of_key_groups(targets, KEY_GROUPS)[key_groups(batch, [key], KEY_GROUPS)]
    ours = {piece.output: piece.batch for piece in outlet.route(batch)}
    for i, part in enumerate(filtered(batch, owners, targets)):
        assert part.num_rows == 0 or ours[OutputId(f"edge[0-{i}]")].equals(part)
    return [
        {
            "ours": rate(lambda: outlet.route(batch)),
            "filters": rate(lambda: filtered(batch, owners, targets)),
        }
        for _ in range(pairs)
    ]


def hash_rates(dice: np.random.Generator) -> dict[str, float]:
    """Rows per CPU second of `key_groups`, by kind of key."""
    rows = SLICE_ROWS_MAX
    columns: dict[str, pa.Array[Any]] = {
        "int64, unique": pa.array(dice.permutation(rows) * 7_919),
        "int64, 1,000 distinct": pa.array(dice.integers(0, 1_000, rows)),
        "10 letters, unique": texts(dice, 10, rows),
        "10 letters, 1,000 distinct": texts(dice, 10, 1_000),
        "10 letters, dictionary": texts(dice, 10, 1_000).dictionary_encode(),
        "200 letters, unique": texts(dice, 200, rows),
        "200 letters, 1,000 distinct": texts(dice, 200, 1_000),
    }
    batches = {
        name: pa.RecordBatch.from_arrays([column], names=["k"]) for name, column in columns.items()
    }
    rates = {}
    for name, batch in batches.items():
        work = functools.partial(key_groups, batch, ["k"], KEY_GROUPS)
        rates[name] = statistics.median(rate(work) for _ in range(5))
    return rates


def main() -> None:
    """Measure, print, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=9)
    given = parser.parse_args()
    dice = np.random.default_rng(7)
    batch = bids(dice)
    found: dict[str, object] = {}
    for key in ("auction", "channel"):
        measured = pairs_of(batch, key, given.targets, given.pairs)
        ratios = [pair["ours"] / pair["filters"] for pair in measured]
        medians = {name: statistics.median(p[name] for p in measured) for name in measured[0]}
        found[key] = {"rows_per_cpu_s": medians, "ratio_median": statistics.median(ratios)}
        print(
            f"by {key}, {given.targets} targets: {medians['ours'] / 1e6:.1f} M rows per CPU s, "
            f"filters {medians['filters'] / 1e6:.1f} M; median ratio "
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        )
    rates = hash_rates(dice)
    for name, rows in rates.items():
        print(f"hash of {name}: {rows / 1e6:.1f} M rows per CPU second")
    result = {
        "benchmark": "key_split",
        "date": datetime.date.today().isoformat(),
        "cores": os.cpu_count(),
        "targets": given.targets,
        "rows_per_batch": SLICE_ROWS_MAX,
        "bytes_per_batch": batch.nbytes,
        "split": found,
        "hash_rows_per_cpu_s": rates,
    }
    folder = pathlib.Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    (folder / "key_split.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
