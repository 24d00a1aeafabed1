"""Profiles of clusters: read from `clusters.yaml`, every mistake with its place."""

from pathlib import Path

import pytest
from ray.runtime_env import RuntimeEnv

from arkflow_kernel.errors import ConfigError
from arkflow_ray.config.issues import LoadError
from arkflow_ray.config.profiles import (
    RUNTIME_ENV_KEYS,
    Profile,
    load_profile,
    load_profiles,
    profiles_file,
)
from arkflow_ray.config.project import check_file

TWO = """\
clusters:
  local: {}
  prod:
    address: ray://head:10001
    namespace: team
    runtime_env: {working_dir: ., env_vars: {MODE: fast}}
    checkpoint_root: s3://bucket/checkpoints
    resources: {num_cpus: 2}
    transport: auto
    auth: {token_file: ~/.ray/prod}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "clusters.yaml"
    path.write_text(TWO)
    return path


def test_a_profile_says_all_of_a_cluster_and_needs_nothing(file: Path) -> None:
    profiles = load_profiles(file)
    assert profiles["local"] == Profile()
    prod = profiles["prod"]
    assert (prod.address, prod.namespace) == ("ray://head:10001", "team")
    assert prod.runtime_env == {"working_dir": ".", "env_vars": {"MODE": "fast"}}
    assert prod.auth.variables() == {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(Path("~/.ray/prod").expanduser()),
    }
    assert profiles["local"].auth.variables() == {}


def test_the_variable_names_the_file(file: Path) -> None:
    assert load_profile("prod", {"ARKFLOW_RAY_CLUSTERS": str(file)}).namespace == "team"


def test_without_the_variable_it_lies_among_the_settings_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert profiles_file({}) is None
    with pytest.raises(ConfigError, match=r"there is no file of clusters: write ~/\.config"):
        load_profile("prod", {})
    folder = tmp_path / ".config/arkflow-ray"
    folder.mkdir(parents=True)
    (folder / "clusters.toml").write_text('[clusters.prod]\naddress = "head:6379"\n')
    assert load_profile("prod", {}).address == "head:6379"


def test_an_unknown_cluster_is_told_with_those_that_there_are(file: Path) -> None:
    with pytest.raises(ConfigError, match="has no cluster 'test'; there are: local, prod"):
        load_profile("test", {"ARKFLOW_RAY_CLUSTERS": str(file)})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("clusters:\n  prod:\n    adress: x\n", ":3:5: clusters.prod.adress: unknown key"),
        ("clusters:\n  prod:\n    address: 7\n", ":3:14: clusters.prod.address: "),
        ("clusters:\n  prod:\n    auth: {mode: password}\n", ":3:18: clusters.prod.auth.mode: "),
        ("clusters:\n  prod:\n    auth: {token: abc}\n", ":3:12: clusters.prod.auth.token: unkn"),
        (
            "clusters:\n  prod:\n    runtime_env: {workingdir: x}\n",
            ":3:18: clusters.prod.runtime_env: unknown key 'workingdir'; did you mean 'working_",
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "clusters.yaml"
    path.write_text(text)
    with pytest.raises(LoadError) as caught:
        load_profiles(path)
    assert str(caught.value).startswith(f"{path}{told}"), str(caught.value)


def test_the_keys_of_a_runtime_env_are_those_of_ray() -> None:
    """Names with an underscore are Ray's own business."""
    assert set(RUNTIME_ENV_KEYS) == {
        key for key in RuntimeEnv.known_fields if not key.startswith("_")
    }


def test_jobs_get_what_they_do_not_say_themselves(file: Path, tmp_path: Path) -> None:
    stream = """\
  - id: {id}
    input: {{type: generate, context: x, interval: 1s}}
    pipeline: {{processors: []}}
    output: {{type: stdout}}
"""
    own = "    checkpoint: {object_store_uri: file:///own}\n"
    path = tmp_path / "jobs.yaml"
    text = "streams:\n" + stream.format(id="bare") + stream.format(id="own") + own
    path.write_text(text)
    defaults = load_profiles(file)["prod"].defaults()
    project = check_file(path, defaults=defaults)
    roots = [
        job.graph and job.graph.checkpoint and job.graph.checkpoint.root for job in project.jobs
    ]
    assert project.ok, project.errors
    assert roots == ["s3://bucket/checkpoints", "file:///own"]
    (bare, _) = check_file(path).jobs
    assert bare.graph is not None
    assert bare.graph.checkpoint is None
    assert defaults["jobs"]["resources"] == {"num_cpus": 2}
