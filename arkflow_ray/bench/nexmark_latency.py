"""How long it takes from reading an event until a result that it completes can be read.

A run at a fixed rate: a clock behind each source notes when each batch was read and how far its
event time goes; a watcher notes when each file of results appears in the sink's folder, under its
final name. A row of results has an event time: its bid's, or the end of its window. Its latency is
from the reading of the first event of that time or later, to the appearing of its file.

The first seconds are left out, and what leaves only because the input has ended.
"""

import os
import pathlib
import subprocess
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json

from arkflow_ray.bench.steady_part import RunFailedError

WARM_MS: Final = 5_000
"""So much of the input is left out at the beginning."""

_LOOK_S: Final = 0.01
_TIMEOUT_S: Final = 300.0
_TOLD: Final = 4_000

EVENT_TIME: Final[Mapping[str, tuple[str, int]]] = {
    "q0": ("date_time", 0),
    "q1": ("date_time", 0),
    "q5": ("endtime", 0),
    "q7": ("date_time", 10_000),
    "q8": ("starttime", 10_000),
    "q11": ("endtime", 0),
    "q12": ("endtime", 0),
    "q18": ("date_time", 0),
    "q20": ("bid_time", 0),
}
"""By query: a column with its rows' event time. With a size: the end of its window counts.

q2 and q17 write no time of an event, so nothing can be said of them.
"""

Ints = npt.NDArray[np.int64]


class FolderWatch:
    """Notes when files appear in a folder, while it is open."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.seen_ms: dict[str, int] = {}
        self._folder, self._over = folder, threading.Event()
        self._thread = threading.Thread(target=self._watch, name="folder-watch", daemon=True)

    def __enter__(self) -> "FolderWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_S):
            self._look()
        self._look()

    def _look(self) -> None:
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return
        now_ms = time.time_ns() // 1_000_000
        for name in names:
            if name[0] not in "._":
                self.seen_ms.setdefault(name, now_ms)


def latencies(query: str, command: list[str], folder: pathlib.Path) -> Ints:
    """Run a paced job whose files are in `folder`; milliseconds of each row of its results.

    RunFailedError if it does not end well.
    """
    with FolderWatch(folder / "written") as watch:
        _run(command)
    clocks = [_clock(file) for file in sorted(folder.glob("read-*"))]
    begun_ms = min(int(upto[0]) for _, upto in clocks) + WARM_MS
    found = [np.empty(0, np.int64)]
    for name, seen_ms in watch.seen_ms.items():
        path = folder / "written" / name
        due = _due(query, path)
        due = due[due > begun_ms]
        read_ms, ended = _read_ms(clocks, due)
        found.append(seen_ms - read_ms[~ended])
    return np.concatenate(found)


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise RunFailedError(f"it did not end in {_TIMEOUT_S:.0f} s") from error
    if done.returncode != 0:
        raise RunFailedError(f"{done.stdout[-_TOLD:]}\n{done.stderr[-_TOLD:]}".strip())


def _clock(file: pathlib.Path) -> tuple[Ints, Ints]:
    """When batches were read, and the highest event time of all rows until then."""
    noted = np.loadtxt(file, dtype=np.int64, ndmin=2)
    return noted[:, 0], np.maximum.accumulate(noted[:, 1])


def _read_ms(clocks: list[tuple[Ints, Ints]], due: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """When every source had read an event of these times; and where one never did."""
    read_ms, ended = np.zeros(len(due), np.int64), np.zeros(len(due), np.bool_)
    for at_ms, upto in clocks:
        places = np.searchsorted(upto, due)
        ended |= places == len(upto)
        read_ms = np.maximum(read_ms, at_ms[np.minimum(places, len(upto) - 1)])
    return read_ms, ended


def _due(query: str, path: pathlib.Path) -> Ints:
    """The event time of each row of a file."""
    column, size_ms = EVENT_TIME[query]
    table: Any = json.read_json(path)
    times = pc.cast(table.column(column), pa.timestamp("ms")).cast(pa.int64())
    values: Ints = times.to_numpy()
    return values if not size_ms else (values // size_ms + 1) * size_ms


__all__ = ["EVENT_TIME", "WARM_MS", "FolderWatch", "latencies"]
