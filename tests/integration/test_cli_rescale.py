"""A job that runs in one process is rescaled from another, and every row is counted once (K2).

The outputs are exactly-once, so what a rescale loses, repeats or counts on the wrong side is seen.
"""

import json
from collections.abc import Iterator

import pytest

from tests.integration.cli_shop import Program, Shop, await_status, opened
from tests.integration.published_rows import rows_in

KEYS = 24
ROWS = 60_000
"""More than are read before the job is stopped."""

SHOP = """\
jobs:
  - id: shop
    version: 1
    max_parallelism: 16
    checkpoint: {object_store_uri: checkpoints, interval_ms: 500}
    restart: {strategy: none}
    operators:
      - {id: orders, kind: source}
      - id: counted
        kind: map
        parallelism: 2
        stateful: true
        key_field: k
        config: {type: sql, query: "SELECT k, number, id FROM flow", state_output_field: number}
      - {id: written, kind: sink}
    edges:
      - {id: by-k, from: orders, to: counted, partitioned: true}
      - {id: out, from: counted, to: written}
    sources:
      - operator_id: orders
        input_type: file
        config: {input_type: {type: json, path: orders.jsonl}, rows_per_second: 600}
        time: {mode: processing_time}
    sinks:
      - {operator_id: written, output_type: file, config: {path: out, format: json}}
"""


@pytest.fixture
def shop() -> Iterator[Shop]:
    """Orders of 24 keys, 600 a second."""
    orders = (json.dumps({"id": i, "k": f"k{i % KEYS}"}) for i in range(ROWS))
    with opened(SHOP) as found:
        (found.place / "orders.jsonl").write_text("\n".join(orders) + "\n")
        yield found


def started(shop: Shop, *, ray: bool = False) -> Program:
    """A run that has read something."""
    program = shop.run(ray=ray)
    reads(shop)
    return program


def reads(shop: Shop) -> None:
    """Wait until the attempt at work has read something."""
    await_status(shop, lambda told: told["rows_read"] > 0 and told["state"] == "running")


def ended(shop: Shop, program: Program) -> str:
    """Stop the job; what the run said."""
    assert shop.told("stop", "shop")["outcome"] == "stopped"
    said = program.said()
    assert program.process.returncode == 0, said
    return said


def assert_each_order_is_counted_once(shop: Shop) -> None:
    """Ids from 0 without a gap, each once, and of each key the numbers from 1, in their order."""
    rows = rows_in(shop.place / "out")
    ids = sorted(row["id"] for row in rows)
    assert ids == list(range(len(ids)))
    assert len(ids) > KEYS
    for row in rows:
        assert row["k"] == f"k{row['id'] % KEYS}"
        assert row["number"] == row["id"] // KEYS + 1, row


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ray", [False, True], ids=["inline", "ray"])
def test_a_job_is_rescaled_up_and_down_from_another_process_and_counts_each_row_once(
    shop: Shop, ray: bool
) -> None:
    program = started(shop, ray=ray)
    up = shop.told("rescale", "shop", "counted=4")
    assert (up["outcome"], up["changed"]) == ("done", {"counted": [2, 4]})
    assert up["duration_ms"] == sum(up["phases"].values())
    reads(shop)
    told = await_status(shop, lambda told: all(told["operators"][1]["rows_in"]))
    assert [(o["operator"], o["parallelism"]) for o in told["operators"]] == [
        ("orders", 1), ("counted", 4), ("written", 1),
    ]  # fmt: skip
    assert (told["rescale"]["phase"], told["restarts"]) == ("done", 0)
    down = shop.call("rescale", "shop", "counted=1")
    assert down.returncode == 0, down.stderr
    first, note, *phases = down.stdout.splitlines()
    assert first == "job 'shop' is rescaled: counted 4 -> 1"
    assert note == "  'counted' and 'written' share a chain now: no channel is between them"
    names = [line.split()[0] for line in phases]
    assert names == ["prepare", "round", "end", "claim", "deploy", "total"]
    reads(shop)
    said = ended(shop, program)
    assert "rescaled to counted=4 in " in said
    assert "rescaled to counted=1 in " in said
    assert "  rescales 2; the figures are those of the last attempt" in said
    assert_each_order_is_counted_once(shop)
    history = shop.told("checkpoints", "shop", "--config", "shop.yaml")
    assert [each["kind"] for each in history["checkpoints"]].count("rescale") <= 2


def test_what_cannot_be_is_refused_and_the_job_goes_on(shop: Shop) -> None:
    program = started(shop)
    for wanted, said in [
        ("countd=4", "job 'shop' has no operator 'countd'; did you mean 'counted'?"),
        ("written=3", "which can have 1 or 2, not 3"),
    ]:
        called = shop.call("rescale", "shop", wanted)
        assert (called.returncode, called.stdout) == (2, "")
        assert said in called.stderr
    same = shop.call("rescale", "shop", "counted=2")
    assert same.returncode == 0
    assert same.stdout == "job 'shop': nothing to change; 'counted' has 2 already\n"
    told = shop.told("status", "shop")
    assert (told["state"], told["rescale"], told["attempt"]) == ("running", None, 1)
    ended(shop, program)
    assert_each_order_is_counted_once(shop)


def test_one_that_is_not_waited_for_is_seen_in_the_status_and_the_next_run_goes_on_from_it(
    shop: Shop,
) -> None:
    program = started(shop)
    begun = shop.told("rescale", "shop", "counted=3", "--no-wait")
    assert (begun["outcome"], begun["changed"]) == ("accepted", {"counted": [2, 3]})
    await_status(shop, lambda told: (told["rescale"] or {}).get("phase") == "done")
    ended(shop, program)
    again = started(shop)
    assert [o["parallelism"] for o in shop.told("status", "shop")["operators"]] == [1, 2, 1]
    ended(shop, again)
    assert_each_order_is_counted_once(shop)
