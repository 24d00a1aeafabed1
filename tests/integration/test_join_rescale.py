"""A join that gets another parallelism while it runs, without Ray: what it keeps follows its keys,
and so does what has matched already (J2, K2, K3, X1).
"""

from pathlib import Path

import pytest

from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.protocol import OutcomeKind, RecordAppended
from tests.conformance.acceptance import compare
from tests.integration.cases_on_ray import edited
from tests.integration.stored_jobs import graph_of, run
from tests.integration.test_inline_rescale_files import STEPS, rescales

SECONDS = 2.5
"""What the input lasts for."""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", ["join_left_outer"], indirect=True)
def test_a_join_is_rescaled_and_each_row_leaves_once(case: str, tmp_path: Path, out: Path) -> None:
    def plan(parallelism: int) -> ExecutionGraph:
        text = edited(case, "join", parallelism, seconds=SECONDS, batch_rows=50)
        assert "interval_ms: 500" in text
        path = tmp_path / "job.yaml"
        path.write_text(text.replace("interval_ms: 500", "interval_ms: 60"))
        return graph_of(path)

    told: dict[int, tuple[str, str | None]] = {}
    ran = run(plan(1), dies=rescales(plan, RecordAppended, 2, told))
    assert ran.outcome is not None
    assert ran.outcome.kind is OutcomeKind.FINISHED, ran.story
    assert list(told.values()) == [("done", None)] * len(STEPS), (told, ran.story)
    compare(case, out)
