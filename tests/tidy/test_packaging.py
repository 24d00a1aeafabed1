"""The promises of pyproject.toml and the versions that are installed agree."""

import ast
import re
import sys
import tomllib
from typing import Any

import pytest

OTHER_NAMES = {"yaml", "arro3", "pydantic_core"}
"""Packages of pyyaml, arro3-io and pydantic."""


def _name(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match, requirement
    return re.sub(r"[-_.]+", "-", match.group()).lower()


def _pins(text: str) -> dict[str, str]:
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return {_name(line): line.split("==")[1] for line in lines}


def _version(text: str) -> tuple[int, ...]:
    """Numbers of a version, without closing zeros: 18.0 and 18.0.0 are one."""
    return tuple(int(n) for n in re.sub(r"(\.0)+$", "", text).split("."))


@pytest.fixture(scope="module")
def project(texts: dict[str, str]) -> dict[str, Any]:
    """The `[project]` table."""
    found: dict[str, Any] = tomllib.loads(texts["pyproject.toml"])["project"]
    return found


def test_the_oldest_promised_versions_are_the_ones_that_are_tested(
    texts: dict[str, str], project: dict[str, Any]
) -> None:
    pins = _pins(texts["constraints-lower.txt"])
    bounds = {_name(line): line.split(">=")[1] for line in project["dependencies"]}
    tested = {name: pins.get(name, "0") for name in bounds}
    assert {n: _version(v) for n, v in tested.items()} == {
        n: _version(v) for n, v in bounds.items()
    }


def test_every_direct_dependency_is_pinned(texts: dict[str, str], project: dict[str, Any]) -> None:
    direct = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    assert {_name(line) for line in direct} - _pins(texts["constraints.txt"]).keys() == set()


def test_whatever_is_imported_is_declared(
    trees: dict[str, ast.Module], project: dict[str, Any]
) -> None:
    """A library that only one machine happens to have makes a fresh clone fail."""
    direct = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    declared = {_name(line.replace("[default]", "")).replace("-", "_") for line in direct}
    own = ("arkflow_ray", "arkflow_kernel", "tests")  # tests: types of a conftest, for the checker
    known = {*declared, *OTHER_NAMES, *sys.stdlib_module_names, *own}
    undeclared = {
        f"{file}: {module}"
        for file, tree in trees.items()
        for node in ast.walk(tree)
        for module in _imported(node)
        if module.split(".")[0] not in known
        and f"{file.rpartition('/')[0]}/{module}.py" not in trees  # a script beside this one
    }
    assert undeclared == set()


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module else []


def test_a_pin_is_one_exact_version(texts: dict[str, str]) -> None:
    for file in ("constraints.txt", "constraints-lower.txt"):
        lines = [line for line in texts[file].splitlines() if not line.startswith("#")]
        assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.+]+", line)] == []
