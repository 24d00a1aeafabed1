"""Commands about jobs of a cluster: which cluster is meant, and what is said without one."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from arkflow_ray.cli.places import DoorJobs, Where

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Cli

NOWHERE = "127.0.0.1:1"
COMMANDS = [
    ("jobs",),
    ("status", "shop"),
    ("logs", "shop"),
    ("stop", "shop"),
    ("cancel", "shop"),
    ("savepoint", "shop", "sp"),
    ("rescale", "shop", "count=2"),
]


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARKFLOW_RAY_ADDRESS", raising=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_cluster_that_cannot_be_reached_is_exit_code_3(
    cli: "Cli", command: tuple[str, ...]
) -> None:
    ran = cli(*command, "--address", NOWHERE)
    assert (ran.code, ran.out) == (3, "")
    assert f"cannot reach Ray at '{NOWHERE}'" in ran.err
    assert "is it running" in ran.err


def test_the_environment_names_a_cluster_too(cli: "Cli", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARKFLOW_RAY_ADDRESS", NOWHERE)
    assert cli("jobs").code == 3


def test_submit_checks_the_file_before_it_connects(cli: "Cli", bad_file: Path) -> None:
    ran = cli("submit", bad_file, "--address", NOWHERE)
    assert ran.code == 2
    assert f"{bad_file}:2:10: logging.level" in ran.err
    assert "6 mistakes" in ran.err
    assert "nothing was submitted" in ran.err


def test_submit_of_a_good_file_says_that_there_is_no_cluster(cli: "Cli", good_file: Path) -> None:
    ran = cli("submit", good_file, "--address", NOWHERE)
    assert ran.code == 3
    assert f"cannot reach Ray at '{NOWHERE}'" in ran.err


@pytest.mark.parametrize("command", [("logs", "shop"), ("jobs", "--forget", "shop")])
def test_what_only_a_cluster_has_needs_one(cli: "Cli", command: tuple[str, ...]) -> None:
    ran = cli(*command)
    assert ran.code == 2
    assert "say which cluster" in ran.err


def test_submit_needs_a_cluster(cli: "Cli", good_file: Path) -> None:
    ran = cli("submit", good_file)
    assert ran.code == 2
    assert "say which cluster" in ran.err


def test_an_unknown_profile_is_bad_usage(
    cli: "Cli", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "clusters.yaml"
    path.write_text("clusters: {local: {}}\n")
    monkeypatch.setenv("ARKFLOW_RAY_CLUSTERS", str(path))
    ran = cli("jobs", "--cluster", "prod")
    assert ran.code == 2
    assert "has no cluster 'prod'; there are: local" in ran.err


def test_two_ways_to_name_a_cluster_exclude_each_other(cli: "Cli") -> None:
    ran = cli("status", "shop", "--address", NOWHERE, "--cluster", "prod")
    assert ran.code == 2
    assert "exclude each other" in ran.err


def test_hints_repeat_how_the_cluster_was_named() -> None:
    assert Where().options == ""
    assert Where(address="head:6379").options == " --address head:6379"
    assert Where(cluster="prod").options == " --cluster prod"


@pytest.mark.parametrize(
    "code", ["working_dir: not-there", "py_modules: ['s3://bucket/x.zip', not-there]"]
)
def test_code_that_is_not_here_is_bad_usage_before_anything_is_asked(
    cli: "Cli", good_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    path = tmp_path / "clusters.yaml"
    path.write_text(f"clusters: {{prod: {{address: '{NOWHERE}', runtime_env: {{{code}}}}}}}\n")
    monkeypatch.setenv("ARKFLOW_RAY_CLUSTERS", str(path))
    ran = cli("submit", good_file, "--cluster", "prod")
    assert (ran.code, ran.out) == (2, "")
    assert "'not-there' is not on this machine (seen from " in ran.err


def test_jobs_that_do_not_answer_are_not_called_absent(
    cli: "Cli", monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = [{"job": "shop", "error": "job 'shop': it said nothing for 10 s"}]
    monkeypatch.setattr(DoorJobs, "list", lambda _: ([], silent))
    ran = cli("jobs")
    assert ran.err == "job 'shop': it said nothing for 10 s\n"
    assert ran.out == "no job that answers runs on this machine as this user\n"
