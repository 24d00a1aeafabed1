"""What `state:`, `checkpoint:` and `recovery:` say together (F0, rules 4, 5, 14 and 15 of C6)."""

from collections.abc import Callable

import pytest

from arkflow_kernel.job import JobSpec
from arkflow_kernel.job_validation import validate_job
from arkflow_kernel.testing.job_changes import (
    CHECKPOINT,
    STATE,
    Change,
    add_edge,
    add_operator,
    all_of,
    as_window,
    set_at,
)

Jobs = Callable[..., JobSpec]

UNSAVED = all_of(as_window(), set_at("checkpoint", to=None))


@pytest.mark.parametrize(
    ("change", "path", "phrase"),
    [
        (
            UNSAVED,
            "state",
            "its state ends with the run: without a `checkpoint:` block checkpoints lie in a "
            "folder that ends with it; add the block, or say `state: {backend: embedded_kv, "
            "durability: ephemeral}`",
        ),
        (
            all_of(as_window(), set_at("state", to=STATE | {"root": "/x"})),
            "state.root",
            "what outlives it lies in checkpoints, below `checkpoint.object_store_uri`",
        ),
        (
            set_at("recovery", to="latest_savepoint"),
            "recovery",
            "`recovery: latest_savepoint` has no effect without a `checkpoint:` block",
        ),
    ],
)
def test_what_has_no_effect_or_ends_with_the_run_is_one_warning(
    job: Jobs, change: Change, path: str, phrase: str
) -> None:
    [issue] = validate_job(job(change))
    assert (issue.path, issue.warning) == (path, True)
    assert phrase in issue.message


@pytest.mark.parametrize(
    "change",
    [
        all_of(UNSAVED, set_at("state", to=STATE | {"durability": "ephemeral"})),
        all_of(as_window(), set_at("recovery", to="fail")),
        all_of(set_at("checkpoint", to=CHECKPOINT), set_at("recovery", to="latest_savepoint")),
    ],
)
def test_what_was_asked_for_needs_no_warning(job: Jobs, change: Change) -> None:
    assert validate_job(job(change)) == []


def test_a_round_needs_time(job: Jobs) -> None:
    [issue] = validate_job(job(set_at("checkpoint", to=CHECKPOINT | {"timeout_ms": 0})))
    assert (issue.path, issue.warning) == ("checkpoint.timeout_ms", False)


def test_a_ttl_that_no_state_has_is_a_warning(job: Jobs) -> None:
    ttl = set_at("state", to=STATE | {"ttl_ms": 5})
    [issue] = validate_job(job(all_of(as_window(), ttl)))
    assert (issue.path, issue.warning) == ("state.ttl_ms", True)
    count = {"stateful": True, "key_field": "k", "config": {"type": "sql"}}
    counting = all_of(
        as_window(), add_operator(id="m", kind="map", **count), add_edge("gates", "m")
    )
    found = validate_job(job(all_of(counting, add_edge("m", "totals"), ttl)))
    assert [issue.path for issue in found] == []
