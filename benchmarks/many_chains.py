"""What a job of very many chains costs its coordinator: CPU of a round, sizes of what is sent.

    .venv/bin/python benchmarks/many_chains.py [--chains 250 500 1000] [--rounds 3] [--profile]

Prints a table and writes benchmarks/results/many_chains.json. A round is its opening, an answer and
a heartbeat before and after it of every chain, and its end; nothing is sent, so it is the machine's
own work. `status` is what a driver pays once each time that somebody asks. `record` is the entry of
the log for chains that have `--inputs` channels each and a keyed state of four runs. `--profile`
prints where a round of the largest job spends its time. Nothing is asserted.
"""

import argparse
import cProfile
import datetime
import json
import os
import pickle
import platform
import pstats
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from arkflow_kernel.ids import CheckpointId, WallMs
from arkflow_kernel.job_plan_record import plan_of
from arkflow_kernel.job_record import CheckpointEntry, decode, encode
from arkflow_kernel.snapshot import CheckpointRecord
from arkflow_kernel.testing.many_chains import ManyChains, many_chains, restored

RESULTS = Path(__file__).parent / "results" / "many_chains.json"
GOAL_S = 1.0


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of chains: CPU seconds, bytes."""

    chains: int
    deploy_s: float
    restore_s: float
    heartbeats_s: float
    round_s: float
    status_s: float
    record_bytes: int
    encode_s: float
    decode_s: float
    report_bytes: int
    answer_bytes: int
    unpickle_s: float


def cpu_s(work: Callable[[], object]) -> float:
    """CPU seconds of this process for a piece of work."""
    began_s = time.process_time()
    work()
    return time.process_time() - began_s


def entry(job: ManyChains, record: CheckpointRecord) -> CheckpointEntry:
    """The log's entry of a record."""
    return CheckpointEntry(
        job.graph.job, job.graph.version, "nonce", WallMs(0), plan_of(job.graph), record
    )


def measure(count: int, rounds: int, inputs: int) -> Figure:
    """All figures of one number of chains; medians where something is repeated."""
    job = ManyChains(many_chains(count), inputs=inputs)
    deploy_s = cpu_s(job.deploy)
    beats_s, round_s = [], []
    for number in range(1, rounds + 1):
        reports = list(job.reports())
        beats_s.append(cpu_s(partial(job.heartbeats, reports)))
        round_s.append(cpu_s(partial(job.play, job.script(number))))
    status_s = [cpu_s(job.machine.status) for _ in range(rounds)]
    plain = next(job.reports())
    answers = list(job.reports(CheckpointId(rounds + 1)))
    sent = [pickle.dumps(each) for each in answers]
    unpickle_s = cpu_s(lambda: [pickle.loads(each) for each in sent])
    record = job.play(job.script(rounds + 1))
    listed = entry(job, record)
    data = encode(listed)
    again = ManyChains(many_chains(count), inputs=inputs)
    return Figure(
        count,
        deploy_s,
        cpu_s(lambda: again.deploy(restored(record))),
        statistics.median(beats_s),
        statistics.median(round_s),
        statistics.median(status_s),
        len(data),
        cpu_s(lambda: encode(listed)),
        cpu_s(lambda: decode(data)),
        len(pickle.dumps(plain)),
        len(sent[0]),
        unpickle_s,
    )


def profile(count: int) -> None:
    """Print where a round spends its time."""
    job = ManyChains(many_chains(count))
    job.deploy()
    profiler = cProfile.Profile()
    profiler.runcall(job.play, job.script(1))
    pstats.Stats(profiler).sort_stats("tottime").print_stats(20)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chains", type=int, nargs="+", default=[250, 500, 1000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--inputs", type=int, default=1)
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    if arguments.profile:
        profile(max(arguments.chains))
        return
    figures = [measure(n, arguments.rounds, arguments.inputs) for n in arguments.chains]
    report(figures, arguments.inputs)


def report(figures: list[Figure], inputs: int) -> None:
    """Print the table and write the JSON."""
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    python = platform.python_version()
    print(f"{os.cpu_count()} cores, Python {python}, {date}; CPU ms; goal: a round in {GOAL_S} s")
    print(
        f"{'chains':>6} {'deploy':>7} {'restore':>8} {'heartbeats':>10} {'round':>7} {'status':>7} "
        f"{'record':>10} {'encode':>7} {'decode':>7} {'report':>7} {'answer':>7} {'unpickle':>8}"
    )
    for each in figures:
        print(
            f"{each.chains:6} {each.deploy_s * 1e3:7.0f} {each.restore_s * 1e3:8.0f} "
            f"{each.heartbeats_s * 1e3:10.0f} {each.round_s * 1e3:7.0f} {each.status_s * 1e3:7.2f} "
            f"{each.record_bytes:8} B {each.encode_s * 1e3:7.0f} {each.decode_s * 1e3:7.0f} "
            f"{each.report_bytes:5} B {each.answer_bytes:5} B {each.unpickle_s * 1e3:8.0f}"
        )
    RESULTS.parent.mkdir(exist_ok=True)
    told = {"date": date, "inputs": inputs, "figures": [asdict(each) for each in figures]}
    RESULTS.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
