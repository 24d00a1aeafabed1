"""The distribution as a user gets it: built, installed in a fresh environment, run from nowhere.

Not for behaviour: the rest of the tests runs from the checkout and would not see a missing file.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

pytestmark = pytest.mark.timeout(600)

Environment = dict[str, str]


@pytest.fixture(scope="module")
def bare_environment() -> Environment:
    """The process's variables without those that lead back to the checkout."""
    ours = ("PYTHON", "VIRTUAL_ENV", "COV_", "PYTEST_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def _run(command: list[str], folder: pathlib.Path, environment: Environment) -> str:
    run = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, f"{command}: exit {run.returncode}\n{run.stdout}\n{run.stderr}"
    return run.stdout


@pytest.fixture(scope="module")
def wheel(
    repository: pathlib.Path,
    bare_environment: Environment,
    tmp_path_factory: pytest.TempPathFactory,
) -> pathlib.Path:
    """The wheel, built from the source distribution as an index would hold it."""
    folder = tmp_path_factory.mktemp("dist")
    _run(
        [sys.executable, "-m", "build", "--outdir", str(folder), str(repository)],
        folder,
        bare_environment,
    )
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def scripts(
    wheel: pathlib.Path,
    repository: pathlib.Path,
    bare_environment: Environment,
    tmp_path_factory: pytest.TempPathFactory,
) -> pathlib.Path:
    """The `bin` folder of a new environment that holds the wheel and what it needs."""
    folder = tmp_path_factory.mktemp("installed")
    _run([sys.executable, "-m", "venv", "venv"], folder, bare_environment)
    python = folder / "venv/bin/python"
    constraints = str(repository / "constraints.txt")
    _run(
        [
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-compile",
            "-c",
            constraints,
            str(wheel),
        ],
        folder,
        bare_environment,
    )
    return python.parent


def _big_refunds(file: pathlib.Path) -> list[int]:
    """What the example's query selects, by other means; lines that are no orders are left out."""
    found = []
    for line in file.read_bytes().splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        total = row.get("total")
        if row.get("status") == "refunded" and isinstance(total, int | float) and total > 800:
            found.append(row["id"])
    return found


@pytest.fixture
def nowhere(tmp_path: pathlib.Path, repository: pathlib.Path) -> pathlib.Path:
    """An empty folder with the examples in it, far from the checkout."""
    shutil.copytree(repository / "examples", tmp_path / "examples")
    return tmp_path


def test_the_wheel_holds_both_packages_typed_and_nothing_else(wheel: pathlib.Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"arkflow_ray", "arkflow_kernel"}
    assert {"arkflow_ray/py.typed", "arkflow_kernel/py.typed"} <= set(names)
    assert [name for name in names if name.endswith("/licenses/LICENSE")]


def test_every_module_of_the_checkout_is_in_the_wheel(
    wheel: pathlib.Path, repository: pathlib.Path
) -> None:
    roots = {"arkflow_ray": repository, "arkflow_kernel": repository / "kernel"}
    expected = {
        path.relative_to(root).as_posix()
        for package, root in roots.items()
        for path in (root / package).rglob("*.py")
    }
    names = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py")}
    assert names == expected


def test_the_packages_are_imported_from_the_installation(
    scripts: pathlib.Path, bare_environment: Environment, tmp_path: pathlib.Path
) -> None:
    code = (
        "import arkflow_ray, arkflow_kernel; print(arkflow_ray.__file__, arkflow_kernel.__file__)"
    )
    places = _run([str(scripts / "python"), "-c", code], tmp_path, bare_environment).split()
    assert all(pathlib.Path(place).is_relative_to(scripts.parent) for place in places)


def test_an_example_runs_on_ray_from_an_empty_folder(
    scripts: pathlib.Path, bare_environment: Environment, nowhere: pathlib.Path
) -> None:
    command = [str(scripts / "arkflow-ray"), "run", "examples/demo.yaml"]
    printed = [json.loads(line) for line in _run(command, nowhere, bare_environment).splitlines()]
    expected = _big_refunds(nowhere / "examples/data/orders.jsonl")
    assert expected
    assert [row["id"] for row in printed] == expected
    parts = (nowhere / "out/demo/rejected").glob("*.jsonl")
    rejected = [line for part in parts for line in part.read_text().splitlines()]
    assert len(rejected) == 4  # the damaged lines that the example speaks of
