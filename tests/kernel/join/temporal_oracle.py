"""What a temporal join must let leave, by a loop over all rows and versions (J9, J10); and random
cases of it.
"""

import random
from typing import Any

import pyarrow as pa

from arkflow_kernel.plan import JoinPlan, JoinSidePlan, LatePolicy, VersionsPlan
from tests.kernel.join.join_line import LEFT, RIGHT, Rows
from tests.kernel.join.join_oracle import Case, Row, stamped


def temporal(
    *, keep: bool = False, ttl_ms: int | None = None, late: str = "drop", **more: Any
) -> JoinPlan:
    """A temporal join of rows with `k` and `ts`."""
    return JoinPlan(
        JoinSidePlan(LEFT, "k", "ts", outer=keep),
        JoinSidePlan(RIGHT, "k", "ts"),
        0,
        late=LatePolicy(late),
        versions=VersionsPlan(ttl_ms),
        **more,
    )


def expected(case: Case) -> tuple[Rows, int]:
    """All rows that must leave, and how many rows are late."""
    versions = [row for part in case.sides[RIGHT] for row in part]
    rows = [row for part in case.sides[LEFT] for row in part]
    kept = [row for row in rows if row.ts >= row.mark]
    found: Rows = []
    for row in kept:
        version = _version_of(row, versions, case.plan)
        if version is not None:
            found.append(_shown("l", row) | _shown("r", version))
        elif case.plan.left.outer:
            found.append(_shown("l", row))
    return found, len(rows) - len(kept)


def _version_of(row: Row, versions: list[Row], plan: JoinPlan) -> Row | None:
    """The newest that is valid; versions of one key and time are of one partition, so the one with
    the greatest number came last.
    """
    assert plan.versions is not None
    best: Row | None = None
    for each in versions:
        if row.k is None or each.k != row.k or max(each.ts, each.mark) > row.ts:
            continue
        if best is None or (each.ts, each.n) > (best.ts, best.n):
            best = each
    ttl = plan.versions.ttl_ms
    if best is not None and ttl is not None and row.ts - best.ts > ttl:
        return None
    return best


def _shown(side: str, row: Row) -> dict[str, Any]:
    shown = {f"{side}_n": row.n, f"{side}_k": row.k, f"{side}_ts": row.ts}
    return shown | ({"join_key": None if row.k is None else str(int(row.k))} if side == "l" else {})


def random_case(seed: int) -> Case:
    """Rows and versions of few keys or many; a key's versions are all in one partition."""
    dice = random.Random(seed)
    keys: list[Any] = [*range(dice.choice([1, 4, 30]))]
    bound = dice.choice([0, 2, 10])
    sides: dict[str, list[list[Row]]] = {}
    for side in (LEFT, RIGHT):
        first, sides[side] = 0, []
        parts = dice.randint(1, 2)
        for part in range(parts):
            own = keys if side == LEFT else [key for key in keys if key % parts == part]
            made = _rows(dice, [*own, None], bound)
            sides[side].append(stamped(made, bound, first))
            first += len(made)
    plan = temporal(
        keep=dice.random() < 0.5,
        ttl_ms=dice.choice([None, None, 5, 40, 300]),
        late=dice.choice(["drop", "route"]),
    )
    same = dice.random() < 0.5
    types = (pa.int64(), pa.int64()) if same else (pa.int32(), pa.float64())
    return Case(plan, bound, sides, seed, key_types=types)


def _rows(dice: random.Random, keys: list[Any], bound: int) -> list[tuple[Any, int]]:
    """Keys and times that rise, some of them far behind; coarse times are often the same."""
    clock, made, grain = 0, [], dice.choice([1, 1, 10])
    steps = dice.choice([[0, 1, 1, 4, 30], [0, 0, 0, 1], [3, 10]])
    for _ in range(dice.choice([0, 5, 40, 100])):
        clock += dice.choice(steps)
        behind = dice.choice([0, 0, bound, bound + 5, 3 * bound + 40])
        made.append((dice.choice(keys), (clock - dice.randint(0, behind)) // grain * grain))
    return made


__all__ = ["expected", "random_case", "temporal"]
