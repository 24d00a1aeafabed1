"""The manual of components and the examples say what is true: fields, valid files, exact data."""

import re
import runpy
from pathlib import Path

import pytest

from arkflow_ray.components import registry
from arkflow_ray.components.api import ComponentEntry
from arkflow_ray.config.project import check_file

ROOT = Path(__file__).parents[3]
MANUAL = (ROOT / "docs" / "components.md").read_text()
BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", MANUAL, re.MULTILINE | re.DOTALL)
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


def _title(entry: ComponentEntry) -> str:
    return f"### {entry.kind.value.capitalize()} `{entry.name}`\n"


@pytest.mark.parametrize("entry", registry.BUILT_IN, ids=lambda e: f"{e.kind.value}-{e.name}")
def test_every_field_of_every_component_is_in_its_section(entry: ComponentEntry) -> None:
    assert MANUAL.count(_title(entry)) == 1
    section = MANUAL.split(_title(entry))[1].split("\n### ")[0].split("\n## ")[0]
    general = MANUAL.split("## Inputs\n")[1].split("\n### ")[0]
    fields = registry.config_class(entry).model_fields.items()
    names = [field.alias or name for name, field in fields]
    missing = [name for name in names if not re.search(rf"`{name}(\.\w+)?`", section + general)]
    assert missing == []


def test_the_manual_describes_no_component_that_is_not_there() -> None:
    described = set(re.findall(r"^### .*\n", MANUAL, re.MULTILINE))
    assert described == {_title(entry) for entry in registry.BUILT_IN}


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_every_example_of_the_manual_is_valid(tmp_path: Path, number: int) -> None:
    path = tmp_path / "example.yaml"
    path.write_text(BLOCKS[number])
    assert [str(issue) for issue in check_file(path).issues] == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_file_is_valid(path: Path) -> None:
    checked = check_file(path)
    # A warning says what an example shows knowingly: state that ends with the run.
    assert [str(issue) for issue in checked.errors] == []
    assert all(job.graph is not None for job in checked.jobs)


def test_the_orders_are_what_their_script_makes() -> None:
    data = ROOT / "examples" / "data"
    made = runpy.run_path(str(data / "make_orders.py"))["orders"]()
    committed = (data / "orders.jsonl").read_bytes()
    assert made == committed
    assert committed.count(b"\n") == 20_000
    assert len(committed) < 3_000_000
