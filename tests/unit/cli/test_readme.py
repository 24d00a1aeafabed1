"""What the README shows is what happens."""

import re
from pathlib import Path
from typing import Any

import pytest

README = (Path(__file__).parents[3] / "README.md").read_text()


def block(language: str) -> str:
    """The first block of this language."""
    found = re.search(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found.group(1)


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "pipeline.yaml"
    path.write_text(block("yaml"))
    monkeypatch.chdir(tmp_path)
    return path


def test_the_first_pipeline_prints_what_the_readme_shows(cli: Any, pipeline: Path) -> None:
    ran = cli("run", "--inline", pipeline)
    assert ran.code == 0
    assert ran.out == '{"sensor":"b","celsius":31.0}\n'
    assert f"\n{ran.out}```" in README


@pytest.mark.usefixtures("pipeline")
def test_the_python_of_the_readme_runs() -> None:
    code = block("python")
    assert "pipeline.run()" in code
    # Ray is in tests/integration.
    names: dict[str, Any] = {}
    exec(code.replace("pipeline.run()", "pipeline.run(inline=True)"), names)
    assert names["result"]["warm"].rows_written == {"sink": 1}


def test_every_command_of_the_readme_exists(cli: Any) -> None:
    commands = set(re.findall(r"arkflow-ray ([a-z]+)", README)) - {"runs"}
    assert commands >= {"validate", "explain", "run", "components"}
    for command in commands:
        assert cli(command, "--help").code == 0, command
