"""The acceptance cases of joins on a real Ray: at any parallelism and batch size, and with the
`kill -9` of a process, they write what they must (J1-J3, W9, X1).

The outer join lets leave all that the inner one does; `ARKFLOW_MATRIX=full` runs both.
"""

import pathlib
from typing import Final

import pytest

from tests.integration.cases_on_ray import (
    CUTS,
    FULL,
    SECONDS,
    assert_right,
    assert_survives,
    edited,
)
from tests.integration.running_jobs import Start

pytestmark = [pytest.mark.usefixtures("shared_ray"), pytest.mark.timeout(300)]

JOINS: Final = ("join_left_outer", "join_inner") if FULL else ("join_left_outer",)
SOME: Final = CUTS if FULL else ((2, 100),)


@pytest.mark.parametrize(("parallelism", "batch_rows"), SOME)
@pytest.mark.parametrize("case", JOINS, indirect=True)
def test_a_case_writes_what_it_must_at_any_parallelism_and_batch_size(
    case: str, parallelism: int, batch_rows: int, start: Start, out: pathlib.Path
) -> None:
    assert_right(start(edited(case, "join", parallelism, batch_rows=batch_rows)), case, out)


@pytest.mark.parametrize("case", JOINS, indirect=True)
def test_a_case_writes_what_it_must_although_a_process_is_killed(
    case: str, start: Start, out: pathlib.Path
) -> None:
    config = edited(case, "join", 2, seconds=SECONDS, batch_rows=100)
    assert_survives(start, config, case, out)
