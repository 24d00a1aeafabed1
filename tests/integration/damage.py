"""A job that died with checkpoints, and every way to damage one of its files.

The folder is prepared once and put back by hard links; only the file that is damaged is written.
"""

import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from arkflow_kernel.chain_work import ChainWork
from arkflow_kernel.errors import ArkflowError
from arkflow_kernel.ids import CheckpointId, WallMs
from arkflow_kernel.job_claims import restored_chains
from arkflow_kernel.job_log import JobLog
from arkflow_kernel.job_record import CheckpointEntry, decode, listed_objects
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.snapshot import NEWEST, Claim
from arkflow_ray.checkpoint.open import open_files, open_objects
from arkflow_ray.runtime.clock import SystemClock
from arkflow_ray.runtime.components import RegistryComponents
from tests.integration.numbered_rows import Placed, write_input, written
from tests.integration.stored_jobs import NoLines, graph_of, run, when_recorded

EDGE, INSIDE = 64, 200
"""Bytes at each end, and elsewhere, that are flipped."""

ROWS, KEYS = 3_000, 50
DYING: Final = {"rate": 500, "batch_rows": 20, "interval_ms": 50}
GOING_ON: Final = {"rate": 1_000_000, "batch_rows": 500, "interval_ms": 500}
"""Pace of the job that dies, and of those that go on."""

NEWEST_CHECKPOINT = 4

JOB: Final = """
jobs:
  - id: numbered
    version: 1
    operators:
      - {{id: rows, kind: source}}
      - {{id: placed, kind: map, parallelism: 2, stateful: true, key_field: k,
         config: {{type: python, function: same, script: "def same(batch): return batch",
                  state_output_field: place}}}}
      - {{id: kept, kind: sink}}
    edges:
      - {{id: by-key, from: rows, to: placed, partitioned: true}}
      - {{id: to-file, from: placed, to: kept}}
    checkpoint: {{object_store_uri: "file://{folder}/live/store", interval_ms: {interval_ms}}}
    restart: {{strategy: fixed, initial_ms: 1}}
    sources:
      - operator_id: rows
        input_type: file
        config:
          input_type: {{type: json, path: {folder}/in.jsonl}}
          batch_rows: {batch_rows}
          rows_per_second: {rate}
        time: {{mode: processing_time}}
    sinks:
      - operator_id: kept
        output_type: file
        config: {{path: {folder}/live/out, format: json, exactly_once: {exactly_once}}}
"""

EXPECTED = {(n, n % KEYS, n // KEYS + 1) for n in range(ROWS)}


@dataclass(frozen=True)
class Damage:
    """A file of the job's folder with other bytes; None: it is gone."""

    path: str
    what: str
    data: bytes | None
    place: int = -1


class Scene:
    """A job that died when its newest record was in the log and not yet published.

    `live` is the folder that its plan names: put back as it was before each start, by hard links.
    """

    def __init__(self, folder: Path, *, exactly_once: bool) -> None:
        self.exactly_once = exactly_once
        self.live, self._saved = folder / "live", folder / "saved"
        write_input(folder, ROWS, KEYS)
        slow, self.graph = (
            planned(folder, pace, exactly_once=exactly_once) for pace in (DYING, GOING_ON)
        )
        assert run(slow, dies=when_recorded(NEWEST_CHECKPOINT)).outcome is None
        self.live.rename(self._saved)
        self.bytes = {
            str(path.relative_to(self._saved)): path.read_bytes()
            for path in self._saved.rglob("*")
            if path.is_file()
        }
        log = sorted(name for name in self.bytes if "/log/" in name)
        self.claim, self.record = log[0], log[-1]
        entry = decode(self.bytes[self.record])
        assert isinstance(entry, CheckpointEntry)
        assert entry.record.checkpoint == NEWEST_CHECKPOINT
        self._owners = {
            f"store/numbered/objects/{name}": chain.chain
            for chain in entry.record.chains
            for name in listed_objects((chain,))
        }
        self.objects = sorted(self._owners)
        self._runs = [
            (f"store/numbered/objects/{run.object}", run.offset, run.offset + run.length)
            for chain in entry.record.chains
            for state in chain.states
            for run in state.runs
        ]
        self._clock = SystemClock()
        self._components = RegistryComponents({}, NoLines(), self.graph.job)
        self.root = f"file://{self.live}/store"
        self._files = open_files(self.root, self.graph.job)
        self._store = open_objects(self.root, self.graph.job)
        self._claims = 0
        tokens = [name for name in self.objects if name.endswith(".sink")]
        assert bool(tokens) is exactly_once
        assert len(self.objects) - len(tokens) >= 2

    def put_back(self, damage: Damage) -> None:
        """The folder as it was, but for one file."""
        shutil.rmtree(self.live, ignore_errors=True)
        shutil.copytree(self._saved, self.live, copy_function=os.link)
        self.spoil(damage)

    def put_log_back(self, damage: Damage) -> None:
        """The same, after nothing but claims: they write into the log alone."""
        log = self.live / "store/numbered/log"
        shutil.rmtree(log)
        shutil.copytree(self._saved / "store/numbered/log", log, copy_function=os.link)
        self.spoil(damage)

    def spoil(self, damage: Damage) -> None:
        """Damage a file of the live folder; the saved one has the same inode and stays."""
        path = self.live / damage.path
        path.unlink()
        if damage.data is not None:
            path.write_bytes(damage.data)

    def heal(self, path: str) -> None:
        """Put one file back."""
        (self.live / path).unlink(missing_ok=True)
        os.link(self._saved / path, self.live / path)

    def assert_saved_is_whole(self) -> None:
        """Nothing was written in place: hard links would show it."""
        for name, data in self.bytes.items():
            assert (self._saved / name).read_bytes() == data, name

    def start(self, unusable: dict[CheckpointId, str] | None = None) -> Claim:
        """What the log decides for a new process."""
        self._claims += 1
        log = JobLog(
            self.graph,
            self._files,
            nonce=f"nonce-{self._claims}",
            coordinator="test",
            wall_ms=lambda: WallMs(0),
        )
        return log.claim(NEWEST, unusable or {})

    def counts(self, damage: Damage) -> bool:
        """Whether the byte is one that a chain reads: the gaps between runs are none."""
        if damage.path.endswith(".sink"):
            return True
        return any(damage.path == path and a <= damage.place < b for path, a, b in self._runs)

    def open_chain(self, claim: Claim, path: str) -> ArkflowError | None:
        """Restore the chain that lists an object, and publish what it lists, as an attempt does."""
        assert claim.restored is not None
        plan = self.graph.chain(self._owners[path])
        work = ChainWork(
            plan,
            self._components,
            self._clock,
            generation=claim.generation,
            objects=self._store,
        )
        try:
            work.open(restored_chains(claim.restored)[plan.chain])
        except ArkflowError as error:
            return error
        assert work.close() == []
        return None

    def close(self) -> None:
        """Release the store."""
        self._files.close()
        self._store.close()

    def written(self) -> list[Placed]:
        """All published rows, part by part."""
        return written(self.live)


def planned(folder: Path, pace: dict[str, int], *, exactly_once: bool) -> ExecutionGraph:
    """The plan of the job at a pace."""
    text = JOB.format(folder=folder, **pace, exactly_once=str(exactly_once).lower())
    (folder / "job.yaml").write_text(text)
    return graph_of(folder / "job.yaml")


def flips(path: str, data: bytes) -> Iterator[Damage]:
    """Each byte of both ends, and random ones in between, changed by random bits."""
    dice = random.Random(path)
    inner = range(EDGE, len(data) - EDGE)
    places = {*range(EDGE), *range(len(data) - EDGE, len(data))}
    places.update(dice.sample(inner, min(INSIDE, len(inner))))
    for place in sorted(places):
        changed = bytearray(data)
        changed[place] ^= dice.randrange(1, 256)
        yield Damage(path, f"byte {place} of {len(data)} is another", bytes(changed), place)


def cuts(path: str, data: bytes) -> Iterator[Damage]:
    """Files of other lengths, and none."""
    for size in (0, 1, EDGE, len(data) // 2, len(data) - EDGE, len(data) - 1):
        yield Damage(path, f"{size} of {len(data)} bytes", data[:size])
    yield Damage(path, "one byte more", data + b"\n")
    yield Damage(path, "gone", None)


__all__ = [
    "EXPECTED",
    "GOING_ON",
    "NEWEST_CHECKPOINT",
    "ROWS",
    "Damage",
    "Scene",
    "cuts",
    "flips",
    "planned",
]
