"""`arkflow_ray.load(path)`: from programs, threads and notebooks. Ray is in tests/integration."""

import asyncio
import contextlib
import json
import signal
import threading
from pathlib import Path

import pytest

import arkflow_ray
from arkflow_kernel.errors import BadRowError, ConfigError, RescaleError

pytestmark = pytest.mark.thorough

FAILS = """\
streams:
  - id: {}
    input: {{type: memory, messages: ['not json'], codec: json}}
    pipeline: {{processors: []}}
    output: {{type: drop}}
"""


def test_a_pipeline_runs_and_tells_how_it_went(
    good_file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result = arkflow_ray.load(good_file).run(inline=True)
    assert [job.job for job in result.jobs] == ["numbers", "silent"]
    numbers = result["numbers"]
    assert (numbers.outcome, numbers.rows_read, numbers.bad_rows) == ("finished", 3, 0)
    assert capfd.readouterr().out == '{"a":1}\n{"a":2}\n{"a":3}\n'
    with pytest.raises(KeyError):
        result["others"]


def test_the_environment_that_was_given_is_the_one_that_secrets_come_from(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        """\
streams:
  - id: told
    input: {type: memory, messages: ['{"n": 1}'], codec: json}
    pipeline:
      processors: [{type: sql, query: "SELECT length('${secret:TOKEN}') AS size FROM flow"}]
    output: {type: stdout}
"""
    )
    pipeline = arkflow_ray.load(path, env={"ARKFLOW_SECRET_TOKEN": "four"})
    assert pipeline.validate() == []
    pipeline.run(inline=True)
    assert capfd.readouterr().out == '{"size":4}\n'


def test_only_picks_jobs(good_file: Path) -> None:
    pipeline = arkflow_ray.load(good_file)
    assert [j.job for j in pipeline.run(inline=True, only=["silent"]).jobs] == ["silent"]
    with pytest.raises(ConfigError, match="no job has the id 'x'; there are: numbers, silent"):
        pipeline.run(inline=True, only=["x"])


def test_a_good_file_has_no_issues_and_is_explained(good_file: Path) -> None:
    pipeline = arkflow_ray.load(str(good_file))
    assert pipeline.validate() == []
    assert "numbers" in pipeline.explain()
    assert [job["job"] for job in json.loads(pipeline.explain("json"))["jobs"]] == [
        "numbers",
        "silent",
    ]


def test_every_mistake_is_returned_by_validate_and_raised_by_the_others(bad_file: Path) -> None:
    pipeline = arkflow_ray.load(bad_file)
    issues = pipeline.validate()
    assert [issue.line for issue in issues] == [2, 5, 7, 9, 10, 11]
    for use in (pipeline.explain, lambda: pipeline.run(inline=True)):
        with pytest.raises(arkflow_ray.LoadError) as raised:
            use()
        assert raised.value.located == issues


def test_a_missing_file_is_an_issue_too(tmp_path: Path) -> None:
    pipeline = arkflow_ray.load(tmp_path / "gone.yaml")
    (issue,) = pipeline.validate()
    assert issue.message == "there is no such file"
    with pytest.raises(arkflow_ray.LoadError, match="there is no such file"):
        pipeline.run(inline=True)


def test_a_failed_job_raises_its_error(tmp_path: Path) -> None:
    path = tmp_path / "fails.yaml"
    path.write_text(FAILS.format("one") + FAILS.format("two").removeprefix("streams:\n"))
    with pytest.raises(BadRowError) as raised:
        arkflow_ray.load(path).run(inline=True)
    first, second = raised.value.__notes__
    assert first == "(job 'one')"
    assert second.startswith("job 'two' failed as well: bad row at ")


def test_it_runs_under_a_running_event_loop(good_file: Path) -> None:
    async def cell() -> str:
        return arkflow_ray.load(good_file).run(inline=True)["silent"].outcome

    assert asyncio.run(cell()) == "finished"


def test_it_runs_outside_the_main_thread_and_leaves_signals_alone(good_file: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    outcomes: list[object] = []

    def work() -> None:
        outcomes.append(arkflow_ray.load(good_file).run(inline=True)["silent"].outcome)
        outcomes.append(signal.getsignal(signal.SIGINT) is before)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert outcomes == ["finished", True]


COUNTING = """\
jobs:
  - id: shop
    version: 1
    state: {backend: embedded_kv, durability: ephemeral}
    operators:
      - {id: orders, kind: source}
      - id: counted
        kind: map
        parallelism: 2
        stateful: true
        key_field: a
        config: {type: sql, query: "SELECT number FROM flow", state_output_field: number}
      - {id: printed, kind: sink}
    edges:
      - {id: by-a, from: orders, to: counted, partitioned: true}
      - {id: out, from: counted, to: printed}
    sources:
      - operator_id: orders
        input_type: generate
        config: {context: '{"a": 1}', interval: 2ms, count: 1500}
        codec: json
        time: {mode: processing_time}
    sinks:
      - {operator_id: printed, output_type: stdout}
"""


def test_a_job_is_rescaled_by_another_thread_while_it_runs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(COUNTING)
    pipeline = arkflow_ray.load(path)
    with pytest.raises(KeyError):
        pipeline.rescale("shop", {"counted": 3})
    results: list[arkflow_ray.RunResult] = []
    thread = threading.Thread(target=lambda: results.append(pipeline.run(inline=True)))
    thread.start()
    rescaled = None
    while rescaled is None and thread.is_alive():
        with contextlib.suppress(KeyError, RescaleError):  # it does not run yet
            rescaled = pipeline.rescale("shop", {"counted": 3})
    assert rescaled is not None
    assert rescaled.changed == {"counted": (2, 3)}
    assert set(rescaled.phases) == {
        f"{p}_ms" for p in ("prepare", "round", "end", "claim", "deploy")
    }
    assert pipeline.rescale("shop", {"counted": 3}).changed == {}
    with pytest.raises(ConfigError, match="no operator 'x'"):
        pipeline.rescale("shop", {"x": 3})
    thread.join()
    assert (results[0]["shop"].outcome, results[0]["shop"].rescales) == ("finished", 1)
    numbers = [json.loads(line)["number"] for line in capfd.readouterr().out.splitlines()]
    assert numbers == list(range(1, 1501))
    with pytest.raises(RescaleError, match="job 'shop' is over"):
        pipeline.rescale("shop", {"counted": 2})


def test_the_environment_can_be_given(tmp_path: Path) -> None:
    path = tmp_path / "env.yaml"
    path.write_text(FAILS.format("${env:NAME}"))
    assert arkflow_ray.load(path, env={"NAME": "x"}).validate() == []
    issues = arkflow_ray.load(path, env={}).validate()
    assert any("'NAME'" in issue.message for issue in issues), issues


def test_the_public_names_are_these() -> None:
    for name in arkflow_ray.__all__:
        assert getattr(arkflow_ray, name) is not None
        assert name in dir(arkflow_ray)
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        arkflow_ray.lod  # noqa: B018
