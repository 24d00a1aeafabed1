"""A temporal join on a real Ray, one of whose processes is killed: each order has the rate that was
valid when it was placed (J9, B0, X1).
"""

import json
import os
import pathlib
import random
import signal
from typing import Any, Final

import pytest
import yaml

from arkflow_kernel.protocol import OutcomeKind
from tests.integration.running_jobs import Start

pytestmark = [pytest.mark.usefixtures("shared_ray"), pytest.mark.timeout(300)]

SECONDS: Final = 6
BOUND_MS: Final = 40
CURRENCIES: Final = ("EUR", "NOK", "SEK", "CHF", "GBP")
END_S: Final = 200.0

Rows = list[dict[str, Any]]


def timed(dice: random.Random, count: int, step_ms: int, **columns: Any) -> Rows:
    """Rows out of order within the bound."""
    made = [
        {"at": n * step_ms, "currency": dice.choice(CURRENCIES)}
        | {name: value(n) for name, value in columns.items()}
        for n in range(count)
    ]
    return sorted(made, key=lambda row: row["at"] + dice.uniform(0, 0.9 * BOUND_MS))


def wanted(orders: Rows, rates: Rows) -> list[tuple[int, int | None]]:
    """Orders and the rates of their time, by a loop."""
    found = []
    for order in orders:
        valid = [
            (rate["at"], rate["rate"])
            for rate in rates
            if rate["currency"] == order["currency"] and rate["at"] <= order["at"]
        ]
        found.append((order["id"], max(valid)[1] if valid else None))
    return sorted(found)


def source(name: str, folder: pathlib.Path, rows: Rows) -> dict[str, Any]:
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        "operator_id": name,
        "input_type": "file",
        "config": {
            "type": "file",
            "input_type": {"type": "json", "path": str(path)},
            "batch_rows": 50,
            "rows_per_second": len(rows) / SECONDS,
        },
        "time": {
            "mode": "event_time",
            "timestamp_field": "at",
            "watermark": {"out_of_orderness_ms": BOUND_MS, "idle_timeout_ms": 30_000},
        },
    }


def job(folder: pathlib.Path, orders: Rows, rates: Rows) -> str:
    """Two files of rows, joined by two subtasks into files that are published once."""
    join = {
        "join_type": "temporal",
        "unmatched": "keep",
        **{"left_from": "orders", "left_key": "currency", "left_timestamp": "at"},
        **{"right_from": "rates", "right_key": "currency", "right_timestamp": "at"},
    }
    one = {
        "id": "priced",
        "version": 1,
        "operators": [
            {"id": "orders", "kind": "source"},
            {"id": "rates", "kind": "source"},
            {"id": "rated", "kind": "join", "parallelism": 2, "config": join},
            {"id": "out", "kind": "sink", "parallelism": 2},
        ],
        "edges": [
            {"id": "o", "from": "orders", "to": "rated", "partitioned": True},
            {"id": "r", "from": "rates", "to": "rated", "partitioned": True},
            {"id": "p", "from": "rated", "to": "out"},
        ],
        "sources": [source("orders", folder, orders), source("rates", folder, rates)],
        "sinks": [
            {
                "operator_id": "out",
                "output_type": "file",
                "config": {"type": "file", "path": str(folder / "out"), "format": "json"},
            }
        ],
        "state": {"backend": "embedded_kv", "durability": "durable"},
        "checkpoint": {"interval_ms": 500, "object_store_uri": f"file://{folder}/checkpoints"},
    }
    return yaml.safe_dump({"streams": [], "jobs": [one]})


def published(folder: pathlib.Path) -> list[tuple[int, int | None]]:
    rows = [
        json.loads(line)
        for path in (folder / "out").rglob("part-*.jsonl")
        for line in path.read_text().splitlines()
    ]
    return sorted((row["l_id"], row.get("r_rate")) for row in rows)


def test_each_row_has_the_version_of_its_time_although_a_process_is_killed(
    start: Start, tmp_path: pathlib.Path
) -> None:
    dice = random.Random(7)
    orders = timed(dice, 3_000, 3, id=lambda n: n)
    rates = timed(dice, 900, 10, rate=lambda n: 1_000 + n)
    running = start(job(tmp_path, orders, rates))
    chains = len(running.job.graph.chains)
    running.until(lambda: running.completed >= 2 and len(running.status.usage) == chains)
    (victim,) = (usage.pid for name, usage in running.status.usage.items() if name == "rated-0")
    os.kill(victim, signal.SIGKILL)
    assert running.jobs.wait(END_S), running.status
    running.ended(OutcomeKind.FINISHED)
    assert running.status.restarts == 1
    assert published(tmp_path) == wanted(orders, rates)
