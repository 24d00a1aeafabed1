"""How long a job takes from its submission to RUNNING, by its number of chains, on a warm Ray.

    .venv/bin/python benchmarks/deployment.py [--runs 3] [--chains 1 4 8]

Prints a table and writes benchmarks/results/deployment.json. `coordinator` is the part until the
job's coordinator answers, `chains` the rest: its processes start side by side, build, open and
connect. `bare actors` is the same number of empty Ray actors, created at once, in the same run:
what Ray and the start of Python cost. Nothing is asserted.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ray

from arkflow_kernel.protocol import JobState
from arkflow_ray.config.project import check_file
from arkflow_ray.runtime import ray_session
from arkflow_ray.runtime.launch import RunSettings, launch
from arkflow_ray.runtime.lines import LineBuffer
from arkflow_ray.runtime.ray_session import open_session

RESULTS = Path(__file__).parent / "results" / "deployment.json"
LOOK_S = 0.01


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of chains; medians in seconds."""

    chains: int
    running_s: float
    coordinator_s: float
    chains_s: float
    bare_actors_s: float


class Bare:
    """An actor that does nothing."""

    async def handshake(self) -> int:
        """Its process is up."""
        return os.getpid()


def job_text(chains: int) -> str:
    """An endless job of so many chains."""
    processors = "[]"
    if chains > 2:
        one = '{type: sql, query: "SELECT n FROM flow"}'
        processors = f"[{', '.join([one] * (chains - 2))}]"
    chain = f"chain: {'true' if chains == 1 else 'false'}"
    return f"""
streams:
  - id: endless
    input: {{type: generate, context: '{{"n": 1}}', interval: 10ms, codec: json}}
    pipeline: {{{chain}, processors: {processors}}}
    output: {{type: drop}}
"""


def deployed(path: Path) -> tuple[float, float]:
    """Seconds until the coordinator answered, and until the job ran."""
    project = check_file(path)
    assert project.ok, project.issues
    began_s = time.perf_counter()
    jobs = launch(project.jobs, RunSettings(), LineBuffer(), lambda _: None)
    try:
        answered_s = time.perf_counter() - began_s
        (job,) = jobs.jobs.values()
        while job.status().state is not JobState.RUNNING:
            assert not jobs.wait(LOOK_S), job.outcome
        changes = job.status().transitions
        deploying_s = (changes[-1].at.now_ms - changes[0].at.now_ms) / 1000
    finally:
        jobs.close()
    return answered_s, answered_s + deploying_s


def bare_actors(count: int) -> float:
    """Seconds until so many empty actors have answered."""
    remote: Any = ray.remote(num_cpus=0.01)(Bare)
    began_s = time.perf_counter()
    actors = [remote.remote() for _ in range(count)]
    ray.get([actor.handshake.remote() for actor in actors])
    taken_s = time.perf_counter() - began_s
    for actor in actors:
        ray.kill(actor)
    return taken_s


def measure(chains: int, runs: int, folder: Path) -> Figure:
    """Medians after one run that warms up."""
    path = folder / f"{chains}.yaml"
    path.write_text(job_text(chains))
    found: list[tuple[float, float, float]] = []
    for number in range(runs + 1):
        times = (*deployed(path), bare_actors(chains))
        if number > 0:
            found.append(times)
    answered_s, running_s, bare_s = (
        statistics.median(column) for column in zip(*found, strict=True)
    )
    return Figure(chains, running_s, answered_s, running_s - answered_s, bare_s)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--chains", type=int, nargs="+", default=[1, 4, 8])
    arguments = parser.parse_args()
    session = open_session(None, print)
    ray_session.CPUS_PER_CHAIN_CLUSTER = ray_session.CPUS_PER_CHAIN_LOCAL  # type: ignore[misc]
    try:
        with tempfile.TemporaryDirectory() as folder:
            figures = [measure(n, arguments.runs, Path(folder)) for n in arguments.chains]
    finally:
        session.close()
    report(figures, arguments.runs)


def report(figures: list[Figure], runs: int) -> None:
    """Print the table and write the JSON."""
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    python = platform.python_version()
    print(f"median of {runs} runs, {os.cpu_count()} cores, Python {python}, {date}")
    print(f"{'chains':>6} {'running':>9} {'coordinator':>12} {'chains':>9} {'bare actors':>12}")
    for figure in figures:
        print(
            f"{figure.chains:6} {figure.running_s:7.2f} s {figure.coordinator_s:10.2f} s "
            f"{figure.chains_s:7.2f} s {figure.bare_actors_s:10.2f} s"
        )
    RESULTS.parent.mkdir(exist_ok=True)
    told = {"date": date, "runs": runs, "figures": [asdict(figure) for figure in figures]}
    RESULTS.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
