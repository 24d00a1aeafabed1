"""Where a run begins: what the options make of it, and which of them contradict each other."""

import json
from pathlib import Path
from typing import Any

import pytest

import arkflow_ray
from arkflow_kernel.errors import ConfigError
from arkflow_kernel.ids import CheckpointId
from arkflow_kernel.snapshot import NEWEST, RestoreChoice, RestoreKind
from arkflow_ray.restore_choice import StartOptions, flag, restore_choice

STREAM = """\
streams:
  - id: numbers
    input: {type: memory, messages: ['{"a": 1}'], codec: json}
    pipeline: {processors: []}
    output: {type: drop}
"""
TWO = STREAM + STREAM.replace("streams:\n", "").replace("numbers", "others")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "pipeline.yaml"
    file.write_text(STREAM)
    return file


def test_without_a_word_a_run_begins_at_the_newest_checkpoint() -> None:
    assert restore_choice(StartOptions()) == NEWEST


@pytest.mark.parametrize(
    ("options", "choice"),
    [
        (
            StartOptions(from_savepoint="v1.2", allow_dropped_state=True),
            RestoreChoice(RestoreKind.SAVEPOINT, savepoint="v1.2", allow_dropped_state=True),
        ),
        (
            StartOptions(from_savepoint="s3://b/shop/savepoints/v1"),
            RestoreChoice(RestoreKind.SAVEPOINT, savepoint="s3://b/shop/savepoints/v1"),
        ),
        (
            StartOptions(from_savepoint="/c/shop/savepoints/../savepoints/v1"),
            RestoreChoice(RestoreKind.SAVEPOINT, savepoint="file:///c/shop/savepoints/v1"),
        ),
        (
            StartOptions(from_checkpoint=7, accept_duplicates=True),
            RestoreChoice(RestoreKind.CHECKPOINT, CheckpointId(7), accept_duplicates=True),
        ),
        (StartOptions(from_scratch=True), RestoreChoice(RestoreKind.SCRATCH)),
        (StartOptions(resume=True), RestoreChoice(must_exist=True)),
    ],
)
def test_options_become_the_choice_that_the_log_gets(
    options: StartOptions, choice: RestoreChoice
) -> None:
    assert restore_choice(options) == choice


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ["--from-savepoint", "a", "--from-checkpoint", "3"],
            "--from-savepoint and --from-checkpoint exclude each other: a run begins at one place",
        ),
        (["--from-checkpoint", "0"], "--from-checkpoint: checkpoints are counted from 1"),
        (["--from-scratch", "--allow-dropped-state"], "nothing is restored, so nothing is dropped"),
        (["--from-savepoint", ".x"], "--from-savepoint: '.x' cannot name a savepoint"),
        (["--from-scratch"], "--from-scratch: job 'numbers' keeps no checkpoints beyond a run"),
        (["--accept-duplicates"], "--accept-duplicates: job 'numbers' keeps no checkpoints"),
    ],
)
def test_options_that_contradict_themselves_or_the_file_are_bad_usage(
    cli: Any, path: Path, options: list[str], told: str
) -> None:
    ran = cli("run", "--inline", path, *options)
    assert ran.code == 2
    assert told in ran.err
    assert ran.out == ""


def test_with_json_bad_usage_is_an_object(cli: Any, path: Path) -> None:
    ran = cli("run", "--inline", path, "--from-checkpoint", "0", "--json")
    told = json.loads(ran.err)
    assert (ran.code, told["exit_code"], told["error"]["type"]) == (2, 2, "ConfigError")


def test_resuming_a_job_that_keeps_nothing_is_bad_usage(cli: Any, path: Path) -> None:
    ran = cli("resume", "--inline", path)
    assert ran.code == 2
    assert "resume: job 'numbers' keeps no checkpoints beyond a run" in ran.err


def test_a_savepoint_is_for_one_job(cli: Any, path: Path) -> None:
    path.write_text(TWO)
    ran = cli("run", "--inline", path, "--from-savepoint", "a")
    assert ran.code == 2
    assert "is for one job, and these would run: numbers, others; choose one" in ran.err


def test_resume_has_no_option_to_begin_from_scratch(cli: Any, path: Path) -> None:
    ran = cli("resume", path, "--from-scratch")
    assert ran.code == 2
    assert "--from-scratch" in ran.err


def test_a_program_says_it_with_arguments(path: Path) -> None:
    pipeline = arkflow_ray.load(path)
    with pytest.raises(ConfigError, match="from_savepoint and from_scratch exclude each other"):
        pipeline.run(inline=True, from_savepoint="a", from_scratch=True)
    with pytest.raises(ConfigError, match="from_checkpoint: job 'numbers' keeps no checkpoints"):
        pipeline.run(inline=True, from_checkpoint=1)


def test_an_option_is_spelled_as_the_command_line_has_it() -> None:
    assert flag("from_savepoint") == "--from-savepoint"
