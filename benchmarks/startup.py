"""How long the first answers take: medians of wall and CPU time of fresh processes.

    .venv/bin/python benchmarks/startup.py [--runs 9]

Prints a table beside the goals and writes benchmarks/results/startup.json. Bare Python stands in
the table because a busy or slow machine shows there first. Nothing is asserted: what is imported
is (tests/unit/cli/test_cli_start_up.py).
"""

import argparse
import datetime
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

PLAIN = """\
streams:
  - id: plain
    input: {type: memory, messages: ['{"a": 1}'], codec: json}
    pipeline: {processors: []}
    output: {type: stdout}
"""
SQL = PLAIN.replace(
    "processors: []", 'processors: [{type: sql, query: "SELECT a FROM flow WHERE a > 1"}]'
)
RESULTS = Path(__file__).parent / "results" / "startup.json"


@dataclass(frozen=True, slots=True)
class Figure:
    """One command; times in seconds."""

    name: str
    goal_s: float | None
    wall_s: float
    cpu_s: float


def measure(command: list[str], runs: int) -> tuple[float, float]:
    """Medians of wall and CPU time, after one run that warms the file cache."""
    walls, cpus = [], []
    for number in range(runs + 1):
        before, begin_s = _children_s(), time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        if number > 0:
            walls.append(time.perf_counter() - begin_s)
            cpus.append(_children_s() - before)
    return statistics.median(walls), statistics.median(cpus)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    runs = parser.parse_args().runs
    program = [sys.executable, "-m", "arkflow_ray.cli.main"]
    with tempfile.TemporaryDirectory() as folder:
        plain, sql = Path(folder) / "plain.yaml", Path(folder) / "sql.yaml"
        plain.write_text(PLAIN)
        sql.write_text(SQL)
        commands: list[tuple[str, float | None, list[str]]] = [
            ("python -c pass", None, [sys.executable, "-c", "pass"]),
            ("import arkflow_ray", None, [sys.executable, "-c", "import arkflow_ray"]),
            ("--help", 0.3, [*program, "--help"]),
            ("validate, no sql", 0.8, [*program, "validate", str(plain)]),
            ("validate, sql", 1.8, [*program, "validate", str(sql)]),
        ]
        figures = [Figure(n, goal, *measure(command, runs)) for n, goal, command in commands]
    report(figures, runs)


def report(figures: list[Figure], runs: int) -> None:
    """Print the table and write the JSON."""
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    print(
        f"median of {runs} runs, {os.cpu_count()} cores, Python {platform.python_version()}, {date}"
    )
    print(f"{'':20} {'goal':>8} {'wall':>8} {'CPU':>8}")
    for figure in figures:
        goal = "" if figure.goal_s is None else f"{figure.goal_s:.2f} s"
        print(f"{figure.name:20} {goal:>8} {figure.wall_s:6.2f} s {figure.cpu_s:6.2f} s")
    RESULTS.parent.mkdir(exist_ok=True)
    told = {"date": date, "runs": runs, "figures": [asdict(figure) for figure in figures]}
    RESULTS.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
