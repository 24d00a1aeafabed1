"""`rows_per_second` and the size of batches (T9): an even flow, unless the user chose the size."""

from typing import Any

import pytest

from arkflow_kernel.ids import OperatorId
from arkflow_kernel.plan import ComponentPlan, SourcePlan
from arkflow_ray.runtime.components import paced


def planned(rate: float | None, kind: str = "file", **config: Any) -> SourcePlan:
    return SourcePlan(OperatorId("in"), ComponentPlan(kind, config), rate)


@pytest.mark.parametrize(
    ("rate", "rows"), [(100.0, 10), (12_345.0, 1234), (3.0, 1), (0.5, 1), (1e9, 8_192)]
)
def test_batches_leave_ten_times_a_second_and_are_never_larger_than_without_a_rate(
    rate: float, rows: int
) -> None:
    assert paced(planned(rate, path="in.jsonl")).config == {"path": "in.jsonl", "batch_rows": rows}


def test_a_batch_size_that_the_user_wrote_stands() -> None:
    plan = planned(100.0, batch_rows=5_000)
    assert paced(plan) is plan.component


def test_without_a_rate_nothing_changes() -> None:
    plan = planned(None)
    assert paced(plan) is plan.component


def test_memory_stays_at_one_row_a_batch() -> None:
    assert paced(planned(1_000.0, "memory")).config == {"batch_rows": 1}
