"""Another parallelism for a job that runs: what may be asked for, and what it changes (K2)."""

from collections.abc import Mapping

import pytest

from arkflow_kernel.errors import ConfigError
from arkflow_kernel.graph import build_graph
from arkflow_kernel.job import JobSpec
from arkflow_kernel.job_parallelism import parallelisms, with_parallelism
from arkflow_ray.config.project import check_file
from arkflow_ray.config.replan import replan
from tests.unit.config.sample_files import STREAM, Write

COUNTED = """
jobs:
  - id: shop
    version: 1
    max_parallelism: 8
    state: {backend: embedded_kv, durability: ephemeral}
    operators:
      - {id: orders, kind: source}
      - {id: large, kind: filter, config: {type: sql, query: SELECT 1}}
      - id: counted
        kind: map
        parallelism: 2
        stateful: true
        key_field: country
        config: {type: sql, query: SELECT 1}
      - {id: printed, kind: sink}
      - {id: rejected, kind: sink}
    edges:
      - {id: a, from: orders, to: large}
      - {id: b, from: large, to: counted, partitioned: true}
      - {id: c, from: counted, to: printed}
      - {id: d, from: large, to: rejected, type: error}
    sources:
      - operator_id: orders
        input_type: generate
        config: {context: x}
        codec: json
        time: {mode: processing_time}
    sinks:
      - {operator_id: printed, output_type: stdout}
      - {operator_id: rejected, output_type: drop}
"""


@pytest.fixture
def shop(write: Write) -> JobSpec:
    """Orders are counted by country in two subtasks; the rest of the job has one."""
    (job,) = check_file(write(COUNTED), env={}).jobs
    assert job.job is not None
    return job.job


def refusal(job: JobSpec, changes: Mapping[str, int]) -> str:
    with pytest.raises(ConfigError) as raised:
        replan(job, changes)
    return raised.value.message


def test_an_operator_gets_the_subtasks_that_are_asked_for_and_the_others_keep_theirs(
    shop: JobSpec,
) -> None:
    found = replan(shop, {"counted": 4})
    assert found.changed == {"counted": (2, 4)}
    assert found.notes == ()
    assert parallelisms(found.job) == {
        "orders": 1, "large": 1, "counted": 4, "printed": 1, "rejected": 1,
    }  # fmt: skip
    chains = [str(chain.chain) for chain in found.graph.chains]
    assert chains == ["orders-0", *(f"counted-{i}" for i in range(4)), "printed-0"]
    assert found.graph.max_parallelism == 8


def test_the_plan_is_that_of_a_file_that_says_so(shop: JobSpec, write: Write) -> None:
    text = COUNTED.replace("parallelism: 2\n", "parallelism: 4\n")
    (job,) = check_file(write(text, "four.yaml"), env={}).jobs
    assert replan(shop, {"counted": 4}).graph == job.graph
    assert replan(replan(shop, {"counted": 4}).job, {"counted": 2}).graph == build_graph(shop)


def test_an_operator_that_has_the_jobs_parallelism_gets_one_of_its_own(
    shop: JobSpec,
) -> None:
    operators = [o.model_copy(update={"parallelism": o.parallelism or 1}) for o in shop.operators]
    operators[2] = operators[2].model_copy(update={"parallelism": None})
    inherits = shop.model_copy(update={"operators": operators, "parallelism": 2})
    assert replan(inherits, {"counted": 2}).changed == {}
    found = replan(inherits, {"counted": 3})
    assert found.changed == {"counted": (2, 3)}
    assert found.job.parallelism == 2


def test_what_is_so_already_is_no_change(shop: JobSpec) -> None:
    found = replan(shop, {"counted": 2, "printed": 1})
    assert (found.changed, found.notes) == ({}, ())
    assert replan(shop, {"counted": 3, "printed": 1}).changed == {"counted": (2, 3)}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"Countd": 4}, "job 'shop' has no operator 'Countd'; did you mean 'counted'? it has: "),
        ({"x": 4}, "no operator 'x'; it has: orders, large, counted, printed, rejected"),
        ({"shop": 4}, "'shop' is the job; say which of its operators: orders, large"),
        ({"counted": 0}, "operator 'counted' has at least one subtask, so 0 cannot be"),
        ({"counted": -1}, "at least one subtask, so -1 cannot be"),
        ({"counted": 9}, "has at most 8 subtasks, so 9 cannot be: that is `max_parallelism`"),
    ],
)
def test_names_and_numbers_that_cannot_be_are_refused(
    shop: JobSpec, changes: dict[str, int], said: str
) -> None:
    assert said in refusal(shop, changes)


def test_a_stream_is_not_divided(write: Write) -> None:
    (stream,) = check_file(write(STREAM, "stream.yaml"), env={}).jobs
    assert stream.job is not None
    message = refusal(stream.job, {"sink": 2})
    assert message.startswith("operator 'sink' has one subtask, so 2 cannot be: a stream, or")


def test_every_reason_is_told_at_once(shop: JobSpec) -> None:
    assert len(refusal(shop, {"x": 2, "counted": 99, "y": 1}).splitlines()) == 3


def test_neighbours_that_go_subtask_to_subtask_are_changed_together(shop: JobSpec) -> None:
    message = refusal(shop, {"large": 2})
    assert message == (
        "edge 'a' leads from each subtask of 'orders' (1) to one of 'large', which can have 1, "
        "not 2: change both, as in `orders=2 large=2`, or stop the job, and give the edge "
        "`type: rebalance` or `partitioned: true`"
    )
    assert "which can have 1 or 2, not 3" in refusal(shop, {"printed": 3})
    grown = refusal(with_parallelism(shop, {"large": 2, "rejected": 2}), {"large": 4})
    assert "1 or 4, not 2: change both, as in `large=4 rejected=4`" in grown
    error_edge = refusal(with_parallelism(shop, {"large": 2}), {"rejected": 3})
    assert (
        "error edge 'd' leads from each subtask of 'large' (2) to one of 'rejected'" in error_edge
    )


def test_state_that_is_not_partitioned_by_its_key_keeps_one_subtask(
    shop: JobSpec, write: Write
) -> None:
    text = COUNTED.replace("parallelism: 2\n", "parallelism: 1\n")
    text = text.replace("partitioned: true", "type: rebalance")
    (job,) = check_file(write(text, "one.yaml"), env={}).jobs
    assert job.job is not None
    message = refusal(job.job, {"counted": 2})
    assert "'counted' keeps state per key and has parallelism 2" in message
    assert "`partitioned: true` on edge 'b'" in message


def test_chains_that_come_apart_or_together_are_told(shop: JobSpec) -> None:
    together = replan(shop, {"counted": 1})
    assert together.notes == (
        "'counted' and 'printed' share a chain now: no channel is between them",
    )
    assert [str(chain.chain) for chain in together.graph.chains] == ["orders-0", "counted-0"]
    assert replan(together.job, {"counted": 2}).notes == (
        "'counted' and 'printed' no longer share a chain: rows take a channel between them",
    )


def test_what_becomes_questionable_is_a_note(shop: JobSpec, write: Write) -> None:
    text = COUNTED.replace("to: large}", "to: large, partitioned: true}")
    (job,) = check_file(write(text, "keyless.yaml"), env={}).jobs
    assert job.job is not None
    apart, note = replan(job.job, {"large": 2}).notes
    assert "'large' and 'rejected' no longer share a chain" in apart
    assert "operator 'large' has no key" in note


def test_rescale_of_arkflow_is_accepted_and_changes_nothing(write: Write) -> None:
    """ArkFlow restores another task set only with `rescale: true`; here that always works (K4)."""
    plans = []
    for value in ("true", "false"):
        text = COUNTED.replace("version: 1", f"version: 1\n    rescale: {value}")
        checked = check_file(write(text, f"{value}.yaml"), env={})
        assert checked.ok
        assert not any(issue.path.endswith("rescale") for issue in checked.issues)
        plans.append(checked.jobs[0].graph)
    assert plans[0] == plans[1]
