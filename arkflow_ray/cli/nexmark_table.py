"""`bench nexmark` on Ray: a table of what each query costs, beside Flink if asked, and as JSON."""

import datetime
import json
import os
import platform
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Final

from arkflow_ray.bench.flink import FLINK, NoFlinkError, check_flink
from arkflow_ray.bench.nexmark_flink import FLINK_QUERIES
from arkflow_ray.bench.nexmark_jobs import queries
from arkflow_ray.bench.nexmark_run import CHECKPOINT_EVERY, Asked, Figures, figures_of
from arkflow_ray.bench.nexmark_tables import INTER_EVENT_US, OUT_OF_ORDERNESS_MS, WATERMARK_MS
from arkflow_ray.bench.steady_part import RunFailedError
from arkflow_ray.cli.exits import ExitCode, say

MEASURED: Final = tuple(FLINK_QUERIES)
"""The queries that are measured over files; the others run `--inline`."""

_MIB: Final = 1_048_576
_HEAD: Final = (
    "query", "rows", "rows/CPU s", "rows/s", "p50 ms", "p99 ms", "ckpt MiB", "ckpt ms", "MiB",
)  # fmt: skip
_PEER_HEAD: Final = ("Flink/CPU s", "ratio", "MiB")
_LINE: Final = "{:<6}{:>12}{:>12}{:>12}{:>9}{:>9}{:>10}{:>9}{:>7}"
_PEER_LINE: Final = "{:>13}{:>7}{:>7}"


def bench_on_ray(
    wanted: list[str],
    asked_events: int,
    *,
    peer: bool,
    flink_python: Path | None,
    folder: Path | None,
    rate: int,
    seconds: int,
    json_file: Path | None,
) -> int:
    """Measure the queries (all that have a peer if none is named), print a table, write figures.

    A query that fails is told, and the others are measured.
    """
    names = list(dict.fromkeys(wanted or MEASURED))
    unknown = [name for name in names if name not in MEASURED]
    if unknown:
        say(
            f"{', '.join(unknown)} cannot be measured on Ray; these can: {', '.join(MEASURED)}. "
            "All queries run with --inline"
        )
        return ExitCode.USAGE
    try:
        flink = check_flink(flink_python) if peer else None
    except NoFlinkError as error:
        say(f"no Flink to compare with: {error}")
        return ExitCode.USAGE
    with tempfile.TemporaryDirectory(prefix="arkflow-nexmark-") as own:
        place = (folder or Path(own)).resolve()
        place.mkdir(parents=True, exist_ok=True)
        asked = Asked(asked_events, place, flink, rate, seconds)
        return _table(names, asked, json_file)


def _table(names: Iterable[str], asked: Asked, json_file: Path | None) -> int:
    known = queries()
    head = _LINE.format(*_HEAD)
    print(head if asked.flink is None else head + _PEER_LINE.format(*_PEER_HEAD), flush=True)
    found: list[Figures] = []
    failed = False
    for name in names:
        try:
            found.append(figures_of(name, known[name], asked))
        except RunFailedError as error:
            say(f"query {name} failed:\n{error}")
            failed = True
            continue
        print(_shown(found[-1]), flush=True)
        if json_file is not None:  # what is measured stays, whatever comes after it
            json_file.write_text(json.dumps(_report(asked, found), indent=2) + "\n")
    return ExitCode.FAILED if failed else ExitCode.DONE


def _shown(cost: Figures) -> str:
    line = _LINE.format(
        cost.query,
        f"{cost.rows:,}",
        f"{cost.rows_per_cpu_second:,.0f}",
        f"{cost.rows_per_second:,.0f}",
        _number(cost.latency_p50_ms),
        _number(cost.latency_p99_ms),
        "-" if cost.checkpoint_bytes is None else f"{cost.checkpoint_bytes / _MIB:.2f}",
        _number(cost.checkpoint_ms),
        f"{cost.memory_bytes / _MIB:,.0f}",
    )
    if cost.ratio is None:
        return line
    return line + _PEER_LINE.format(
        _number(cost.flink_rows_per_cpu_second),
        f"{cost.ratio:.2f}",
        f"{(cost.flink_memory_bytes or 0) / _MIB:,.0f}",
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _report(asked: Asked, found: list[Figures]) -> dict[str, object]:
    return {
        "benchmark": "nexmark",
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "events": asked.events,
        "inter_event_us": INTER_EVENT_US,
        "out_of_orderness_ms": OUT_OF_ORDERNESS_MS,
        "watermark_ms": WATERMARK_MS,
        "checkpoint_every": CHECKPOINT_EVERY,
        "latency_events_per_second": asked.rate,
        "latency_seconds": asked.seconds,
        "peer": None if asked.flink is None else FLINK,
        "queries": [asdict(figures) for figures in found],
    }


__all__ = ["MEASURED", "bench_on_ray"]
