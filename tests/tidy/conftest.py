"""The files that tidy tests read, parsed once; uncommitted files count too."""

import ast
import pathlib
import subprocess

import pytest

PACKAGES = {"arkflow_ray": ".", "kernel/arkflow_kernel": "kernel"}
"""Folder of each import package, and the folder that it is imported from."""

DATA_SUFFIXES = {".arrow", ".csv", ".jsonl", ".parquet"}
TEXT_BYTES_MAX = 1 << 20


def _listed(root: pathlib.Path) -> list[str]:
    """Tracked and new files that no ignore rule covers."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    output = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout
    names = (name for name in output.decode().split("\0") if name)
    return sorted({name for name in names if (root / name).is_file()})


@pytest.fixture(scope="session")
def files(repository: pathlib.Path) -> list[str]:
    """Every file of the project, as a path from its root."""
    return _listed(repository)


@pytest.fixture(scope="session")
def texts(repository: pathlib.Path, files: list[str]) -> dict[str, str]:
    """Every file of the project that is text and no data, by its path."""
    paths = {name: repository / name for name in files}
    return {
        name: path.read_text(encoding="utf-8")
        for name, path in paths.items()
        if path.suffix not in DATA_SUFFIXES and path.stat().st_size <= TEXT_BYTES_MAX
    }


@pytest.fixture(scope="session")
def trees(texts: dict[str, str]) -> dict[str, ast.Module]:
    """Every Python file, parsed, by its path. The acceptance cases' own script is not ours."""
    return {
        name: ast.parse(text, name)
        for name, text in texts.items()
        if name.endswith(".py") and not name.startswith("tests/conformance/cases/")
    }


@pytest.fixture(scope="session")
def modules(trees: dict[str, ast.Module]) -> dict[str, str]:
    """Path of every module of the two packages, by the name that it is imported by."""
    found = {}
    for name in trees:
        for folder, root in PACKAGES.items():
            if name.startswith(f"{folder}/"):
                path = pathlib.PurePosixPath(name).relative_to(root).with_suffix("")
                found[".".join(part for part in path.parts if part != "__init__")] = name
    return found
