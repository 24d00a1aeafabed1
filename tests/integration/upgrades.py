"""Versions of one job for tests of savepoints and upgrades; what they write."""

import itertools
from pathlib import Path
from typing import Final

from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.snapshot import RestoreChoice, RestoreKind
from tests.integration.numbered_rows import write_input
from tests.integration.published_rows import rows_in
from tests.integration.stored_jobs import graph_of

ROWS, KEYS = 3_000, 50

HEAD: Final = """
jobs:
  - id: {job}
    version: {version}
    checkpoint: {{object_store_uri: "file://{folder}/store", interval_ms: 50, retention: 1000}}
    {recovery}
    sources:
      - operator_id: rows
        input_type: file
        config:
          input_type: {{type: json, path: {folder}/in.jsonl}}
          batch_rows: 20
          rows_per_second: {rate}
        time: {{mode: processing_time}}
    sinks:
      - {{operator_id: kept, output_type: file, config: {{path: {folder}/{out}, format: json}}}}
    operators:
      - {{id: rows, kind: source}}
      - {{id: kept, kind: sink}}
"""

COUNT: Final = """
      - id: {name}
        kind: map
        stateful: true
        key_field: k
        config: {{type: python, function: same, script: "def same(batch): return batch",
                 state_output_field: {name}}}
"""

ALIKE: Final = """
      - {id: alike, kind: map, config: {type: sql, query: "SELECT *, n * 2 AS twice FROM flow"}}
"""


class Versions:
    """A folder with the input and the stores; plans of jobs that count in it.

    `counts` are stateful operators, in the order of the flow; each adds a column of its name.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write_input(folder, ROWS, KEYS)

    def text(
        self,
        *counts: str,
        job: str = "shop",
        version: int = 1,
        alike: bool = False,
        out: str = "out",
        recovery: str = "",
        rate: int = 1_500,
    ) -> str:
        """A version as YAML. `alike`: with one more operator, which keeps nothing."""
        recovery = f"recovery: {recovery}" if recovery else ""
        text = HEAD.format(
            job=job, version=version, folder=self.folder, out=out, recovery=recovery, rate=rate
        )
        text = text.rstrip("\n") + "".join(COUNT.format(name=name).rstrip("\n") for name in counts)
        flow = ["rows", *counts, "kept"]
        if alike:
            text += ALIKE.rstrip("\n")
            flow.insert(-1, "alike")
        edges = [
            f"      - {{id: {a}-{b}, from: {a}, to: {b}}}" for a, b in itertools.pairwise(flow)
        ]
        return "\n".join([text, "    edges:", *edges, ""])

    def plan(self, *counts: str, **named: object) -> ExecutionGraph:
        """The plan of a version."""
        path = self.folder / "version.yaml"
        path.write_text(self.text(*counts, **named))  # type: ignore[arg-type]
        return graph_of(path)

    def written(self, out: str = "out") -> list[dict[str, int]]:
        """All published rows, part by part."""
        return rows_in(self.folder / out)

    def assert_once(self, out: str = "out") -> None:
        """Every row once, in order, with its place among the rows of its key."""
        rows = self.written(out)
        assert [row["n"] for row in rows] == list(range(ROWS))
        assert [row["places"] for row in rows] == [n // KEYS + 1 for n in range(ROWS)]

    def assert_right(self, out: str = "out") -> list[int]:
        """Every row at least once, and each with its place; how often each came."""
        rows = self.written(out)
        times = [0] * ROWS
        for row in rows:
            times[row["n"]] += 1
            assert row["places"] == row["n"] // KEYS + 1, row
        assert min(times) >= 1
        return times


def from_savepoint(
    place: str, *, accept_duplicates: bool = False, allow_dropped_state: bool = False
) -> RestoreChoice:
    """To begin at a savepoint: a name or a URL."""
    return RestoreChoice(
        RestoreKind.SAVEPOINT,
        savepoint=place,
        accept_duplicates=accept_duplicates,
        allow_dropped_state=allow_dropped_state,
    )


__all__ = ["KEYS", "ROWS", "Versions", "from_savepoint"]
