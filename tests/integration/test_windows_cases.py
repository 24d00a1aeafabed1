"""The acceptance cases of windows on a real Ray: at any parallelism and batch size, and with the
`kill -9` of a process, they write what they must (W6, W7, W9, N2, N3, X1).
"""

import pathlib
from typing import Any, Final

import pytest

from tests.integration.cases_on_ray import (
    CUTS,
    SECONDS,
    assert_right,
    assert_survives,
    edited,
)
from tests.integration.running_jobs import Start

pytestmark = [pytest.mark.usefixtures("shared_ray"), pytest.mark.timeout(300)]

WINDOWS: Final = ("tumbling", "sliding", "session", "late_update")


@pytest.mark.parametrize(("parallelism", "batch_rows"), CUTS)
@pytest.mark.parametrize("case", WINDOWS, indirect=True)
def test_a_case_writes_what_it_must_at_any_parallelism_and_batch_size(
    case: str, parallelism: int, batch_rows: int, start: Start, out: pathlib.Path
) -> None:
    source = {} if case == "late_update" else {"batch_rows": batch_rows}
    assert_right(start(edited(case, "window", parallelism, **source)), case, out)


@pytest.mark.parametrize("case", WINDOWS, indirect=True)
def test_a_case_writes_what_it_must_although_a_process_is_killed(
    case: str, start: Start, out: pathlib.Path
) -> None:
    source: dict[str, Any] = {} if case == "late_update" else {"batch_rows": 100}
    config = edited(case, "window", 2, seconds=SECONDS, **source)
    assert_survives(start, config, case, out)
