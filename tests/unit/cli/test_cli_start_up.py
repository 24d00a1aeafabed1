"""What each command imports: the price of an answer. Figures are in benchmarks/startup.py."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

WITH_SQL = """\
streams:
  - input: {type: memory, messages: ['{"a": 1}'], codec: json}
    pipeline: {processors: [{type: sql, query: "SELECT a FROM flow"}]}
    output: {type: drop}
"""

REPORT = """
import sys
from arkflow_ray.cli.main import app
try:
    app(sys.argv[1:])
except SystemExit as ended:
    assert not ended.code, ended.code
print(*sorted(set(sys.modules) & set("ray datafusion pyarrow pydantic rich fsspec".split())))
"""


def imported_by(*arguments: object) -> set[str]:
    """Which of the heavy modules a command leaves behind in a fresh process."""
    command = [sys.executable, "-c", REPORT, *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return set(ran.stdout.splitlines()[-1].split())


def test_help_imports_nothing_heavy() -> None:
    assert imported_by("--help") == set()


@pytest.mark.parametrize("command", [["run", "--help"], ["--version"]])
def test_a_command_imports_what_typer_parses_with_at_most(command: list[str]) -> None:
    assert imported_by(*command) <= {"pydantic"}


def test_a_command_that_asks_at_doors_imports_what_typer_parses_with_at_most() -> None:
    assert imported_by("jobs") <= {"pydantic"}


def test_validate_imports_neither_ray_nor_datafusion(good_file: Path) -> None:
    assert imported_by("validate", good_file) == {"pyarrow", "pydantic"}


def test_validate_of_sql_imports_datafusion_and_no_ray(tmp_path: Path) -> None:
    path = tmp_path / "sql.yaml"
    path.write_text(WITH_SQL)
    imported = imported_by("validate", path)
    assert "datafusion" in imported
    assert "ray" not in imported


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys; a = set(sys.modules); import arkflow_ray; print(*set(sys.modules) - a)"
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    loaded = set(ran.stdout.split())
    assert "arkflow_ray" in loaded
    assert not {name for name in loaded if name.startswith(("arkflow_kernel", "arkflow_ray."))}
    assert not loaded & {"typer", "pydantic", "pyarrow", "ray"}
