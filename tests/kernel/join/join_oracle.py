"""What a join must let leave, by a loop over all pairs of rows (J3); and random cases of it."""

import random
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from arkflow_kernel.event_time_gate import ROW_WATERMARK
from arkflow_kernel.join import join_keys, join_output, side_rows, side_state
from arkflow_kernel.plan import JoinPlan, LatePolicy
from tests.kernel.join.join_line import LEFT, RIGHT, JoinLine, Rows, canonical, join_of

NEVER = -(2**62)


@dataclass(frozen=True)
class Row:
    """A row; `mark` is the greatest time before it in its partition minus the bound."""

    n: int
    k: Any
    ts: int
    mark: int


@dataclass
class Case:
    """Partitions of both sides, in their order, and dice for all that must not matter."""

    plan: JoinPlan
    bound: int
    sides: dict[str, list[list[Row]]]
    seed: int
    state: dict[str, Any] = field(default_factory=dict)
    key_types: tuple[pa.DataType, pa.DataType] = (pa.int64(), pa.int64())


def stamped(rows: list[tuple[Any, int]], bound: int, first: int = 0) -> list[Row]:
    """Keys and times of a partition, with the marks that the gate would give."""
    made, greatest = [], NEVER
    for n, (key, ts) in enumerate(rows, first):
        made.append(Row(n, key, ts, max(NEVER, greatest - bound)))
        greatest = max(greatest, ts)
    return made


def expected(case: Case) -> tuple[Rows, int]:
    """All rows that must leave, and how many rows are late."""
    plan, late = case.plan, 0
    kept: dict[str, list[Row]] = {}
    for side, partitions in case.sides.items():
        rows = [row for rows in partitions for row in rows]
        kept[side] = [row for row in rows if row.ts >= row.mark - plan.hold_ms]
        late += len(rows) - len(kept[side])
    found: Rows = []
    lonely = {side: {row.n for row in rows} for side, rows in kept.items()}
    for left in kept[LEFT]:
        for right in kept[RIGHT]:
            if _match(left, right, plan):
                lonely[LEFT].discard(left.n)
                lonely[RIGHT].discard(right.n)
                found.append(_shown(LEFT, left) | _shown(RIGHT, right))
    for side, outer in ((LEFT, plan.left.outer), (RIGHT, plan.right.outer)):
        if outer:
            found += [_shown(side, row) for row in kept[side] if row.n in lonely[side]]
    return found, late


def _match(left: Row, right: Row, plan: JoinPlan) -> bool:
    return (
        left.k is not None
        and left.k == right.k
        and abs(left.ts - right.ts) <= plan.window_ms
        and left.ts >= right.mark - plan.hold_ms
        and right.ts >= left.mark - plan.hold_ms
    )


def _shown(side: str, row: Row) -> dict[str, Any]:
    key = None if row.k is None else _text(row.k)
    return {f"{side}_n": row.n, f"{side}_k": row.k, f"{side}_ts": row.ts, "join_key": key}


def _text(key: Any) -> str:
    return str(int(key)) if isinstance(key, float) and key == int(key) else str(key)


def batch_of(rows: list[Row], kind: pa.DataType) -> pa.RecordBatch:
    """Rows as they leave the gate: the column is there only if some row is stamped."""
    columns: dict[str, Any] = {
        "n": pa.array([row.n for row in rows], pa.int64()),
        "k": pa.array([row.k for row in rows], kind),
        "ts": pa.array([row.ts for row in rows], pa.int64()),
    }
    marks = [row.mark if row.ts < row.mark else None for row in rows]
    if any(mark is not None for mark in marks):
        columns[ROW_WATERMARK] = pa.array(marks, pa.int64())
    return pa.RecordBatch.from_pydict(columns)


def played(case: Case, line: JoinLine) -> Rows:
    """Give the rows to a join in any order of partitions, in any cuts, with restarts."""
    dice = random.Random(case.seed)
    rows = {
        (side, number): list(rows)
        for side, partitions in case.sides.items()
        for number, rows in enumerate(partitions)
    }
    seen = dict.fromkeys(rows, NEVER)
    most = dice.choice([2, 5, 10, 40])
    restarts, moves = dice.choice([0.0, 0.05, 0.2]), dice.choice([0.1, 0.5, 1.0])
    while left := [name for name, waiting in rows.items() if waiting]:
        side, number = dice.choice(left)
        waiting = rows[side, number]
        cut = dice.randint(1, most)
        part, rows[side, number] = waiting[:cut], waiting[cut:]
        line.batch(side, batch_of(part, case.key_types[side == RIGHT]))
        seen[side, number] = max(seen[side, number], *(row.ts for row in part))
        active = [seen[name] - case.bound for name, waiting in rows.items() if waiting]
        if active and min(active) > NEVER and dice.random() < moves:
            line.advance(min(active))
        if dice.random() < restarts:
            if dice.random() < 0.4:
                line.checkpoint()
            else:
                line.restart(dice.choice([1, 2, 3]))
    return line.end()


def proved(case: Case, line: JoinLine, told: tuple[Rows, int]) -> None:
    """Play a case and compare with what a loop has told: rows, and how many are late."""
    wanted, late = told
    found = played(case, line)
    assert canonical(found) == canonical(wanted)
    assert line.totals.late_rows == late
    routed = sum(batch.num_rows for batch in line.totals.routed)
    assert routed == (late if case.plan.late is LatePolicy.ROUTE else 0)
    assert line.totals.evicted == 0


def all_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every few rows are merged, renumbered, spilled and written apart, as millions are."""
    monkeypatch.setattr(join_output, "PART_ROWS_MAX", 3)
    monkeypatch.setattr(join_output, "_PART_ROWS_MIN", 1)
    monkeypatch.setattr(side_rows, "_COMPACT_ROWS_MIN", 4)
    monkeypatch.setattr(side_rows, "MERGED_AT_ONCE", 2)
    monkeypatch.setattr(join_keys, "_COMPACT_KEYS_MIN", 4)
    monkeypatch.setattr(side_state, "RUN_BYTES", 200)


def random_case(seed: int) -> Case:
    """Some join of some rows: few keys or many, times that rise with rows far behind."""
    dice = random.Random(seed)
    kind = dice.choice(["inner", "left_outer", "right_outer", "full_outer"])
    window, ttl = dice.choice([1, 5, 20, 100]), dice.choice([0, 0, 3, 50])
    keys: list[Any] = [*range(dice.choice([1, 4, 30])), None]
    bound = dice.choice([0, 2, 10])
    sides: dict[str, list[list[Row]]] = {}
    for side in (LEFT, RIGHT):
        first, sides[side] = 0, []
        for _ in range(dice.randint(1, 2)):
            clock, made = 0, []
            for _ in range(dice.choice([0, 5, 40, 100])):
                clock += dice.choice([0, 1, 1, 4, 30])
                behind = dice.choice([0, 0, bound, bound + window, 3 * (window + ttl + bound)])
                made.append((dice.choice(keys), clock - dice.randint(0, behind)))
            sides[side].append(stamped(made, bound, first))
            first += len(made)
    plan = join_of(window, ttl, kind=kind, late=dice.choice(["drop", "route"]))
    same = dice.random() < 0.5
    types = (pa.int64(), pa.int64()) if same else (pa.int32(), pa.float64())
    return Case(plan, bound, sides, seed, key_types=types)


__all__ = [
    "Case",
    "Row",
    "all_small",
    "batch_of",
    "expected",
    "played",
    "proved",
    "random_case",
    "stamped",
]
