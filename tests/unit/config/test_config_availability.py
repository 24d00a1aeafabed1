"""What parses and this release does not do is refused in a sentence, never ignored."""

from pathlib import Path

import pytest

from arkflow_ray.config.project import check_file
from tests.unit.config.sample_files import JOB, STREAM, Write


def refused(write: Write, text: str) -> list[tuple[str, str]]:
    path: Path = write(text)
    return [(i.path, i.message) for i in check_file(path, env={}).errors]


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("output:", "temporary: [{type: redis, name: t}]\n    output:", "streams[0].temporary"),
        ("output:", "durability: {path: x}\n    output:", "streams[0].durability"),
        ("streams:", "plugins: [a.b]\nstreams:", "plugins"),
        ("streams:", "secrets: {resolve_at: worker}\nstreams:", "secrets"),
        ("streams:", "health_check: {enabled: true}\nstreams:", "health_check.enabled"),
        (
            "streams:",
            "health_check: {enabled: false, observability: {enabled: true}}\nstreams:",
            "health_check.observability.enabled",
        ),
        (
            "streams:",
            "health_check: {enabled: false, observability: {tracing: {enabled: true}}}\nstreams:",
            "health_check.observability.tracing.enabled",
        ),
    ],
)
def test_what_comes_later_is_refused_with_that_sentence(
    write: Write, old: str, new: str, path: str
) -> None:
    ((found, message),) = refused(write, STREAM.replace(old, new, 1))
    assert found == path
    assert "is not available in this release; it comes with " in message


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("version: 1", "version: 1\n    rebalance: {mode: auto}", "jobs[0].rebalance"),
        ("version: 1", "version: 1\n    node_ids: [a]", "jobs[0].node_ids"),
    ],
)
def test_what_comes_later_in_a_job_is_refused_with_that_sentence(
    write: Write, old: str, new: str, path: str
) -> None:
    message = dict(refused(write, JOB.replace(old, new, 1)))[path]
    assert "is not available in this release; it comes with " in message


@pytest.mark.parametrize(
    ("old", "new", "path", "message"),
    [
        ("capacity: 5", "capacity: 0", "capacity", "must be at least 1"),
        ("capacity: 5", "capacity_bytes: 1MiB", "capacity_bytes", "expected an integer, got text"),
        ("capacity: 5", "capasity: 5", "capasity", "unknown key 'capasity'; did you mean"),
    ],
)
def test_a_wrong_key_of_a_channel_is_one_error_at_its_place(
    write: Write, old: str, new: str, path: str, message: str
) -> None:
    """The bounds of channels (E3)."""
    text = JOB.replace("version: 1", "version: 1\n    channel: {capacity: 5}")
    ((found, told),) = refused(write, text.replace(old, new))
    assert found == f"jobs[0].channel.{path}"
    assert message in told


def test_a_stateful_job_without_checkpoints_is_accepted_with_one_warning(write: Write) -> None:
    keyed = "kind: map, key_field: k, stateful: true,"
    text = JOB.replace("kind: map,", keyed).replace("SELECT 1}", "SELECT 1, state_output_field: n}")
    checked = check_file(write(text), env={})
    assert checked.ok
    [warning] = checked.warnings
    assert warning.path == "jobs[0].state"
    assert "its state ends with the run: without a `checkpoint:` block" in warning.message
    [job] = checked.jobs
    assert job.graph is not None
    [plan] = [op for chain in job.graph.chains for op in chain.operators]
    assert plan.component.config == {"query": "SELECT 1"}
    assert plan.state is not None
    assert (plan.state.key_fields, plan.state.count_field) == (("k",), "n")


@pytest.mark.parametrize(
    "key",
    [
        "hub_url: x",
        "node_id: x",
        "node_token: x",
        "agent_lease_ttl_ms: 1",
        "data_host: x",
        "agent_session_ttl_ms: 1",
        "data_port: 5",
    ],
)
def test_what_will_not_come_is_refused_with_another_sentence(write: Write, key: str) -> None:
    text = f"health_check: {{enabled: false, {key}}}\n{STREAM}"
    ((found, message),) = refused(write, text)
    assert found == f"health_check.{key.split(':')[0]}"
    assert "will not come" in message


@pytest.mark.parametrize(
    ("base", "old", "new"),
    [
        (STREAM, "output:", "buffer: {type: memory, capacity: 5, timeout: 1s}\n    output:"),
        (STREAM, "output:", "state: ~\n    temporary: []\n    durability: ~\n    output:"),
        (STREAM, "output:", "restart: {strategy: none}\n    output:"),
        (STREAM, "output:", "restart: {}\n    output:"),
        (STREAM, "output:", "delivery: at_least_once\n    output:"),
        (STREAM, "output:", "checkpoint: {object_store_uri: 'file:///x'}\n    output:"),
        (JOB, "version: 1", "version: 1\n    delivery: best_effort"),
        (
            JOB,
            "version: 1",
            "version: 1\n    recovery: fail\n    checkpoint: {object_store_uri: 's3://b/x'}",
        ),
        (STREAM, "pipeline:", "pipeline:\n      chain: false"),
        (JOB, "version: 1", "version: 1\n    restart: {}\n    channel: {capacity: 5}"),
        (JOB, "to: m}", "to: m, type: rebalance}"),
        (STREAM, "streams:", "plugins: []\nsecrets: {}\nstreams:"),
        (STREAM, "streams:", "health_check: {enabled: false, agent_lease_ttl_ms: 15000}\nstreams:"),
        (STREAM, "streams:", "logging: {level: debug, format: json, file_path: /x}\nstreams:"),
        (
            JOB,
            "version: 1",
            "version: 1\n    parallelism: 1\n    placement: colocated\n"
            "    rescale: false\n    rebalance: {mode: 'off'}\n    recovery: latest_checkpoint\n"
            "    transport: auto\n    max_parallelism: 64\n    node_ids: ~",
        ),
        (JOB, "version: 1", "version: 1\n    placement: split\n    resources: {num_cpus: 1}"),
        (JOB, "kind: map,", "kind: map, resources: {cpu_millicores: 500, custom: {tpu: 1}},"),
        (JOB, "kind: map,", "kind: map, parallelism: 1, stateful: false, key_field: ~,"),
        (JOB, "to: m}", "to: m, partitioned: false, type: forward}"),
        (
            JOB,
            "processing_time}",
            "processing_time, allowed_lateness_ms: 0, late_event_policy: drop}",
        ),
    ],
)
def test_values_that_change_nothing_are_accepted(
    write: Write, base: str, old: str, new: str
) -> None:
    assert check_file(write(base.replace(old, new, 1)), env={}).issues == []


def test_a_health_check_without_enabled_is_a_warning(write: Write) -> None:
    checked = check_file(write("health_check: {address: 'x:1'}\n" + STREAM), env={})
    assert checked.ok
    assert [w.path for w in checked.warnings] == ["health_check"]


def test_the_values_of_a_memory_buffer_are_checked(write: Write) -> None:
    text = STREAM.replace(
        "output:", "buffer: {type: memory, capacity: x, tiemout: 1s}\n    output:"
    )
    assert [path for path, _ in refused(write, text)] == [
        "streams[0].buffer.capacity",
        "streams[0].buffer.tiemout",
    ]


@pytest.mark.parametrize(
    "buffer",
    [
        "{type: sliding_window, window_size: 5, slide_size: 1, interval: 1s}",
        "{type: tumbling_window, interval: 1s, join: {query: SELECT 1}}",
    ],
)
def test_buffers_that_have_no_equal_point_to_jobs(write: Write, buffer: str) -> None:
    ((_, message),) = refused(write, STREAM.replace("output:", f"buffer: {buffer}\n    output:"))
    assert "stream 'a'" in message
    assert "jobs" in message
