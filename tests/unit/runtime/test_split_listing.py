"""Splits are listed once an attempt, off the loop; what goes wrong is each chain's own (K5, M8)."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arkflow_kernel.errors import ArkflowError, SourceError
from arkflow_kernel.ids import Generation, JobId, RequestToken, SubtaskIndex
from arkflow_kernel.plan import ComponentPlan
from arkflow_kernel.protocol import DeployChain
from arkflow_kernel.testing.plans import chain_plan
from arkflow_ray.config.secrets import VARIABLE_PREFIX
from arkflow_ray.runtime import split_listing
from arkflow_ray.runtime.split_listing import SplitListing


def deploy(path: object, subtask: int, generation: int = 1, of: int = 2) -> DeployChain:
    plan = chain_plan(f"in-{subtask}", source="in")
    assert plan.source is not None
    config: dict[str, Any] = {"input_type": {"type": "json", "path": str(path)}}
    source = replace(plan.source, component=ComponentPlan("file", config))
    plan = replace(plan, source=source, subtask=SubtaskIndex(subtask), parallelism=of)
    return DeployChain(RequestToken(1), plan, Generation(generation))


def dealt(listing: SplitListing, *commands: DeployChain, **secrets: str) -> list[Any]:
    """What becomes of commands that are performed at once: deployments or errors."""

    async def all_of_them() -> list[Any]:
        known = {f"{VARIABLE_PREFIX}{name}": value for name, value in secrets.items()}
        work = [listing.dealt(command, known) for command in commands]
        return await asyncio.gather(*work, return_exceptions=True)

    return asyncio.run(all_of_them())


def names(found: list[Any]) -> list[list[str]]:
    return [[Path(split).name for split in each.restored.assigned] for each in found]


def test_all_subtasks_of_an_attempt_share_one_list_and_the_next_attempt_has_its_own(
    tmp_path: Path,
) -> None:
    for name in "abc":
        (tmp_path / name).write_text('{"n": 1}\n', encoding="utf-8")
    listing = SplitListing(JobId("job"))
    found = dealt(listing, deploy(tmp_path, 0), deploy(tmp_path, 1))
    assert names(found) == [["a", "c"], ["b"]]
    (tmp_path / "d").write_text("", encoding="utf-8")
    assert names(dealt(listing, deploy(tmp_path, 1, 2))) == [["b", "d"]]


def test_a_source_with_one_subtask_is_left_alone(tmp_path: Path) -> None:
    command = deploy(tmp_path / "none", 0, of=1)
    assert dealt(SplitListing(JobId("job")), command) == [command]


def test_each_chain_has_an_error_of_its_own_in_which_no_secret_shows(tmp_path: Path) -> None:
    path = tmp_path / "${secret:FOLDER}"
    commands = [deploy(path, 0), deploy(path, 1)]
    first, second = dealt(SplitListing(JobId("job")), *commands, FOLDER="hunter2")
    assert isinstance(first, SourceError)
    assert first is not second
    assert "no file at" in str(first) or "cannot list" in str(first)
    assert "hunter2" not in str(first)
    assert "${secret:FOLDER}" in str(first)
    first.add_note("chain in-0")
    assert not hasattr(second, "__notes__")


def test_a_store_that_does_not_answer_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: Any) -> Any:
        await asyncio.Event().wait()

    listing = SplitListing(JobId("job"))
    monkeypatch.setattr(split_listing, "LISTING_TIMEOUT_S", 0.01)
    monkeypatch.setattr(listing, "_list", never)
    (error,) = dealt(listing, deploy(tmp_path, 0))
    assert isinstance(error, ArkflowError)
    assert "source 'in' did not list its splits within" in str(error)
