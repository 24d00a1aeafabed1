"""docs/architecture.md names what is in the tree, and says *later* of what is not."""

import pathlib
import re

import pytest

NAME = re.compile(r"`([a-z_]+(?:\.py|/))`")


@pytest.fixture(scope="module")
def document(repository: pathlib.Path) -> str:
    return (repository / "docs/architecture.md").read_text(encoding="utf-8")


def _kernel_table(document: str) -> tuple[set[str], set[str]]:
    """Names in the first column of the kernel's table: those of today, and those of later."""
    now: set[str] = set()
    later: set[str] = set()
    table = document.partition("| module | holds |")[2].partition("\n\n")[0]
    for line in table.splitlines():
        cell = line.partition("| ")[2].partition(" |")[0]
        (later if cell.startswith("*later:*") else now).update(NAME.findall(cell))
    return now, later


def test_the_kernel_table_names_every_module_of_the_kernel_and_no_other(
    repository: pathlib.Path, document: str
) -> None:
    kernel = repository / "kernel/arkflow_kernel"
    there = {path.name for path in kernel.glob("*.py")} - {"__init__.py"}
    there |= {f"{path.parent.name}/" for path in kernel.glob("*/__init__.py")}
    now, later = _kernel_table(document)
    assert now == there
    assert not later & there


def test_the_layout_names_every_folder_and_says_which_come_later(
    repository: pathlib.Path, document: str
) -> None:
    layout = document.partition("## Layout")[2].split("```")[1]
    parent = ""
    for line in filter(None, layout.splitlines()):
        names, _, rest = line.strip().partition("  ")
        indented = line.startswith(" ")
        for name in names.split():
            path = repository / (f"{parent}{name}" if indented else name)
            filled = path.is_file() or any(path.glob("**/*.*"))
            assert filled is not rest.strip().startswith("later:"), line
        if not indented:
            parent = names
    folders = {path.parent.name for path in repository.glob("arkflow_ray/*/__init__.py")}
    assert {f"{folder}/" for folder in folders} <= set(layout.split())
