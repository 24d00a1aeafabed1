"""Checkpoints in a file: where they lie, and sinks that insist on being exactly-once."""

import os
from pathlib import Path

import pytest

from arkflow_kernel.plan import CheckpointPlan
from arkflow_ray.checkpoint.roots import parse_root
from arkflow_ray.config.project import CheckedProject, check_file
from tests.unit.config.sample_files import Write

FILE = """
streams:
  - id: a
    input: {type: memory, messages: []}
    pipeline: {}
    output: {type: file, path: out, format: json}
    error_output: {type: stdout}
    checkpoint: {object_store_uri: ROOT}
"""


@pytest.fixture(autouse=True)
def components() -> None:
    """The built-in components, not those of the neighbours' tests."""


def _checked(write: Write, text: str) -> CheckedProject:
    return check_file(write(text), env={"USER": "me", "KEYED": "s3://key:hunter2@bucket/x"})


def _plan(checked: CheckedProject) -> CheckpointPlan:
    [job] = checked.jobs
    assert job.graph is not None, checked.errors
    assert job.graph.checkpoint is not None
    return job.graph.checkpoint


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        ("ckpt", "file://{cwd}/ckpt"),
        ("./ckpt/", "file://{cwd}/ckpt"),
        ("../x", "file://{parent}/x"),
        ("/var/ckpt", "file:///var/ckpt"),
        ("file:///var/ckpt/", "file:///var/ckpt"),
        ("file://localhost/var/x", "file:///var/x"),
        ("file://./var/x", "file://{cwd}/var/x"),
        ("file://var/x", "file://{cwd}/var/x"),
        ("~/x", "file://{home}/x"),
        ("ckpt/${env:USER}", "file://{cwd}/ckpt/me"),
        ("a@b", "file://{cwd}/a@b"),
        ("s3://bucket/x", "s3://bucket/x"),
        ("gs://bucket", "gs://bucket"),
        ("az://container/x", "az://container/x"),
    ],
)
def test_a_local_root_is_absolute_and_one_text_whatever_its_spelling(
    write: Write, root: str, expected: str
) -> None:
    """C8."""
    told = {"cwd": os.getcwd(), "parent": Path.cwd().parent, "home": Path.home()}
    checked = _checked(write, FILE.replace("ROOT", f"'{root}'"))
    absolute = _plan(checked).root
    assert absolute == expected.format(**told)
    assert parse_root(absolute).url == absolute, "the store reads it otherwise"


@pytest.mark.parametrize(
    ("root", "phrase"),
    [
        ("memory://x", "a job's processes do not share it; use a folder: `file:///…`"),
        ("s3a://b/x", "`s3a://` is not a name of a store here; write `s3://…`"),
        ("ftp://h/x", "checkpoints cannot lie in `ftp://`; use `file://`, `s3://`"),
        ("file:/x", "the `//` is missing; write `file://…`"),
        ("hdfs://h/x", "checkpoints cannot lie in `hdfs://`"),
        ("zip://x::s3://b", "`::` chains file systems"),
        ("s3://b/../x", "it holds an empty, `.` or `..` part"),
        ("x::y", "`::` chains file systems"),
        ("s3:///x", "the bucket is missing; write `s3://bucket/folder`"),
        ("file://", "the path is missing"),
        ("s3://[x/y", "this is not a URL"),
        ("s3://key:hunter2@b/x", "no credentials and no `?…`"),
        ("s3://b/x?token=hunter2", "no credentials and no `?…`"),
        ("${env:KEYED}", "no credentials and no `?…`"),
        (" ", "must not be empty"),
        ("${secret:ROOT:-x}", "cannot stand here"),
    ],
)
def test_a_root_that_cannot_be_used_is_one_error_that_does_not_show_it(
    write: Write, root: str, phrase: str
) -> None:
    """M1, M8."""
    [issue] = _checked(write, FILE.replace("ROOT", f"'{root}'")).errors
    assert issue.path == "streams[0].checkpoint.object_store_uri"
    assert issue.line == 8
    assert phrase in issue.message
    assert "hunter2" not in str(issue)


def test_only_sinks_that_can_are_exactly_once(write: Write) -> None:
    [job] = _checked(write, FILE.replace("ROOT", "x")).jobs
    assert job.graph is not None
    sinks = {sink.operator: sink.exactly_once for sink in job.graph.chains[0].sinks}
    assert sinks == {"sink": True, "error-sink": False}


@pytest.mark.parametrize(
    ("old", "new", "path", "phrase"),
    [
        (
            "{type: stdout",
            "{type: stdout, exactly_once: true",
            "streams[0].error_output.exactly_once",
            "output 'stdout' cannot hold rows back until a checkpoint; remove the key",
        ),
        (
            "path: out,",
            "path: 's3://b/out', exactly_once: true,",
            "streams[0].output.exactly_once",
            "needs a local `path`",
        ),
        (
            "    checkpoint: {object_store_uri: ROOT}",
            "",
            "streams[0].output.exactly_once",
            "needs a `checkpoint:` block; add one, or set it to false",
        ),
        ("ROOT", "x, timeout_ms: 0", "streams[0].checkpoint.timeout_ms", "must be positive"),
    ],
)
def test_a_promise_that_cannot_be_kept_is_one_error_at_its_place(
    write: Write, old: str, new: str, path: str, phrase: str
) -> None:
    text = FILE.replace(old, new)
    if not new:
        text = text.replace("path: out,", "path: out, exactly_once: true,")
    [issue] = _checked(write, text.replace("ROOT", "x")).errors
    assert issue.path == path
    assert phrase in issue.message


def test_two_jobs_may_have_one_root(write: Write) -> None:
    text = FILE.replace("ROOT", "x")
    second = text.replace("streams:\n", "").replace("id: a", "id: b")
    checked = _checked(write, text + second)
    assert checked.issues == []
    roots = {
        job.graph.checkpoint.root for job in checked.jobs if job.graph and job.graph.checkpoint
    }
    assert len(roots) == 1


def test_a_root_of_state_is_a_warning_that_says_where_state_lies(write: Write) -> None:
    text = """
jobs:
  - id: j
    version: 1
    operators: [{id: in, kind: source}, {id: out, kind: sink}]
    edges: [{id: e, from: in, to: out}]
    sources: [{operator_id: in, input_type: memory, time: {mode: processing_time}}]
    sinks: [{operator_id: out, output_type: stdout}]
    checkpoint: {object_store_uri: x}
    state: {backend: redb, root: /x}
"""
    checked = _checked(write, text)
    assert checked.ok
    assert [w.path for w in checked.warnings] == ["jobs[0].state.root"]
    assert "below `checkpoint.object_store_uri`" in checked.warnings[0].message
