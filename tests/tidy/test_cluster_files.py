"""The recipes of clusters/ fit the schemas of the tools that read them, and each other.

Not for what only such a tool could show: the README of each folder lists that.
"""

import copy
import json
import pathlib
import re
import tomllib
from typing import Any

import pytest
import ray.autoscaler
import yaml
from jsonschema import Draft202012Validator, ValidationError  # type: ignore[import-untyped]
from jsonschema import validate as validate_against

from arkflow_ray.config.project import check_file

LAUNCHER_FILES = ("cluster.yaml", "on_prem.yaml")
MANIFESTS = ("raycluster.yaml", "rayjob.yaml")
PLACEHOLDER = re.compile(r"<[^>\n]+>")

Tree = dict[str, Any]


@pytest.fixture
def clusters(repository: pathlib.Path) -> pathlib.Path:
    """The folder of the recipes."""
    return repository / "clusters"


@pytest.fixture(scope="module")
def launcher_schema() -> Tree:
    """What `ray up` checks its file with, of the version that is installed."""
    path = pathlib.Path(ray.autoscaler.__path__[0]) / "ray-schema.json"
    found: Tree = json.loads(path.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def fields(repository: pathlib.Path) -> Draft202012Validator:
    """The fields of KubeRay that the manifests may use."""
    schema = json.loads((repository / "tests/tidy/kuberay_fields.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def documents(path: pathlib.Path) -> list[Tree]:
    """The YAML documents of a file."""
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def cluster_specs(clusters: pathlib.Path) -> list[Tree]:
    """Every `RayClusterSpec` of the manifests."""
    (cluster,) = documents(clusters / "kuberay/raycluster.yaml")
    job = documents(clusters / "kuberay/rayjob.yaml")[1]
    return [cluster["spec"], job["spec"]["rayClusterSpec"]]


def containers(spec: Tree) -> list[Tree]:
    """All containers of a cluster."""
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    return [each for group in groups for each in group["template"]["spec"]["containers"]]


def pinned_ray(repository: pathlib.Path) -> str:
    """Ray's version in constraints.txt."""
    text = (repository / "constraints.txt").read_text(encoding="utf-8")
    (version,) = re.findall(r"^ray==(.+)$", text, re.MULTILINE)
    return str(version)


def image(repository: pathlib.Path) -> str:
    """Name and version of the image, without a registry."""
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return f"{project['name']}:{project['version']}"


@pytest.mark.parametrize("file", LAUNCHER_FILES)
def test_a_file_for_ray_up_fits_the_schema_of_the_installed_ray(
    clusters: pathlib.Path, launcher_schema: Tree, file: str
) -> None:
    (tree,) = documents(clusters / "ray_up" / file)
    validate_against(tree, launcher_schema)
    with pytest.raises(ValidationError, match="max_worker'"):
        validate_against({**tree, "max_worker": 3}, launcher_schema)


@pytest.mark.parametrize("file", LAUNCHER_FILES)
def test_nodes_of_ray_up_ask_for_a_token_and_run_the_image(
    clusters: pathlib.Path, repository: pathlib.Path, file: str
) -> None:
    (tree,) = documents(clusters / "ray_up" / file)
    assert "--env RAY_AUTH_MODE=token" in tree["docker"]["run_options"]
    assert "~/.ray/auth_token" in tree["file_mounts"]
    assert tree["docker"]["image"].endswith(f"/{image(repository)}")


def test_every_node_type_of_ray_up_is_there(clusters: pathlib.Path) -> None:
    (tree,) = documents(clusters / "ray_up/cluster.yaml")
    assert tree["head_node_type"] in tree["available_node_types"]
    least = sum(kind.get("min_workers", 0) for kind in tree["available_node_types"].values())
    assert 0 < least <= tree["max_workers"]


@pytest.mark.parametrize("file", MANIFESTS)
def test_a_manifest_has_only_fields_of_kuberay(
    clusters: pathlib.Path, fields: Draft202012Validator, file: str
) -> None:
    for tree in documents(clusters / "kuberay" / file):
        assert [error.message for error in fields.iter_errors(tree)] == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "gcsFaultTolerance"), {}),
        (("spec", "authOptions", "mode"), "Token"),
        (("spec", "headGroupSpec", "rayStartParams", "num-cpus"), 0),
        (("spec", "workerGroupSpecs", 0, "replica"), 2),
        (("apiVersion",), "ray.io/v1alpha1"),
    ],
)
def test_a_field_that_kuberay_does_not_have_is_seen(
    clusters: pathlib.Path, fields: Draft202012Validator, path: tuple[Any, ...], value: object
) -> None:
    tree: Any = copy.deepcopy(documents(clusters / "kuberay/raycluster.yaml")[0])
    place = tree
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert not fields.is_valid(tree)


def test_manifests_name_one_image_and_the_ray_in_it(
    clusters: pathlib.Path, repository: pathlib.Path
) -> None:
    for spec in cluster_specs(clusters):
        assert spec["rayVersion"] == pinned_ray(repository)
        images = {each["image"] for each in containers(spec)}
        assert images == {f"<registry>/{image(repository)}"}


def test_manifests_ask_for_a_token_and_hold_no_secret(clusters: pathlib.Path) -> None:
    for spec in cluster_specs(clusters):
        assert spec["authOptions"] == {"mode": "token", "secretName": "arkflow-ray-token"}
        for each in containers(spec):
            assert each["envFrom"] == [{"secretRef": {"name": "arkflow-secrets"}}]
            shown = {entry["name"] for entry in each["env"]}
            assert shown == {"ARKFLOW_CHECKPOINT_ROOT", "RAY_worker_niceness"}


def test_the_readme_makes_every_secret_that_a_manifest_names(clusters: pathlib.Path) -> None:
    readme = (clusters / "kuberay/README.md").read_text(encoding="utf-8")
    texts = [(clusters / "kuberay" / file).read_text(encoding="utf-8") for file in MANIFESTS]
    named = set(re.findall(r"arkflow-(?:ray-token|redis|secrets)", "".join(texts)))
    assert named == {"arkflow-ray-token", "arkflow-redis", "arkflow-secrets"}
    for secret in named:
        assert f"kubectl create secret generic {secret} " in readme


def test_the_pipeline_of_the_ray_job_is_valid_and_lies_where_its_command_looks(
    clusters: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, job = documents(clusters / "kuberay/rayjob.yaml")
    monkeypatch.setenv("ARKFLOW_CHECKPOINT_ROOT", "s3://bucket/checkpoints")
    file = tmp_path / "pipeline.yaml"
    file.write_text(PLACEHOLDER.sub("bucket", config["data"][file.name]), encoding="utf-8")
    project = check_file(file)
    assert project.ok, project.issues
    graph = project.jobs[0].graph
    assert graph is not None
    assert graph.checkpoint is not None
    assert not graph.checkpoint.ephemeral
    pod = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    (mount,) = pod["containers"][0]["volumeMounts"]
    (volume,) = pod["volumes"]
    assert mount["name"] == volume["name"]
    assert volume["configMap"]["name"] == config["metadata"]["name"]
    assert job["spec"]["entrypoint"].split()[-1] == f"{mount['mountPath']}/{file.name}"
    assert job["spec"]["backoffLimit"] > 0


def test_the_image_starts_from_the_pinned_ray_and_copies_what_there_is(
    clusters: pathlib.Path, repository: pathlib.Path
) -> None:
    text = (clusters / "image/Containerfile").read_text(encoding="utf-8")
    (base,) = re.findall(r"^FROM (.+)$", text, re.MULTILINE)
    assert base == f"docker.io/rayproject/ray:{pinned_ray(repository)}-py311"
    (copied,) = re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE)
    wheel = f"dist/{image(repository).replace('-', '_').replace(':', '-')}-py3-none-any.whl"
    assert set(copied.split()) == {"constraints.txt", wheel}
    assert (repository / "constraints.txt").is_file()
    assert text.count(pathlib.Path(wheel).name) == 2
