"""`docs/yaml-additions.md` names every key of the models that ArkFlow does not have."""

import pathlib
import re

import pytest
import yaml

from arkflow_kernel import job as models
from arkflow_kernel.job import JobSpec, Spec
from arkflow_kernel.job_validation import unavailable, validate_job
from arkflow_kernel.keyed_config import ContinuousConfig, DeduplicateConfig, TopNConfig
from arkflow_kernel.operator_config import JoinConfig, TemporalJoinConfig
from arkflow_kernel.window_config import WindowConfig

DOCUMENT = pathlib.Path(__file__).parents[3] / "docs" / "yaml-additions.md"

ARKFLOW: list[tuple[type[Spec], str, str]] = [
    (models.PipelineSpec, "streams[].pipeline", "thread_num processors"),
    (
        models.StreamSpec,
        "streams[]",
        "id input pipeline output error_output buffer temporary durability state",
    ),
    (
        models.JobSpec,
        "jobs[]",
        "id version parallelism max_parallelism operators edges sources sinks state checkpoint "
        "recovery placement rescale rebalance resources node_ids",
    ),
    (models.OperatorSpec, "jobs[].operators[]", "id kind stateful key_field config"),
    (models.EdgeSpec, "jobs[].edges[]", "id from_ to partitioned"),
    (models.SourceSpec, "jobs[].sources[]", "operator_id input_type config codec time"),
    (models.SinkSpec, "jobs[].sinks[]", "operator_id output_type config codec"),
    (
        models.TimeSpec,
        "jobs[].sources[].time",
        "mode timestamp_field watermark allowed_lateness_ms late_event_policy late_event_route",
    ),
    (
        models.WatermarkSpec,
        "jobs[].sources[].time.watermark",
        "strategy out_of_orderness_ms idle_timeout_ms",
    ),
    (models.CheckpointSpec, "jobs[].checkpoint", "interval_ms retention object_store_uri"),
    (
        models.StateSpec,
        "jobs[].state",
        "backend durability root namespace ttl_ms format_version max_pending_transactions "
        "max_bytes",
    ),
    (models.RebalanceSpec, "jobs[].rebalance", "mode pressure_streak cooldown_ms"),
    (models.RestartSpec, "jobs[].restart", ""),
    (models.ChannelSpec, "jobs[].channel", ""),
    (models.AutoscaleSpec, "jobs[].autoscale", ""),
    (models.OperatorAutoscaleSpec, "jobs[].operators[].autoscale", ""),
    (models.ResourcesSpec, "jobs[].resources", "cpu_millicores memory_bytes"),
    (
        WindowConfig,
        "",
        "kind size_ms slide_ms gap_ms timestamp_field key_field value_fields trigger "
        "trigger_interval_ms watermark_field allowed_lateness_ms legacy_payload max_buffered_keys",
    ),
    (
        JoinConfig,
        "",
        "left_from right_from left_key right_key left_timestamp right_timestamp join_type "
        "window_ms ttl_ms max_per_key",
    ),
    (
        TemporalJoinConfig,
        "",
        "left_from right_from left_key right_key left_timestamp right_timestamp join_type "
        "max_per_key",
    ),
    (ContinuousConfig, "", ""),
    (DeduplicateConfig, "", ""),
    (TopNConfig, "", ""),
]


def _documented() -> set[str]:
    """Paths in the first column of the document's tables; a path covers what holds it."""
    rows = re.findall(r"^\| `([^`]+)` \|", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    return {".".join(row.split(".")[:n]) for row in rows for n in range(1, row.count(".") + 2)}


@pytest.mark.parametrize(("model", "place", "known"), ARKFLOW)
def test_every_key_that_arkflow_lacks_is_documented(
    model: type[Spec], place: str, known: str
) -> None:
    added = set(model.model_fields) - set(known.split())
    missing = {key for key in added if (f"{place}.{key}" if place else key) not in _documented()}
    assert missing == set()


def test_every_model_of_a_job_is_looked_at() -> None:
    found = {m for m in vars(models).values() if isinstance(m, type) and issubclass(m, Spec)}
    assert found - {Spec} == {model for model, _, _ in ARKFLOW if model.__module__.endswith("job")}


def test_the_example_job_of_the_document_is_valid_and_runs_in_this_release() -> None:
    [block] = re.findall(r"^```yaml\n(.*?)^```", DOCUMENT.read_text("utf-8"), re.M | re.S)
    [entry] = yaml.safe_load(block)["jobs"]
    job = JobSpec.model_validate(entry)
    assert [*validate_job(job), *unavailable(job)] == []
