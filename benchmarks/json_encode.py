"""JSON text from Arrow rows: ours beside DataFusion's writer, MB per CPU second.

Run: `python benchmarks/json_encode.py`. Batches are Nexmark-like, 8,192 rows; the best of three
measurements is printed, because a busy neighbour only ever makes a figure worse.
"""

import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from arkflow_ray.components.codecs.json_encode import encode_lines, encode_rows

ROWS = 8_192
CALLS = 60


def bids() -> pa.RecordBatch:
    """A batch of the six columns that most Nexmark queries read."""
    return pa.record_batch(
        {
            "auction": pa.array(range(1_000, 1_000 + ROWS)),
            "bidder": pa.array([i * 7 % 5_000 for i in range(ROWS)]),
            "price": pa.array([i * 7919 % 10_000_000 for i in range(ROWS)]),
            "channel": pa.array([f"channel-{i % 7}" for i in range(ROWS)]),
            "url": pa.array([f"https://www.nexmark.com/item.htm?query={i}" for i in range(ROWS)]),
            "ts": pa.array(range(1_700_000_000_000, 1_700_000_000_000 + ROWS)),
        }
    )


def by_datafusion(folder: Path) -> Callable[[pa.RecordBatch], bytes]:
    """DataFusion's JSON writer through a temporary file."""
    import datafusion

    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
    path = folder / "rows.json"

    def encode(batch: pa.RecordBatch) -> bytes:
        context.read_batch(batch).write_json(str(path))
        text = path.read_bytes()
        path.unlink()
        return text

    return encode


def milliseconds(call: Callable[[], object]) -> float:
    """CPU milliseconds of one call, best of three measurements."""
    call()
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        for _ in range(CALLS):
            call()
        best = min(best, time.process_time() - start)
    return best / CALLS * 1e3


def main() -> None:
    """Measure every writer on the full batch and on a three-column projection."""
    with tempfile.TemporaryDirectory() as folder:
        writers: dict[str, Callable[[pa.RecordBatch], object]] = {
            "encode_lines": encode_lines,
            "encode_rows": encode_rows,
            "datafusion": by_datafusion(Path(folder)),
        }
        full = bids()
        for name, batch in (("6", full), ("3", full.select(["auction", "price", "channel"]))):
            size = len(encode_lines(batch))
            for writer, encode in writers.items():
                cpu = milliseconds(functools.partial(encode, batch))
                rate = size / cpu / 1e3
                print(f"{writer:14} {name} columns: {cpu:6.3f} ms, {rate:5.0f} MB per CPU second")


if __name__ == "__main__":
    main()
