"""A run of a program over files, measured in its steady part: starting and warming up are left out.

While the program reads its files from `FIRST` to `LAST` of their bytes, what all of its processes
use (children, a JVM, Ray's own daemons) is read from /proc.
"""

import pathlib
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from arkflow_ray.bench.process_usage import cpu_seconds, peak_bytes, places_in, processes

FIRST: Final = 0.30
LAST: Final = 0.95
"""Parts of the files between which CPU is counted."""

POLL_S: Final = 0.05
TIMEOUT_S: Final = 600.0
_TOLD: Final = 4_000


class RunFailedError(Exception):
    """A run did not end well. Its text is the end of what the run said."""


@dataclass(frozen=True, slots=True)
class Steady:
    """What the steady part of a run took, and what the program said on stdout.

    `java_bytes` is the most memory that its JVM had, 0 without one.
    """

    rows_per_cpu_s: float
    rows_per_s: float
    wall_s: float
    java_bytes: int
    said: str


@dataclass(frozen=True, slots=True)
class _Mark:
    rows: float
    cpu_s: float
    at_s: float


def measured(command: list[str], sources: Mapping[pathlib.Path, int]) -> Steady:
    """Run a program that reads the `sources`, each of so many rows, from beginning to end.

    RunFailedError if it fails, if it does not end in ten minutes, or if it reads the files so fast
    that nobody sees it in their middle.
    """
    sizes = {source: source.stat().st_size for source in sources}
    began_s = time.monotonic()
    program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        marks, java_bytes = _watch(program, sources, sizes, began_s + TIMEOUT_S)
        out, err = program.communicate(timeout=max(1.0, began_s + TIMEOUT_S - time.monotonic()))
    except subprocess.TimeoutExpired as error:
        raise RunFailedError(f"it did not end in {TIMEOUT_S:.0f} s") from error
    finally:
        if program.poll() is None:
            program.kill()
            program.wait()
    if program.returncode != 0:
        raise RunFailedError(f"{out[-_TOLD:]}\n{err[-_TOLD:]}".strip())
    if len(marks) < 2 or marks[1].cpu_s <= marks[0].cpu_s:
        raise RunFailedError("too few events: nobody was seen reading the middle of the files")
    first, last = marks
    rows = last.rows - first.rows
    return Steady(
        rows / (last.cpu_s - first.cpu_s),
        rows / (last.at_s - first.at_s),
        time.monotonic() - began_s,
        java_bytes,
        out,
    )


def _watch(
    program: "subprocess.Popen[str]",
    sources: Mapping[pathlib.Path, int],
    sizes: Mapping[pathlib.Path, int],
    end_s: float,
) -> tuple[list[_Mark], int]:
    """The two marks, and the peak of a JVM."""
    whole, begun, java_bytes = sum(sizes.values()), False, 0
    furthest = dict.fromkeys(sources, 0)
    marks: list[_Mark] = []
    while program.poll() is None and len(marks) < 2 and time.monotonic() < end_s:
        pids = processes(program.pid)
        places = places_in(list(sources), pids)
        # A reader may look at the end of a file before it begins.
        begun = begun or 0 < sum(places.values()) < FIRST * whole
        if begun:
            for source, place in places.items():
                furthest[source] = max(furthest[source], place)
            if sum(furthest.values()) >= (LAST if marks else FIRST) * whole:
                rows = sum(sources[each] * furthest[each] / sizes[each] for each in sources)
                marks.append(_Mark(rows, cpu_seconds(pids), time.monotonic()))
                java_bytes = peak_bytes(pids, "java")
        time.sleep(POLL_S)
    return marks, java_bytes


__all__ = ["FIRST", "LAST", "RunFailedError", "Steady", "measured"]
