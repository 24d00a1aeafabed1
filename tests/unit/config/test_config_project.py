"""Checking a whole file: all mistakes of all checks at once, each place once."""

import re
import subprocess
import sys
from typing import Any

import pytest

from arkflow_kernel.errors import ConfigError, Issue
from arkflow_ray.components.api import BuildContext
from arkflow_ray.config import project
from arkflow_ray.config.loader import load
from arkflow_ray.config.project import CheckedProject, check, check_file
from tests.unit.config.sample_files import JOB, STREAM, Write

Built = list[tuple[str, Any, BuildContext]]

SECRETS = {"ARKFLOW_SECRET_P": "hunter22", "P": "hunter33"}


def told(checked: CheckedProject) -> list[str]:
    return [str(i).replace(str(checked.path), "F") for i in checked.issues]


def paths(checked: CheckedProject) -> list[str]:
    return [i.path for i in checked.errors]


def test_a_good_file_gives_the_job_and_its_plan(write: Write) -> None:
    checked = check(load(write(STREAM + JOB), env={}))
    assert told(checked) == []
    assert checked.ok
    assert [(j.id, j.form, j.place) for j in checked.jobs] == [
        ("a", "stream", "streams[0]"),
        ("j", "job", "jobs[0]"),
    ]
    for job in checked.jobs:
        assert job.job is not None
        assert job.graph is not None
        assert len(job.graph.chains) == 1


SIX = """\
streams:
  - id: a
    input: {type: generat, context: x}
    pipeline:
      thread_num: 0
      processors:
        - {type: sql, query: SELEC 1}
        - {type: arrow_to_json, pretty: true}
    output: {type: stdout, codec: {type: json, on_error: stop}}
    durability: {enabled: true}
    eror_output: {type: drop}
"""


def place(issue: str) -> str:
    match = re.match(r"F:\d+:\d+: [^ ]*", issue)
    assert match, issue
    return match[0]


def test_a_file_with_six_mistakes_of_six_checks_shows_all_six(write: Write) -> None:
    found = told(check_file(write(SIX), env={}))
    assert [place(f) for f in found] == [
        "F:3:19: streams[0].input.type:",
        "F:5:19: streams[0].pipeline.thread_num:",
        "F:7:30: streams[0].pipeline.processors[0].query:",
        "F:8:33: streams[0].pipeline.processors[1].pretty:",
        "F:9:58: streams[0].output.codec.on_error:",
        "F:10:17: streams[0].durability:",
        "F:11:5: streams[0].eror_output:",
    ]


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        (
            "type: generate",
            "type: generat",
            "4:19",
            "Unknown input type: generat; did you mean 'generate'?",
        ),
        ("type: generate", "type: xyz", "4:19", "Unknown input type: xyz; available: file, "),
        ("type: generate", "type: kafka", "4:19", "the input 'kafka' is not available in this "),
        ("type: generate", "type: rocketmq", "4:19", "the input 'rocketmq' existed only in side"),
        ("type: sql", "type: SQL", "7:18", "Unknown processor type: SQL; did you mean 'sql'?"),
        ("context:", "context: 1, interval:", "4:38", "expected text, got an integer"),
        ("context:", "contxt: 1, context:", "4:29", "unknown key 'contxt'; did you mean "),
        ("context: '{\"a\": 1}'", "batch_size: 1", "4:12", "missing required key 'context'"),
        (
            "context:",
            "types: {a: it}, context:",
            "4:40",
            "must be one of 'int', 'float', 'text'; did you mean 'int'?",
        ),
        ("context:", "rows_per_second: 0, context:", "4:46", "must be above 0 and finite"),
        ("context:", "rows_per_second: x, context:", "4:46", "expected a number, got text"),
        ("context:", "codec: jsn, context:", "4:36", "Unknown codec type: jsn; did you mean "),
        ("context:", "codec: {on_error: skip}, context:", "4:36", "missing required key 'type'"),
        ("context:", "codec: {type: json, x: 1}, context:", "4:49", "unknown key 'x'; known: "),
        ("type: generate", "type: file, codec: json", "4:32", "the input 'file' takes no codec"),
        ("SELECT 1", "empty", "7:30", "the query 'empty' selects nothing"),
        ("SELECT 1", "DROP x", "7:30", "SQL query error: expected SELECT, got DROP x"),
        ("SELECT 1", "SELECT crash", "7:11", "the processor 'sql' cannot be built: RuntimeError"),
        ("type: stdout", "type: stdout, x: 1", "8:28", "unknown key 'x'"),
    ],
)
def test_a_mistake_in_a_component_is_told_with_its_place(
    write: Write, old: str, new: str, place: str, message: str
) -> None:
    (found,) = told(check_file(write(STREAM.replace(old, new)), env={}))
    assert found.startswith(f"F:{place}: ")
    assert message in found


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("input_type: generate", "input_type: generat", "jobs[0].sources[0].input_type"),
        ("codec: json", "codec: jsn", "jobs[0].sources[0].codec.type"),
        ("context: x", "context: 1", "jobs[0].sources[0].config.context"),
        ("context: x", "context: x, y: 1", "jobs[0].sources[0].config.y"),
        ("{type: generate, c", "{type: file, c", "jobs[0].sources[0].config.type"),
        (
            "context: x",
            "context: x, rows_per_second: 0",
            "jobs[0].sources[0].config.rows_per_second",
        ),
        ("query: SELECT", "query: SELEC", "jobs[0].operators[1].config.query"),
        ("type: sql", "type: sqll", "jobs[0].operators[1].config.type"),
        ("type: sql, ", "", "jobs[0].operators[1].config.type"),
        ("output_type: stdout", "output_type: stdou", "jobs[0].sinks[0].output_type"),
        ("output_type: stdout", "output_type: stdout, config: {x: 1}", "jobs[0].sinks[0].config.x"),
        ("to: m", "to: nobody", "jobs[0].edges[0].to"),
        ("id: j", "id: 'j j'", "jobs[0].id"),
    ],
)
def test_a_mistake_in_a_job_is_told_at_its_path(
    write: Write, old: str, new: str, path: str
) -> None:
    assert path in paths(check_file(write(JOB.replace(old, new)), env={}))


def test_an_entry_with_a_wrong_value_is_checked_by_the_other_rules_too(write: Write) -> None:
    text = JOB.replace("version: 1", "version: 1\n    rescale: 5\n    recovry: x")
    text = text.replace("to: m}", "to: nobody}").replace("type: sql,", "type: sqll,")
    assert set(paths(check_file(write(text), env={}))) >= {
        "jobs[0].rescale",
        "jobs[0].recovry",
        "jobs[0].operators[1].config.type",
        "jobs[0].edges[0].to",
    }


def test_a_removed_value_is_not_complained_about_again(write: Write) -> None:
    text = JOB.replace("version: 1", "version: 1\n    checkpoint: {interval_ms: 5}")
    assert paths(check_file(write(text), env={})) == ["jobs[0].checkpoint.object_store_uri"]


def test_a_file_that_does_not_load_shows_its_component_mistakes_too(write: Write) -> None:
    text = STREAM.replace("SELECT 1", "DROP").replace("pipeline:", "pipelin:\n    pipeline:")
    assert len(check_file(write(text), env={}).errors) == 2


def test_components_are_built_with_their_secrets_and_operator_ids(
    write: Write, built: Built
) -> None:
    text = STREAM.replace("context: '{\"a\": 1}'", "context: '${secret:P} $${secret:P}'")
    text = text.replace("type: sql,", "type: sql, name: mine,")
    checked = check_file(write(text), env=SECRETS)
    assert checked.ok
    by_name = {name: (config, context) for name, config, context in built}
    config, context = by_name["GenerateConfig"]
    assert config.context == "hunter22 ${secret:P}"
    assert (context.operator, context.codec) == ("source", None)
    assert by_name["SqlConfig"][1].operator == "mine"
    assert checked.jobs[0].job is not None
    assert checked.jobs[0].job.sources[0].config == {"context": "${secret:P} $${secret:P}"}
    assert "hunter22" not in repr(checked.jobs)


def test_a_codec_is_built_before_its_component_and_handed_over(write: Write, built: Built) -> None:
    text = STREAM.replace("context:", "codec: {type: json, on_error: skip}, context:")
    assert check_file(write(text), env={}).ok
    assert [name for name, _, _ in built[:2]] == ["CodecConfig", "GenerateConfig"]
    assert built[0][1].on_error == "skip"
    assert built[1][2].codec is not None


@pytest.mark.parametrize("reference", ["${secret:P}", "${env:P}"])
@pytest.mark.parametrize("value", ["DROP {} now", "SELECT crash {}", "{}"])
def test_a_value_is_taken_out_of_a_component_s_own_message(
    write: Write, reference: str, value: str
) -> None:
    query = value.format(reference)
    checked = check_file(write(STREAM.replace("SELECT 1", f"'{query}'")), env=SECRETS)
    (found,) = told(checked)
    assert "hunter" not in found
    assert reference in found


def test_a_type_from_a_reference_is_not_shown(write: Write) -> None:
    checked = check_file(write(STREAM.replace("type: sql", "type: '${env:P}'")), env=SECRETS)
    (found,) = told(checked)
    assert "Unknown processor type: ${env:P}" in found


def test_a_job_with_mistakes_has_no_plan(write: Write) -> None:
    checked = check_file(write(STREAM + JOB.replace("to: m", "to: nobody")), env={})
    assert [job.graph is None for job in checked.jobs] == [False, True]
    assert not checked.ok


def test_checking_twice_says_the_same_and_changes_nothing(write: Write) -> None:
    loaded = load(write(STREAM.replace("SELECT 1", "DROP").replace("id: a", "id: ~")), env={})
    before = list(loaded.warnings)
    assert told(check(loaded)) == told(check(loaded))
    assert loaded.warnings == before


def test_warnings_of_the_compiler_are_shown_once(write: Write) -> None:
    text = STREAM.replace("id: a", "id: ~").replace("type: sql,", "type: sql, name: sink,")
    checked = check_file(write(text), env={})
    assert checked.ok
    assert [w.path for w in checked.warnings] == [
        "streams[0].id",
        "streams[0].pipeline.processors[0].name",
    ]


def test_a_cyclic_job_is_told_and_not_planned(write: Write) -> None:
    cycle = JOB.replace(
        "{id: f,", "{id: g, from: m, to: n}\n      - {id: h, from: n, to: m}\n      - {id: f,"
    ).replace(
        "      - {id: out,",
        "      - {id: n, kind: map, config: {type: sql, query: SELECT 1}}\n      - {id: out,",
    )
    messages = [i.message for i in check_file(write(cycle), env={}).errors]
    assert any("acyclic" in message for message in messages)


def test_issues_of_the_plan_are_located(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_job: Any, _stages_epochs: Any) -> Any:
        raise ConfigError([Issue("operators[1].config.query", "cannot be planned")])

    monkeypatch.setattr(project, "build_graph", fail)
    checked = check_file(write(STREAM), env={})
    assert told(checked) == ["F:7:30: streams[0].pipeline.processors[0].query: cannot be planned"]


def test_unknown_keys_of_components_are_warnings_in_lenient_mode(write: Write) -> None:
    text = STREAM.replace("context:", "contxt: 1, context:")
    checked = check_file(write(text), env={}, lenient=True)
    assert checked.ok
    assert [w.path for w in checked.warnings] == ["streams[0].input.contxt"]


def test_checking_a_file_without_sql_imports_no_engine_and_no_cluster(write: Write) -> None:
    text = STREAM.replace("{type: sql, query: SELECT 1}", "{type: arrow_to_json}")
    text = text.replace("context:", "interval: 1s, context:")
    program = (
        "import sys; from arkflow_ray.config.project import check_file; "
        "checked = check_file(sys.argv[1]); print(checked.errors); "
        "print([m for m in ('ray', 'datafusion', 'fsspec', 'polars') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, str(write(text))],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert result.stdout.splitlines() == ["[]", "[]"]
