"""What goes to the cluster of a file: its text and its environment, never a secret (M8)."""

import json
from pathlib import Path

import pytest

from arkflow_kernel.errors import ConfigError
from arkflow_kernel.ids import CheckpointId
from arkflow_kernel.snapshot import RestoreChoice, RestoreKind
from arkflow_ray.cluster.submission import (
    ForeignSubmissionError,
    Submission,
    SubmittersEnvironment,
    parse_submission,
)
from arkflow_ray.cluster.submitting import suspicious_variables
from arkflow_ray.cluster.target import Target, find_target, the_target
from arkflow_ray.config.profiles import Profile
from tests.unit.cluster.runners_here import ENDLESS, submission

CHOICE = RestoreChoice(RestoreKind.CHECKPOINT, CheckpointId(7), accept_duplicates=True)


def test_a_submission_survives_json() -> None:
    given = Submission("shop", "shop.yaml", "streams: []", "/data", {"A": "1"}, True, CHOICE)
    assert parse_submission(json.loads(json.dumps(given.values()))) == given


def test_one_of_another_release_is_refused() -> None:
    values = Submission("shop", "shop.yaml", "", None).values() | {"format": 99}
    with pytest.raises(ForeignSubmissionError, match="another release"):
        parse_submission(values)


def test_variables_go_along_and_secrets_do_not(tmp_path: Path) -> None:
    text = ENDLESS.replace("'{\"a\": 1}'", '"${env:ROW} ${secret:KEY}"')
    env = {"ROW": "row-value", "ARKFLOW_SECRET_KEY": "hunter2", "UNUSED": "unused-value"}
    given = submission(tmp_path, text, env=env)
    assert given.environment == {"ROW": "row-value"}
    assert "hunter2" not in json.dumps(given.values())
    assert "row-value" not in repr(given)


def test_a_secret_need_not_be_set_where_the_file_is_submitted() -> None:
    environment = SubmittersEnvironment({})
    assert environment["ARKFLOW_SECRET_KEY"]
    assert environment.get("ROW") is None
    assert environment.used == {}


def test_relative_paths_begin_in_the_working_dir_of_the_profile_if_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    moved = Profile(runtime_env={"working_dir": "s3://code/shop.zip"})
    assert submission(tmp_path, ENDLESS).folder == str(tmp_path)
    assert submission(tmp_path, ENDLESS, moved).folder is None


def test_a_secret_in_the_runtime_env_is_noticed() -> None:
    profile = Profile(runtime_env={"env_vars": {"ARKFLOW_SECRET_KEY": "x", "MODE": "y"}})
    assert suspicious_variables(profile, ["ARKFLOW_SECRET_KEY"]) == ["ARKFLOW_SECRET_KEY"]
    assert suspicious_variables(Profile(), ["ARKFLOW_SECRET_KEY"]) == []


def test_an_option_counts_more_than_the_environment() -> None:
    environment = {"ARKFLOW_RAY_ADDRESS": "there:1"}
    assert find_target("here:2", None, environment) == Target("here:2")
    assert find_target(None, None, environment) == Target("there:1")
    assert find_target(None, None, {}) is None


def test_two_clusters_or_none_are_refused() -> None:
    with pytest.raises(ConfigError, match="exclude each other"):
        find_target("here:1", "prod", {})
    with pytest.raises(ConfigError, match="ARKFLOW_RAY_ADDRESS"):
        the_target(None, None, {})
