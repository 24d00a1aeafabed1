"""Whole cases of sessions: a file of rows, and what must be left in the end (N2, W9)."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from arkflow_kernel.event_time_gate import ROW_WATERMARK
from arkflow_kernel.plan import AggregatePlan, LatePolicy, OperatorPlan
from arkflow_kernel.testing.dice import Dice
from arkflow_kernel.testing.session_bench import (
    Rows,
    SessionBench,
    SessionOracle,
    corrected,
    in_order,
    session_plan,
)

ACCEPTANCE = Path(__file__).parents[2] / "conformance" / "cases" / "session"
GENERATED = Path(__file__).parent / "session_case"
BOUND_MS = 120
GAP_MS = 150


def read(path: Path) -> Rows:
    """The rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def stamped(rows: Rows, bound_ms: int) -> list[tuple[dict[str, Any], int]]:
    """Rows as the gate stamps them, each with the watermark after it (W3)."""
    made: list[tuple[dict[str, Any], int]] = []
    highest: int | None = None
    for row in rows:
        mark = None if highest is None or row["ts"] >= highest - bound_ms else highest - bound_ms
        highest = row["ts"] if highest is None else max(highest, row["ts"])
        made.append((row | {ROW_WATERMARK: mark}, highest - bound_ms))
    return made


def played(plan: OperatorPlan, rows: Rows, size: int, *, crashes: bool) -> SessionBench:
    """All rows in batches of a size, the watermark behind each."""
    bench, marked = SessionBench(plan), stamped(rows, BOUND_MS)
    for start in range(0, len(marked), size):
        batch = marked[start : start + size]
        bench.rows([row for row, _ in batch])
        if crashes:
            bench.crash()
        bench.advance(batch[-1][1])
    bench.end()
    return bench


@pytest.mark.parametrize(("size", "crashes"), [(8_192, False), (700, True)])
def test_the_acceptance_case_leaves_its_rows(size: int, crashes: bool) -> None:
    prices = tuple(AggregatePlan(name, "price", name) for name in ("count", "sum", "min", "max"))
    plan = session_plan(GAP_MS, aggregates=prices, key_fields=("auction",), plain=True)
    bench = played(plan, read(ACCEPTANCE / "bids.jsonl"), size, crashes=crashes)
    assert bench.late_rows == 0
    assert in_order(bench.results) == in_order(read(ACCEPTANCE / "expected-out.jsonl"))


# --- a case of our own, with late rows -----------------------------------------------------------

LATE_PLAN = session_plan(GAP_MS, late=LatePolicy.UPDATE, lateness_ms=400)


def generated() -> Rows:
    """240 rows of four keys, mostly within the bound; every tenth is up to 800 ms late."""
    dice, now, rows = Dice(2026), 1_760_000_000_000, []
    for number in range(240):
        now += dice.between(0, 40)
        back = dice.between(0, 800) if number % 10 == 9 else dice.between(0, BOUND_MS)
        value = None if dice.between(0, 9) == 0 else dice.between(-50, 50)
        rows.append({"k": f"sensor-{dice.between(0, 3)}", "ts": now - back, "v": value})
    return rows


def left_in_the_end(rows: Rows) -> tuple[Rows, int]:
    """What the oracle leaves, row by row."""
    oracle, made = SessionOracle(LATE_PLAN), []
    for row, watermark in stamped(rows, BOUND_MS):
        made += oracle.rows([row])
        made += oracle.advance(watermark)
    made += oracle.end()
    return corrected(made), oracle.late_rows


def test_the_files_of_our_case_are_those_of_the_generator() -> None:
    """`ARKFLOW_REWRITE=1` writes them anew."""
    rows = generated()
    files = {"readings.jsonl": rows, "expected-out.jsonl": left_in_the_end(rows)[0]}
    if os.environ.get("ARKFLOW_REWRITE"):
        GENERATED.mkdir(exist_ok=True)
        for name, content in files.items():
            lines = "".join(json.dumps(row, sort_keys=True) + "\n" for row in content)
            (GENERATED / name).write_text(lines, encoding="utf-8")
    for name, content in files.items():
        assert read(GENERATED / name) == content


@pytest.mark.parametrize(("size", "crashes"), [(1, False), (7, True), (64, True), (500, False)])
def test_our_case_leaves_its_rows_whatever_the_batches_and_crashes(
    size: int, crashes: bool
) -> None:
    rows = read(GENERATED / "readings.jsonl")
    bench = played(LATE_PLAN, rows, size, crashes=crashes)
    assert corrected(bench.results) == read(GENERATED / "expected-out.jsonl")
    assert bench.late_rows == left_in_the_end(rows)[1] > 0
    assert any(row["__arkflow_window_update"] for row in bench.results) or size == 500
