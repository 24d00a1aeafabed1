"""`bench nexmark --inline`: what each query costs in CPU, time and memory, without Ray.

Figures are of the operating system, for the whole process of a run.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from arkflow_ray.bench.nexmark_jobs import kinds_of, on_events, queries
from arkflow_ray.bench.nexmark_tables import rows_of
from arkflow_ray.bench.steady_part import RunFailedError
from arkflow_ray.cli.exits import ExitCode, say

_MIB: Final = 1_048_576
_MEASURABLE_S: Final = 0.1
_TAIL_LINES: Final = 20


@dataclass(frozen=True, slots=True)
class RunCost:
    """What one run took: seconds, seconds of CPU, bytes of memory at the most."""

    seconds: float
    cpu_seconds: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class QueryCost:
    """What a query took for its `rows`, without starting; the memory with it. None: too short."""

    query: str
    rows: int
    seconds: float
    cpu_seconds: float
    rows_per_second: float | None
    rows_per_cpu_second: float | None
    memory_bytes: int


def bench_nexmark(wanted: list[str], events: int, json_file: Path | None) -> int:
    """Run the queries (all if none is named), print a table, and write the figures."""
    known = queries()
    unknown = [name for name in wanted if name not in known]
    if unknown:
        say(f"there is no query {', '.join(unknown)}; there are {', '.join(known)}")
        return ExitCode.USAGE
    print(_LINE.format("query", "rows", "seconds", "CPU s", "rows/s", "rows/CPU s", "MiB"))
    costs = []
    for name in dict.fromkeys(wanted or known):
        try:
            cost = query_cost(name, known[name], events)
        except RunFailedError as error:
            say(f"query {name} failed:\n{error}")
            return ExitCode.FAILED
        costs.append(cost)
        print(_shown(cost), flush=True)
    if json_file is not None:
        json_file.write_text(json.dumps(_report(events, costs), indent=2) + "\n")
    return ExitCode.DONE


def query_cost(name: str, path: Path, events: int) -> QueryCost:
    """Run one query, first without events. RunFailedError if it does not end well."""
    with tempfile.TemporaryDirectory(prefix="arkflow-nexmark-") as folder:
        start = _run(on_events(path, _made(Path(folder) / "start"), 0))
        whole = _run(on_events(path, _made(Path(folder) / "whole"), events))
    seconds = max(0.0, whole.seconds - start.seconds)
    cpu_seconds = max(0.0, whole.cpu_seconds - start.cpu_seconds)
    rows = sum(rows_of(kind, events) for kind in kinds_of(path))
    return QueryCost(
        name,
        rows,
        seconds,
        cpu_seconds,
        _rate(rows, seconds),
        _rate(rows, cpu_seconds),
        whole.memory_bytes,
    )


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _rate(rows: int, seconds: float) -> float | None:
    return rows / seconds if seconds >= _MEASURABLE_S else None


def _run(file: Path) -> RunCost:
    """Run a file in a process of its own."""
    command = [sys.executable, "-m", "arkflow_ray.cli.main", "run", "--inline", str(file)]
    with (file.parent / "said").open("w+b") as said:
        began = perf_counter()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        try:
            _, status, used = os.wait4(child.pid, 0)
        except BaseException:
            child.kill()
            child.wait()
            raise
        child.returncode = os.waitstatus_to_exitcode(status)
        seconds = perf_counter() - began
        if child.returncode != ExitCode.DONE:
            said.seek(0)
            lines = said.read().decode(errors="replace").splitlines()
            raise RunFailedError("\n".join(lines[-_TAIL_LINES:]))
    return RunCost(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


_LINE: Final = "{:<6}{:>12}{:>10}{:>9}{:>12}{:>12}{:>7}"


def _shown(cost: QueryCost) -> str:
    return _LINE.format(
        cost.query,
        f"{cost.rows:,}",
        f"{cost.seconds:.1f}",
        f"{cost.cpu_seconds:.1f}",
        "-" if cost.rows_per_second is None else f"{cost.rows_per_second:,.0f}",
        "-" if cost.rows_per_cpu_second is None else f"{cost.rows_per_cpu_second:,.0f}",
        f"{cost.memory_bytes / _MIB:,.0f}",
    )


def _report(events: int, costs: list[QueryCost]) -> Mapping[str, Any]:
    return {
        "benchmark": "nexmark",
        "events": events,
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "queries": [asdict(cost) for cost in costs],
    }


__all__ = ["QueryCost", "RunCost", "bench_nexmark", "query_cost"]
