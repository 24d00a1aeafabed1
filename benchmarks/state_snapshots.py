"""What snapshots of keyed state cost: the pause of a seal, bytes a checkpoint, a restore.

    python benchmarks/state_snapshots.py --keys 1000000 --checkpoints 110

Of each kind of key, a state of `--keys` counts changes 1 % a checkpoint: keys drawn evenly, or a
window that moves. Printed as JSON and written to benchmarks/results/: the seal's pause in wall
milliseconds, the bytes of any 50 checkpoints in a row as a percentage of the full state, merges
counted (M7), the CPU and wall seconds of a restore, and what marking changes costs an increment
(CPU time with marks over that without, medians of alternating runs).
"""

import argparse
import datetime
import hashlib
import json
import pathlib
import statistics
import tempfile
import time
from collections.abc import Sequence as Seq
from typing import Any

import numpy as np
import pyarrow as pa

from arkflow_kernel.ids import ChainId, CheckpointId, Generation, OperatorId, WallMs
from arkflow_kernel.limits import BATCH_ROWS_DEFAULT
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.snapshot import Epoch, ObjectRef, StateSnapshot
from arkflow_kernel.state.api import StateAddress
from arkflow_kernel.state.memory import MemoryState
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.state_snapshots import ChainStates

IN_A_ROW = 50


class Objects:
    """A store in memory."""

    def __init__(self, spool: pathlib.Path) -> None:
        self.spool = spool
        self.held: dict[str, pa.Buffer] = {}
        self.refs: dict[str, ObjectRef] = {}

    def put(self, name: str, parts: Seq[pa.Buffer | bytes]) -> ObjectRef:
        """Keep the bytes."""
        data = b"".join(memoryview(part) for part in parts)
        self.held[name] = pa.py_buffer(data)
        self.refs[name] = ObjectRef(name, len(data), hashlib.sha256(data).hexdigest())
        return self.refs[name]

    def put_file(self, name: str, path: pathlib.Path) -> ObjectRef:
        """States put no files."""
        raise NotImplementedError

    def read(self, ref: ObjectRef, offset: int = 0, length: int | None = None) -> pa.Buffer:
        """The bytes, without a copy."""
        return self.held[ref.name].slice(offset, length)

    def local_path(self, name: str) -> pathlib.Path | None:  # noqa: ARG002  # the port's
        """There are no files."""
        return None

    def is_copy(self, ref: ObjectRef, path: pathlib.Path) -> bool:  # noqa: ARG002  # the port's
        """There are no files."""
        return False


class Chain:
    """One counting state with its snapshots."""

    def __init__(self, objects: Objects | None, generation: int = 1) -> None:
        self.generation = Generation(generation)
        self.journal = CommitOnAck(lambda: WallMs(0))
        address = StateAddress("default", OperatorId("op"), "count")
        self.state = MemoryState(address, ("k",), pa.int64(), self.journal)
        self.journal.joined(self.state)
        plan = ChainPlan(ChainId("op-0"), None, (), (), ())
        self.states = ChainStates(plan, self.generation, objects)
        self.states.joined(self.state)

    def count(self, keys: pa.RecordBatch) -> None:
        """One item a batch."""
        for at in range(0, keys.num_rows, BATCH_ROWS_DEFAULT):
            with self.journal.item():
                batch = keys.slice(at, BATCH_ROWS_DEFAULT)
                self.state.increment(self.state.keys(batch))

    def sealed(self, checkpoint: int) -> tuple[float, float]:
        """Seal; the pause in milliseconds, and those of CPU time in it."""
        start, cpu = time.perf_counter(), time.thread_time()
        self.states.seal(CheckpointId(checkpoint))
        return (time.perf_counter() - start) * 1e3, (time.thread_time() - cpu) * 1e3

    def uploaded(self, checkpoint: int) -> tuple[tuple[StateSnapshot, ...], int]:
        """Upload and merge; the snapshots, and how many bytes are new."""
        snapshots, new = self.states.upload(Epoch(self.generation, CheckpointId(checkpoint)))
        self.states.maintain()
        return snapshots, sum(ref.size for ref in new)


def keys_of(kind: str, numbers: "np.ndarray[Any, Any]") -> pa.RecordBatch:
    """Keys of these numbers."""
    spread = numbers * 1_000_003
    if kind == "int64":
        return pa.record_batch({"k": pa.array(spread)})
    return pa.record_batch({"k": pa.array([f"sensor-{n:013d}" for n in spread])})


def measured(kind: str, moves: str, keys: int, checkpoints: int) -> dict[str, object]:
    """One state through many checkpoints, and its restore."""
    changed, random = keys // 100, np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        objects = Objects(pathlib.Path(folder))
        chain = Chain(objects)
        chain.count(keys_of(kind, random.permutation(keys)))
        full_pause = chain.sealed(1)
        snapshots, full = chain.uploaded(1)
        pauses, sizes = [], []
        for checkpoint in range(2, checkpoints + 2):
            start = checkpoint * changed
            window = np.arange(start, start + changed) % keys
            drawn = random.choice(keys, changed, replace=False) if moves == "random" else window
            chain.count(keys_of(kind, drawn))
            pauses.append(chain.sealed(checkpoint))
            snapshots, new = chain.uploaded(checkpoint)
            sizes.append(new)
        restored = Chain(objects, 2)
        listed = {ref.object for state in snapshots for ref in state.runs}
        begin, cpu = time.perf_counter(), time.process_time()
        restored.states.restore(snapshots, [objects.refs[name] for name in listed])
        cpu, wall = time.process_time() - cpu, time.perf_counter() - begin
        assert restored.state.live_bytes == chain.state.live_bytes
    rows = [sum(sizes[at : at + IN_A_ROW]) for at in range(len(sizes) - IN_A_ROW + 1)]
    return {
        "type": kind,
        "changes": moves,
        "keys": keys,
        "full_state_bytes": full,
        "seal_full_ms": round(full_pause[0], 1),
        "seal_ms_median": round(statistics.median(wall for wall, _ in pauses), 2),
        "seal_ms_max": round(max(wall for wall, _ in pauses), 2),
        "seal_cpu_ms_median": round(statistics.median(cpu for _, cpu in pauses), 2),
        "seal_cpu_ms_max": round(max(cpu for _, cpu in pauses), 2),
        "bytes_per_checkpoint_percent_mean": round(100 * statistics.mean(sizes) / full, 2),
        "bytes_per_checkpoint_percent_worst_50": round(100 * max(rows) / IN_A_ROW / full, 2),
        "runs": sum(len(state.runs) for state in snapshots),
        "restore_wall_s": round(wall, 3),
        "restore_cpu_s": round(cpu, 3),
    }


def marking(keys: int, runs: int) -> dict[str, object]:
    """CPU time of increments with marks, over that without."""
    random = np.random.default_rng(2)
    fill = keys_of("int64", random.permutation(keys))
    steady = keys_of("int64", random.integers(0, keys, 100 * BATCH_ROWS_DEFAULT))
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        plain, marked = Chain(None), Chain(Objects(pathlib.Path(folder)))
        for chain in (plain, marked):
            chain.count(fill)
            chain.count(steady)
        for _ in range(runs):
            took = []
            for chain in (plain, marked):
                start = time.process_time()
                chain.count(steady)
                took.append(time.process_time() - start)
            marked.states.seal(CheckpointId(1))
            ratios.append(took[1] / took[0])
    return {"keys": keys, "cpu_ratio_marked_to_plain": round(statistics.median(ratios), 3)}


def main() -> None:
    """Print JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--checkpoints", type=int, default=110)
    parser.add_argument("--runs", type=int, default=9)
    arguments = parser.parse_args()
    results = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cases": [
            measured(kind, moves, arguments.keys, arguments.checkpoints)
            for kind in ("int64", "string")
            for moves in ("random", "window")
        ],
        "marking": marking(arguments.keys, arguments.runs),
    }
    text = json.dumps(results, indent=2)
    print(text)
    out = pathlib.Path(__file__).parent / "results" / "state_snapshots.json"
    out.write_text(text + "\n")


if __name__ == "__main__":
    main()
