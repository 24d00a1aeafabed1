"""Loading a file: every mistake, its place, and our words for it."""

import json
from pathlib import Path
from typing import Any

import pytest

from arkflow_ray.config.issues import LoadError
from arkflow_ray.config.loader import load
from tests.unit.config.sample_files import STREAM, Write

JOB = """
jobs:
  - id: j
    version: 1
    operators:
      - {id: in, kind: source}
      - {id: out, kind: sink}
    edges:
      - {id: e, from: in, to: out}
    sources:
      - operator_id: in
        input_type: generate
        config: {type: generate, context: x}
        time: {mode: processing_time}
    sinks:
      - {operator_id: out, output_type: stdout}
"""


def mistakes(path: Path, **options: Any) -> list[str]:
    with pytest.raises(LoadError) as caught:
        load(path, env={}, **options)
    assert [str(i) for i in caught.value.located] == str(caught.value).split("\n")
    return [str(i).replace(str(path), "F") for i in caught.value.located]


def test_streams_and_jobs_load_together(write: Write) -> None:
    loaded = load(write(STREAM + JOB), env={})
    assert [s.id for s in loaded.config.streams] == ["a"]
    assert loaded.config.streams[0].pipeline.thread_num == 1
    assert loaded.config.jobs[0].sources[0].config == {"type": "generate", "context": "x"}
    assert loaded.config.jobs[0].max_parallelism == 128
    assert loaded.config.logging is None
    assert loaded.warnings == []


def test_the_same_file_in_json_and_toml_gives_the_same_configuration(write: Write) -> None:
    yaml = load(write(STREAM), env={}).config
    toml = """
        [[streams]]
        id = "a"
        input = {type = "generate", context = '{"a": 1}'}
        output.type = "stdout"
        [streams.pipeline]
        [[streams.pipeline.processors]]
        type = "sql"
        query = "SELECT 1"
    """
    data = json.dumps(yaml.model_dump(mode="json", exclude_unset=True))
    assert load(write(data, "p.json"), env={}).config == yaml
    assert load(write(toml, "p.toml"), env={}).config == yaml


def test_locate_gives_line_and_column_of_a_path(write: Write) -> None:
    loaded = load(write(STREAM), env={})
    assert loaded.locate("streams[0].pipeline.processors[0].query") == (7, 30)
    assert loaded.locate("streams[0].pipeline.processors[0].timeout_ms") == (7, 11)
    assert loaded.locate("streams[0].input.context") == (4, 38)
    with pytest.raises(ValueError, match="not a configuration path"):
        loaded.locate("streams[x")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "processors:",
            "proccessors:",
            "F:6:7: streams[0].pipeline.proccessors: unknown key 'proccessors'; "
            "did you mean 'processors'?",
        ),
        (
            "    input: {type: generate, context: '{\"a\": 1}'}\n",
            "",
            "F:3:5: streams[0].input: missing required key 'input'",
        ),
        (
            "pipeline:\n",
            "pipeline:\n      thread_num: four\n",
            "F:6:19: streams[0].pipeline.thread_num: expected an integer, got text",
        ),
        (
            "pipeline:\n",
            "pipeline:\n      thread_num: 0\n",
            "F:6:19: streams[0].pipeline.thread_num: must be at least 1",
        ),
        (
            "pipeline:\n",
            "pipeline:\n      chain: 'no'\n",
            "F:6:14: streams[0].pipeline.chain: expected true or false, got text",
        ),
        (
            "output: {type: stdout}",
            "output: stdout",
            "F:8:13: streams[0].output: expected a mapping, got text",
        ),
        (
            "output: {type: stdout}",
            "output: {}",
            "F:8:13: streams[0].output.type: missing required key 'type'",
        ),
        (
            "output: {type: stdout}",
            "output: {type: stdout, codec: [json]}",
            "F:8:35: streams[0].output.codec: expected a mapping or text, got a list",
        ),
        (
            "- {type: sql, query: SELECT 1}",
            "- sql",
            "F:7:11: streams[0].pipeline.processors[0]: expected a mapping, got text",
        ),
        (
            "id: a",
            "id: 010x y",
            "F:3:9: streams[0].id: Invalid stream id '010x y' at index 0; "
            "use non-empty letters, numbers, '-' or '_'",
        ),
        ("id: a", "id: 5", "F:3:9: streams[0].id: expected text, got an integer"),
        (
            "streams:",
            "logging: {level: NO}\nstreams:",
            "F:2:18: logging.level: must be one of 'trace', 'debug', 'info', 'warn', 'error'; "
            "did you mean 'info'?",
        ),
        (
            "streams:",
            "loging: {}\nstreams:",
            "F:2:1: loging: unknown key 'loging'; did you mean 'logging'?",
        ),
        (
            "streams:",
            "health_check: {data_port: 70000}\nstreams:",
            "F:2:27: health_check.data_port: must be at most 65535",
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(write: Write, old: str, new: str, told: str) -> None:
    assert old in STREAM
    assert mistakes(write(STREAM.replace(old, new))) == [told]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "kind: sink",
            "kind: snik",
            "F:7:25: jobs[0].operators[1].kind: must be one of 'source', 'map', 'filter', "
            "'aggregate', 'window', 'join', 'sink', 'udf', 'deduplicate', 'top_n'; did you mean "
            "'sink'?",
        ),
        (
            "from: in,",
            "form: in,",
            "F:9:9: jobs[0].edges[0].from: missing required key 'from'",
        ),
        (
            "{mode: processing_time}",
            "{mode: processing_time, watermark: {idle_timeout_ms: -1}}",
            "F:14:68: jobs[0].sources[0].time.watermark.idle_timeout_ms: must be at least 0",
        ),
        (
            "version: 1",
            "version: 1\n    placement: [split]",
            "F:5:16: jobs[0].placement: expected one of 'colocated', 'split' or a mapping, "
            "got a list",
        ),
        (
            "version: 1",
            "version: 1.0",
            "F:4:14: jobs[0].version: expected an integer, got a decimal number",
        ),
    ],
)
def test_a_mistake_in_a_job_is_told_with_its_place(
    write: Write, old: str, new: str, told: str
) -> None:
    assert told in mistakes(write(JOB.replace(old, new)))


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file(write: Write) -> None:
    text = STREAM.replace("id: a", "id: a\n    idd: b").replace("pipeline:", "pipelin:")
    found = mistakes(write("logging: {format: xml}\n" + text + "health_chek: {}\n"))
    assert [f.split(": ")[1] for f in found] == [
        "logging.format",
        "streams[0].pipeline",
        "streams[0].idd",
        "streams[0].pipelin",
        "health_chek",
    ]


def test_lenient_mode_drops_unknown_keys_with_a_warning(write: Write) -> None:
    text = STREAM.replace("id: a", "id: a\n    idd: b").replace("context:", "contxt: 1, context:")
    text = text.replace("query:", "codec: x, query:") + "extra: {}\n"
    text = text.replace("{type: stdout}", "{type: stdout, codec: {type: json, on_eror: skip}}")
    loaded = load(write(text), env={}, lenient=True)
    assert [w.path for w in loaded.warnings] == [
        "streams[0].idd",
        "streams[0].input.contxt",
        "streams[0].pipeline.processors[0].codec",
        "streams[0].output.codec.on_eror",
        "extra",
    ]
    assert all(w.warning for w in loaded.warnings)
    assert "did you mean 'context'?" in loaded.warnings[1].message
    assert loaded.config.streams[0].input.config == {"context": '{"a": 1}'}
    assert loaded.config.streams[0].output.codec == {"type": "json"}


def test_lenient_mode_still_refuses_wrong_values(write: Write) -> None:
    text = STREAM.replace("pipeline:\n", "pipeline:\n      thread_num: x\n      y: 1\n")
    found = mistakes(write(text), lenient=True)
    assert found == ["F:6:19: streams[0].pipeline.thread_num: expected an integer, got text"]


@pytest.mark.parametrize("text", ["streams: []\n", "jobs: []\n", "logging: {}\n", "streams:\n"])
def test_a_file_without_streams_and_jobs_is_refused(write: Write, text: str) -> None:
    (found,) = mistakes(write(text))
    assert found.startswith("F:1:1: the file declares neither streams nor jobs")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- a\n", "F:1:1: expected a mapping with `streams` or `jobs`, got a list"),
        ("hello\n", "F:1:1: expected a mapping with `streams` or `jobs`, got text"),
        ("${secret:X}\n", "F:1:1: expected a mapping with `streams` or `jobs`, got text"),
    ],
)
def test_a_file_that_is_no_mapping_is_refused(write: Write, text: str, told: str) -> None:
    assert mistakes(write(text)) == [told]


def test_streams_that_are_no_list_are_refused(write: Write) -> None:
    assert mistakes(write("streams: {id: a}\n")) == [
        "F:1:10: streams: expected a list, got a mapping"
    ]
    assert mistakes(write("streams: [5]\n")) == [
        "F:1:11: streams[0]: expected a mapping, got an integer"
    ]


def test_duplicate_keys_are_mistakes_of_the_file(write: Write) -> None:
    (found,) = mistakes(write(STREAM + STREAM))
    assert found == "F:10:1: the key 'streams' stands twice; it is first at line 2"


def two_streams(first: str, second: str) -> str:
    one, two = STREAM.replace("id: a", first), STREAM.replace("id: a", second)
    return one + two.replace("\nstreams:\n", "")


def test_ids_that_repeat_are_refused(write: Write) -> None:
    assert mistakes(write(two_streams("id: a", "id: a"))) == [
        "F:9:9: streams[1].id: Duplicate stream id 'a' at index 1"
    ]
    second = JOB.replace("\njobs:\n", "")
    assert mistakes(write(JOB + second)) == ["F:17:9: jobs[1].id: Duplicate job id 'j'"]
    (found,) = mistakes(write(STREAM.replace("id: a", "id: j") + JOB))
    assert "jobs[0].id: Duplicate job id 'j': streams[0] has it already" in found


def test_a_missing_id_is_the_place_in_the_list_and_a_warning(write: Write) -> None:
    loaded = load(write(two_streams("id: a", "name_less: 1")), env={}, lenient=True)
    (_, warning) = sorted(loaded.warnings, key=lambda w: w.path)[::-1]
    assert warning.path == "streams[1].id"
    assert "called 'stream-1'" in warning.message
    (found,) = mistakes(write(two_streams("id: stream-1", "id: ~")))
    assert found.endswith("Duplicate stream id 'stream-1' at index 1") is True


def test_references_are_resolved_and_secrets_are_not(write: Write) -> None:
    env = {"CTX": "deep", "ARKFLOW_SECRET_T": "hunter22"}
    text = STREAM.replace("'{\"a\": 1}'", "'${env:CTX}/${secret:T}/$${secret:T}'")
    loaded = load(write(text), env=env)
    assert loaded.config.streams[0].input.config["context"] == "deep/${secret:T}/$${secret:T}"
    assert "hunter22" not in repr(loaded)
    assert "hunter22" not in repr(loaded.reading)


def test_a_missing_variable_is_told_with_its_place(write: Write) -> None:
    text = STREAM.replace("SELECT 1", "'${env:Q} ${secret:R} ${env:S:-x}'")
    found = mistakes(write(text))
    assert [f.split(" is not set")[0] for f in found] == [
        "F:7:30: streams[0].pipeline.processors[0].query: environment variable 'ARKFLOW_SECRET_R'",
        "F:7:30: streams[0].pipeline.processors[0].query: environment variable 'Q'",
    ]


def test_a_value_from_a_reference_is_in_no_message(write: Write) -> None:
    text = two_streams("id: '${env:P}'", "id: '${env:P}'")
    text = text.replace("SELECT 1}", "SELECT 1, type: '${env:P}'}", 0)
    text = "logging: {level: '${env:P}', file_path: '${env:P}', format: '${env:P}'}\n" + text
    path = write(text.replace("pipeline:\n", "pipeline:\n      thread_num: '${env:P}'\n"))
    with pytest.raises(LoadError) as caught:
        load(path, env={"P": "hunter 22"})
    found = str(caught.value)
    assert "hunter" not in found
    assert "Invalid stream id '${env:P}' at index 0" in found
    assert "expected an integer, got text (what a reference gives is always text)" in found
    assert len(caught.value.located) == 7


def test_the_environment_of_the_process_is_the_default(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARKFLOW_TEST_ID", "from-env")
    loaded = load(str(write(STREAM.replace("id: a", "id: '${env:ARKFLOW_TEST_ID}'"))))
    assert loaded.config.streams[0].id == "from-env"
