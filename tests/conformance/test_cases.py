"""The acceptance cases, through the command line, as a user runs them."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests.conformance.acceptance import CASES, compare

COMMAND = (sys.executable, "-m", "arkflow_ray.cli.main")
WINDOWS = ("tumbling", "sliding", "session", "late_update")
JOINS = ("join_inner", "join_left_outer")
TIMEOUT_S = 90


def run(
    pipeline: pathlib.Path, case: str, out: pathlib.Path, *options: str
) -> subprocess.CompletedProcess[str]:
    """Run a pipeline of a case with the variables that it names."""
    return subprocess.run(
        [*COMMAND, "run", str(pipeline), *options],
        env={**os.environ, "CASE_DIR": str(CASES / case), "OUT_DIR": str(out)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        stdin=subprocess.DEVNULL,
    )


def variant(case: str, folder: pathlib.Path, **changes: tuple[str, str]) -> pathlib.Path:
    """The case's pipeline with pieces of its text replaced; each must be there."""
    text = (CASES / case / "pipeline.yaml").read_text()
    for old, new in changes.values():
        assert old in text, old
        text = text.replace(old, new)
    pipeline = folder / "pipeline.yaml"
    pipeline.write_text(text)
    return pipeline


@pytest.mark.parametrize("driver", ["inline", "ray"])
@pytest.mark.parametrize("threads", [1, 4])
def test_stream_sql_writes_the_expected_rows_in_order(
    threads: int, driver: str, tmp_path: pathlib.Path
) -> None:
    changes = {
        "threads": ("thread_num: 4", f"thread_num: {threads}"),
        "batches": (
            "      type: file\n      input_type",
            "      type: file\n      batch_rows: 50\n      input_type",
        ),
    }
    pipeline = variant("stream_sql", tmp_path, **changes)
    options = ("--inline",) if driver == "inline" else ()
    done = run(pipeline, "stream_sql", tmp_path / "out", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    compare("stream_sql", tmp_path / "out", ordered=True)


@pytest.mark.parametrize("driver", ["inline", "ray"])
def test_stream_sql_passes_as_it_stands(driver: str, tmp_path: pathlib.Path) -> None:
    options = ("--inline",) if driver == "inline" else ()
    done = run(CASES / "stream_sql" / "pipeline.yaml", "stream_sql", tmp_path, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    compare("stream_sql", tmp_path, ordered=True)


@pytest.mark.parametrize("driver", ["inline", "ray"])
@pytest.mark.parametrize("case", [*WINDOWS, *JOINS])
def test_a_case_of_windows_or_joins_passes_as_it_stands(
    case: str, driver: str, tmp_path: pathlib.Path
) -> None:
    options = ("--inline",) if driver == "inline" else ()
    done = run(CASES / case / "pipeline.yaml", case, tmp_path, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    compare(case, tmp_path)


def test_every_case_is_run() -> None:
    cases = {path.parent.name for path in CASES.glob("*/pipeline.yaml")}
    assert cases == {"stream_sql", *WINDOWS, *JOINS}
