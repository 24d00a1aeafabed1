"""A job under fire: its file, its input, what it must have written, and who shoots at it."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

import pytest

from arkflow_ray.runtime.os_process import OsProcess, started_ticks
from tests.integration.published_rows import rows_in
from tests.servers.s3_server import s3_proxy, s3_root, s3_server

SECONDS: Final = float(os.environ.get("ARKFLOW_CHAOS_SECONDS", "120"))
"""How long each job is shot at."""

SEED: Final = int(os.environ.get("ARKFLOW_CHAOS_SEED", "1"))
RECOVERY_S: Final = 240.0
"""What a job may take for the rest of its rows once it is left in peace, on a slow machine."""

PAUSE_S: Final = (2.0, 10.0)
ROWS_PER_SECOND: Final = 1_000
WORKED_SHARE: Final = 0.3
"""Part of the time under fire that the input would last for if nobody shot."""

KEYS: Final = 101
ROWS: Final = int(SECONDS * ROWS_PER_SECOND * WORKED_SHARE)

JOB: Final = """
jobs:
  - id: shot-at
    version: 1
    operators:
      - {{id: rows, kind: source}}
      - {{id: numbered, kind: map, parallelism: 2, stateful: true, key_field: k,
         config: {{type: sql, query: "SELECT n, k, place FROM flow", state_output_field: place}}}}
      - {{id: merged, kind: map, config: {{type: sql, query: "SELECT k, n, place FROM flow"}}}}
      - {{id: kept, kind: sink}}
      - {{id: seen, kind: sink, chain: false}}
    edges:
      - {{id: by-key, from: rows, to: numbered, partitioned: true}}
      - {{id: together, from: numbered, to: merged}}
      - {{id: to-file, from: merged, to: kept}}
      - {{id: aside, from: rows, to: seen}}
    checkpoint: {{object_store_uri: "{root}", interval_ms: {interval_ms}}}
    restart: {{strategy: fixed, initial_ms: 10}}
    sources:
      - operator_id: rows
        input_type: file
        config:
          input_type: {{type: json, path: {folder}/in.jsonl}}
          batch_rows: 50
          rows_per_second: {rate}
        time: {{mode: processing_time}}
    sinks:
      - {{operator_id: kept, output_type: file, config: {{path: {folder}/kept, format: json}}}}
      - operator_id: seen
        output_type: file
        config: {{path: {folder}/seen, format: json, exactly_once: false}}
"""

__all__ = ["s3_proxy", "s3_root", "s3_server"]


class Target:
    """The job, in a process of its own; its newest word is `now`, its last one `end`."""

    def __init__(self, folder: Path, root: str, interval_ms: int) -> None:
        self.folder = folder
        rows = (json.dumps({"n": n, "k": key(n)}) + "\n" for n in range(ROWS))
        (folder / "in.jsonl").write_text("".join(rows))
        text = JOB.format(folder=folder, root=root, interval_ms=interval_ms, rate=ROWS_PER_SECOND)
        (folder / "job.yaml").write_text(text)
        self.now: dict[str, Any] = {}
        self.end: dict[str, Any] | None = None
        self.kills: list[str] = []
        self.stray: list[str] = []
        self.faults = 0
        self.over = threading.Event()
        self._errors = (folder / "stderr.log").open("w")
        program = Path(__file__).with_name("watched_run.py")
        self._process = subprocess.Popen(
            [sys.executable, str(program), "job.yaml"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,))
        self._reader.start()

    def shoot(self, seconds: float, aim: random.Random) -> None:
        """Kill one or two of its processes, pause, and so on, until the time is over or it is."""
        left_s = seconds
        while left_s > 0:
            pause_s = aim.uniform(*PAUSE_S)
            left_s -= pause_s
            if self.over.wait(pause_s):
                return
            there = self._alive()
            for name in aim.sample(sorted(there), min(len(there), aim.choice((1, 1, 1, 2)))):
                with suppress(ProcessLookupError):
                    os.kill(there[name], signal.SIGKILL)
                    self.kills.append(name)

    def story(self) -> str:
        """What a failed test has to say."""
        self._errors.flush()
        said = (self.folder / "stderr.log").read_text()[-4_000:]
        told = f"seed {SEED}, kills {self.kills}\nnow {self.now}\nend {self.end}"
        return f"{told}\n{self.stray[-20:]}\n{said}"

    def close(self) -> None:
        """Nothing of it is left, its Ray included."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # it closes its job and its Ray
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()

    def _read(self, told: IO[str]) -> None:
        for line in told:
            if not line.startswith("{"):
                self.stray.append(line)  # a word of Ray's
                continue
            values = json.loads(line)
            if "outcome" in values:
                self.end = values
            else:
                self.now = values
        self.over.set()

    def _alive(self) -> dict[str, int]:
        """Its processes that were told of and are there: after a failure, fewer for a while."""
        told = {"coordinator": self.now.get("coordinator"), **self.now.get("chains", {})}
        there = {name: pid for name, pid in told.items() if pid and is_ray_worker(pid)}
        return there if len(there) > 1 else {}  # or only coordinators would ever be hit


def is_ray_worker(pid: int) -> bool:
    """Whether it runs, and its number was not given to another program meanwhile."""
    if not OsProcess(pid, started_ticks(pid)).is_alive():
        return False
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::")
    return False


def key(n: int) -> int:
    """Some keys are frequent, others rare."""
    return min(n * 7919 % KEYS, n % 13)


def expected() -> list[tuple[int, int, int]]:
    """What must be published: number, key, place among the rows of the key."""
    places: Counter[int] = Counter()
    rows = []
    for n in range(ROWS):
        places[key(n)] += 1
        rows.append((n, key(n), places[key(n)]))
    return rows


def assert_all_is_right(target: Target) -> None:
    """Exactly the expected rows, each key's in order; and aside, each row at least once."""
    kept = [(row["n"], row["k"], row["place"]) for row in rows_in(target.folder / "kept")]
    wrong = Counter(kept)
    wrong.subtract(expected())
    assert not {row: times for row, times in wrong.items() if times}, target.story()
    reached: Counter[int] = Counter()
    for n, k, place in kept:
        reached[k] += 1
        assert place == reached[k], f"row {n} of key {k} came out of order\n{target.story()}"
    seen = {row["n"] for row in rows_in(target.folder / "seen")}
    assert seen == set(range(ROWS)), target.story()


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Target]]:
    """Start the job with its checkpoints at a root."""
    started: list[Target] = []

    def start(root: str, interval_ms: int) -> Target:
        started.append(Target(tmp_path, root, interval_ms))
        return started[-1]

    yield start
    for target in started:
        target.close()
