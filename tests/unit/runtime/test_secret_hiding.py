"""Secrets in the configuration of a component stay out of what it raises while it works (M8)."""

import pickle
import traceback
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from arkflow_kernel.bad_rows import NOWHERE
from arkflow_kernel.checkpoint_ports import Staging
from arkflow_kernel.errors import (
    ArkflowError,
    ComponentError,
    ConfigError,
    Issue,
    ProcessingError,
    SinkError,
    SourceError,
)
from arkflow_kernel.ids import CheckpointId, Generation, JobId, MonotonicMs, OperatorId, Sequence
from arkflow_kernel.plan import ComponentPlan, OperatorPlan, SinkPlan, SourcePlan
from arkflow_kernel.protocol import CommitPermit
from arkflow_kernel.snapshot import Epoch, SinkToken
from arkflow_ray.checkpoint.open import open_objects
from arkflow_ray.runtime.components import RegistryComponents
from arkflow_ray.runtime.lines import LineBuffer
from arkflow_ray.runtime.secret_hiding import (
    HidingEpochSink,
    HidingOperator,
    HidingSink,
    HidingSource,
    SecretHiding,
)

VALUE = "hunter2-and-more"
SECRETS = {"ARKFLOW_SECRET_TOKEN": VALUE}
CONFIG = {"url": "https://host/?token=${secret:TOKEN}"}
BATCH = pa.record_batch({"n": [1]})


class Panic(BaseException):
    """As the panic of a Rust library: no `Exception`."""


class Failing:
    """Any component: every call raises what it was given."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        def fail(*_: object) -> None:
            raise self._error

        return fail


def everything_told(error: BaseException) -> str:
    """What a log, a traceback or another process could show of an error."""
    copy = pickle.loads(pickle.dumps(error))
    return "".join(traceback.format_exception(error)) + repr(error) + repr(vars(copy)) + str(copy)


@pytest.mark.parametrize(
    "error",
    [
        ValueError(f"cannot reach https://host/?token={VALUE}"),
        Panic(f"called unwrap on {VALUE}"),
        SystemExit(f"no {VALUE}"),
        SourceError(f"403 for {VALUE}"),
        ProcessingError("call", f"403 for {VALUE}", error_class="HTTPError", row=VALUE),
        ConfigError([Issue("url", f"no such host: {VALUE}")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_call_of_a_component_tells_a_secret(error: BaseException) -> None:
    hiding = SecretHiding("call", CONFIG, SECRETS)
    inner: Any = Failing(error)
    operator, source, sink, staging = (
        HidingOperator(inner, hiding),
        HidingSource(inner, hiding),
        HidingSink(inner, hiding),
        HidingEpochSink(inner, hiding),
    )
    now, epoch = MonotonicMs(0), Epoch(Generation(1), CheckpointId(1))
    token = SinkToken(OperatorId("call"), 0, epoch)
    calls = (
        (operator.open, ComponentError),
        (lambda: operator.process(BATCH, NOWHERE), ProcessingError),
        (operator.finish, ProcessingError),
        (operator.close, ComponentError),
        (lambda: source.open(()), SourceError),
        (lambda: source.read(now), SourceError),
        (lambda: source.commit(()), SourceError),
        (source.close, SourceError),
        (sink.open, SinkError),
        (lambda: sink.write(Sequence(1), BATCH, now), SinkError),
        (lambda: sink.roll(now), SinkError),
        (lambda: sink.flush(now), SinkError),
        (sink.close, SinkError),
        (staging.open, SinkError),
        (lambda: staging.write(Sequence(1), BATCH, now), SinkError),
        (lambda: staging.seal(epoch), SinkError),
        (lambda: staging.stage(epoch), SinkError),
        (lambda: staging.publish(token, CommitPermit("test")), SinkError),
        (staging.close, SinkError),
    )
    for call, kind in calls:
        expected = type(error) if isinstance(error, ArkflowError) else kind
        with pytest.raises(expected) as raised:
            call()
        told = everything_told(raised.value)
        assert VALUE not in told
        assert "hunter2" not in told
        assert "${secret:TOKEN}" in told


def test_an_interrupt_of_the_user_passes() -> None:
    inner: Any = Failing(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        HidingOperator(inner, SecretHiding("call", CONFIG, SECRETS)).open()


def test_a_failing_script_is_quoted_without_its_secret() -> None:
    script = "def call(batch):\n    raise ValueError('no access with ${secret:TOKEN}')\n"
    config = {"script": script, "function": "call"}
    plan = OperatorPlan(OperatorId("call"), "map", ComponentPlan("python", config))
    operator = RegistryComponents(SECRETS, LineBuffer()).operator(plan, 1)
    operator.open()
    try:
        with pytest.raises(ProcessingError) as raised:
            operator.process(BATCH, NOWHERE)
    finally:
        operator.close()
    told = everything_told(raised.value)
    assert VALUE not in told
    assert "line 2, in call: raise ValueError('no access with ${secret:TOKEN}')" in told


def test_a_component_that_cannot_be_built_tells_no_secret() -> None:
    config = {"query": "SELECT '${secret:TOKEN}' FRM flow"}
    plan = OperatorPlan(OperatorId("call"), "map", ComponentPlan("sql", config))
    with pytest.raises(ConfigError) as raised:
        RegistryComponents(SECRETS, LineBuffer()).operator(plan, 1)
    assert VALUE not in everything_told(raised.value)


def test_components_without_secrets_are_not_wrapped() -> None:
    components = RegistryComponents(SECRETS, LineBuffer())
    built: tuple[object, ...] = (
        components.source(SourcePlan(OperatorId("in"), ComponentPlan("memory", {}))),
        components.operator(
            OperatorPlan(OperatorId("op"), "map", ComponentPlan("json_to_arrow", {})), 1
        ),
        components.sink(SinkPlan(OperatorId("out"), ComponentPlan("drop", {}))),
    )
    assert not [b for b in built if isinstance(b, HidingSource | HidingOperator | HidingSink)]


def test_an_exactly_once_sink_is_built_with_its_staging_and_tells_no_secret(tmp_path: Path) -> None:
    config = {"path": f"{tmp_path}/out-${{secret:TOKEN}}", "format": "json"}
    plan = SinkPlan(OperatorId("out"), ComponentPlan("file", config), exactly_once=True)
    objects = open_objects(f"file://{tmp_path}/ckpt", "job")
    staging = Staging(objects, Generation(1), 0, "0000000001-out-0-out")
    components = RegistryComponents(SECRETS, LineBuffer(), JobId("job"))
    assert isinstance(components.sink(plan), HidingSink)
    sink = components.sink(plan, staging)
    assert isinstance(sink, HidingEpochSink)
    epoch = Epoch(Generation(1), CheckpointId(1))
    sink.write(Sequence(1), BATCH, MonotonicMs(0))
    sink.seal(epoch)
    (token,) = sink.stage(epoch)
    (tmp_path / f"out-{VALUE}").touch()
    with pytest.raises(SinkError) as raised:
        sink.publish(token, CommitPermit("test"))
    assert VALUE not in everything_told(raised.value)
    assert "out-${secret:TOKEN}'" in str(raised.value)
    sink.close()
    objects.close()
