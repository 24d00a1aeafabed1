"""Runs that are reached from other processes: status, savepoint, stop, and what is run after that.

Each run is the program itself, in a process of its own; all but one are without Ray.
"""

import re
from collections.abc import Iterator

import pytest

from tests.integration.cli_shop import Shop, await_status, opened

SHOP = """\
jobs:
  - id: shop
    version: 1
    checkpoint: {object_store_uri: checkpoints, interval_ms: 200}
    restart: {strategy: none}
    operators:
      - {id: orders, kind: source}
      - id: counted
        kind: map
        stateful: true
        key_field: a
        config: {type: sql, query: "SELECT a, number FROM flow", state_output_field: number}
      - {id: printed, kind: sink}
    edges:
      - {id: by-a, from: orders, to: counted, partitioned: true}
      - {id: out, from: counted, to: printed}
    sources:
      - operator_id: orders
        input_type: generate
        config: {context: '{"a": 1}', interval: 10ms, batch_size: 1}
        codec: json
        time: {mode: processing_time}
    sinks:
      - {operator_id: printed, output_type: stdout}
"""


PHASES = {"acknowledged_ms", "new_bytes", "pause_ms", "sealed_ms", "upload_ms"}


@pytest.fixture
def shop() -> Iterator[Shop]:
    """A row each 10 ms."""
    with opened(SHOP) as found:
        yield found


def test_a_run_is_seen_asked_and_stopped_from_elsewhere_and_the_next_one_goes_on(
    shop: Shop,
) -> None:
    program = shop.run()
    assert program.first() == 1
    pids = [job["pid"] for job in shop.told("jobs")["jobs"]]
    assert program.process.pid in pids
    saved = await_status(shop, lambda told: told["checkpoints"]["last"] is not None)
    assert saved["state"] == "running"
    assert set(saved["checkpoints"]["phases"]) == PHASES
    assert "sealed after" in shop.call("status", "shop").stdout
    assert saved["checkpoints"]["root"] == f"file://{shop.place}/checkpoints"
    stopped = shop.told("stop", "shop")
    said = program.said()
    assert program.process.returncode == 0
    assert stopped["outcome"] == "stopped"
    last = stopped["checkpoint"]
    assert f"checkpoint {last} in " in said
    again = shop.run()
    assert again.first() == program.last() + 1, "a row is counted once"
    assert re.search(rf"continues from checkpoint {last}, \d+ s old", again.interrupt())
    assert shop.call("status", "shop").returncode == 3


def test_a_savepoint_is_a_place_to_begin_at(shop: Shop) -> None:
    program = shop.run()
    program.first()
    made = shop.call("savepoint", "shop", "v1")
    assert made.returncode == 0, made.stderr
    assert made.stdout == f"file://{shop.place}/checkpoints/shop/savepoints/v1\n"
    assert shop.call("savepoint", "shop", "v1").returncode == 2, "the name is taken"
    program.interrupt()
    history = shop.told("checkpoints", "shop", "--config", "shop.yaml")
    assert [each["savepoint"] for each in history["savepoints"]] == ["v1"]
    assert history["checkpoints"][0]["unusable"] is None
    assert set(history["checkpoints"][0]["phases"]) == PHASES
    table = shop.call("checkpoints", "shop", "--config", "shop.yaml").stdout.splitlines()
    assert table[0].split()[3:8] == ["took", "ms", "pause", "sealed", "upload"]
    assert history["restores"] == f"checkpoint {history['checkpoints'][0]['checkpoint']}"
    for place in ("v1", made.stdout.strip()):
        again = shop.run("--from-savepoint", place, command="resume")
        assert 1 < again.first() <= program.last()
        assert "continues from savepoint" in again.interrupt()


def test_a_killed_run_leaves_its_door_and_the_next_one_takes_it_and_goes_on(shop: Shop) -> None:
    program = shop.run()
    program.first()
    await_status(shop, lambda told: told["checkpoints"]["last"] is not None)
    program.process.kill()
    program.said()
    called = shop.call("stop", "shop")
    assert called.returncode == 3
    assert "no job 'shop' runs on this machine as this user" in called.stderr
    again = shop.run(command="resume")
    assert 1 < again.first() <= program.last() + 1
    assert shop.told("stop", "shop", "--drain")["outcome"] == "finished"
    again.said()
    assert again.process.returncode == 0


def test_a_start_that_would_lose_something_is_refused_with_what_to_do(shop: Shop) -> None:
    refused = shop.run(command="resume")
    said = refused.said()
    assert (refused.process.returncode, refused.rows.read_text()) == (1, "")
    assert "there is nothing to resume: job 'shop' has no checkpoint; start it with `run`" in said
    program = shop.run()
    program.first()
    await_status(shop, lambda told: told["checkpoints"]["last"] is not None)
    program.interrupt()
    records = shop.place / "checkpoints/shop/log"
    for record in sorted(records.iterdir())[1:]:
        record.write_text("{}")
    spoiled = shop.run()
    said = spoiled.said()
    assert (spoiled.process.returncode, spoiled.rows.read_text()) == (1, "")
    assert "cannot be restored" in said
    assert "saved    " not in said, "nothing is said of saving by a run that did not start"
    assert "--from-scratch" in said
    warned = shop.call("checkpoints", "shop", "--root", "checkpoints")
    assert "warning: the next start is refused" in warned.stdout
    scratch = shop.run("--from-scratch")
    assert scratch.first() == 1
    scratch.interrupt()
    assert scratch.process.returncode == 0


def test_a_bad_name_of_a_savepoint_is_bad_usage(shop: Shop) -> None:
    for command in (["savepoint", "shop", "../x"], ["stop", "shop", "--savepoint", "a b"]):
        called = shop.call(*command)
        assert called.returncode == 2
        assert "cannot name a savepoint" in called.stderr


def test_a_run_on_ray_is_asked_from_elsewhere_and_the_next_one_goes_on(shop: Shop) -> None:
    """X4, with chains and a coordinator in processes of their own."""
    program = shop.run(ray=True)
    program.first()
    saved = await_status(shop, lambda told: told["checkpoints"]["last"] is not None)
    assert (saved["state"], saved["ready"]) == ("running", saved["chains"])
    assert shop.told("savepoint", "shop", "v1")["url"].endswith("/checkpoints/shop/savepoints/v1")
    stopped = shop.told("stop", "shop", "--savepoint", "v2")
    program.said()
    assert program.process.returncode == 0
    history = shop.told("checkpoints", "shop", "--config", "shop.yaml")
    assert {each["savepoint"] for each in history["savepoints"]} == {"v1", "v2"}
    assert history["restores"] == f"checkpoint {stopped['checkpoint']}"
    again = shop.run(ray=True)
    assert again.first() == program.last() + 1, "a row is counted once"
    assert shop.told("stop", "shop")["outcome"] == "stopped"
    assert f"continues from checkpoint {stopped['checkpoint']}, " in again.said()
    assert again.process.returncode == 0
