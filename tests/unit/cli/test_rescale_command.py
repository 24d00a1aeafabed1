"""`arkflow-ray rescale`: what may be asked for, and how answers and statuses read."""

import json
from typing import Any

import pytest

from arkflow_ray.cli.doors import status_text
from arkflow_ray.cli.rescaling import parse_wanted, told_text

PHASES = {"prepare_ms": 120, "round_ms": 340, "end_ms": 60, "claim_ms": 20, "deploy_ms": 900}
DONE: dict[str, Any] = {
    "job": "shop",
    "outcome": "done",
    "changed": {"counted": [2, 4], "printed": [1, 2]},
    "notes": ["'counted' and 'printed' no longer share a chain"],
    "phases": PHASES,
    "duration_ms": 1440,
}


def test_the_wanted_numbers_are_read_by_operator() -> None:
    assert parse_wanted(["counted=4", "a=b=2", "zero=0"]) == {"counted": 4, "a=b": 2, "zero": 0}


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (["counted"], "'counted' is not OPERATOR=N, as in count=4"),
        (["=4"], "'=4' is not OPERATOR=N"),
        (["counted="], "'counted=' is not OPERATOR=N"),
        (["counted=-1"], "'counted=-1' is not OPERATOR=N"),
        (["counted=four"], "'counted=four' is not OPERATOR=N"),
        (["counted=²"], "'counted=²' is not OPERATOR=N"),
        (["a=1", "a=2"], "operator 'a' is named twice"),
        (["a=" + "9" * 5000], "more subtasks than there can be"),
    ],
)
def test_what_is_no_number_of_an_operator_is_bad_usage(
    cli: Any, wanted: list[str], said: str
) -> None:
    ran = cli("rescale", "shop", *wanted)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    as_json = cli("rescale", "shop", *wanted, "--json")
    assert (as_json.code, as_json.err) == (2, "")
    assert said in json.loads(as_json.out)["error"]["message"]


def test_without_an_operator_it_is_bad_usage(cli: Any) -> None:
    ran = cli("rescale", "shop")
    assert ran.code == 2
    assert "OPERATOR=N" in ran.err


def test_a_job_that_does_not_run_cannot_be_reached(cli: Any) -> None:
    ran = cli("rescale", "a-job-that-nobody-runs", "counted=4")
    assert ran.code == 3
    assert "no job 'a-job-that-nobody-runs' runs on this machine" in ran.err


def test_the_end_is_told_with_what_changed_and_what_each_phase_took() -> None:
    assert told_text(DONE, {"counted": 4, "printed": 2}).splitlines() == [
        "job 'shop' is rescaled: counted 2 -> 4, printed 1 -> 2",
        "  'counted' and 'printed' no longer share a chain",
        "  prepare        120 ms",
        "  round          340 ms",
        "  end             60 ms",
        "  claim           20 ms",
        "  deploy         900 ms",
        "  total        1,440 ms",
    ]


def test_what_has_only_begun_says_where_to_look() -> None:
    told = {**DONE, "outcome": "accepted", "notes": []}
    assert told_text(told, {"counted": 4}) == (
        "job 'shop' is being rescaled: counted 2 -> 4, printed 1 -> 2; "
        "`arkflow-ray status shop` shows how it goes on"
    )


def test_what_was_so_already_says_so() -> None:
    told = {**DONE, "outcome": "unchanged", "changed": {}}
    text = "job 'shop': nothing to change; 'counted' has 4, 'printed' has 2 already"
    assert told_text(told, {"counted": 4, "printed": 2}) == text


STATUS: dict[str, Any] = {
    "job": "shop",
    "state": "running",
    "cause": "",
    "pid": 7,
    "started_at": "2026-01-01T00:00:00+00:00",
    "chains": 4,
    "ready": 4,
    "mode": "checkpoint",
    "rows_read": 40,
    "bad_rows": 0,
    "rows_written": {},
    "restarts": 0,
    "waits": [],
    "checkpoints": None,
    "error": None,
}


def operator(name: str, chain: str, rows_in: list[int], skew: float | None) -> dict[str, Any]:
    told = {"operator": name, "chain": chain, "rows_in": rows_in, "skew": skew}
    return told | {"parallelism": len(rows_in)}


def test_the_status_shows_each_operator_and_how_even_the_parallel_ones_are() -> None:
    operators = [
        operator("orders", "orders", [40], None),
        operator("counted", "counted", [30, 10], 1.5),
        operator("shown", "counted", [30, 10], 1.5),
        operator("keyed", "keyed", [3, 1], 1.5)
        | {"fullest_key_group": {"key_group": 7, "share": 0.251}},
        operator("wide", "wide", list(range(100)), 2.0),
    ]
    rescale = {"text": "rescaled to counted=2 in 528 ms", "age_ms": 34_000}
    lines = status_text({**STATUS, "operators": operators, "rescale": rescale}).splitlines()
    assert lines[4:] == [
        "  operators orders 1, counted 2, shown 2, keyed 2, wide 100",
        "  subtasks  counted: 30 and 10 rows in; skew 1.50",
        "  subtasks  keyed: 3 and 1 rows in; skew 1.50; key group 7 has 25.1% of them",
        "  subtasks  wide: 0 to 99 (mean 50) rows in; skew 2.00",
        "  rescale   rescaled to counted=2 in 528 ms; asked for 34 s ago",
    ]


def test_the_status_of_an_older_run_has_no_such_lines() -> None:
    assert len(status_text(STATUS).splitlines()) == 4
