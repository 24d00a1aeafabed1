"""Reading a source to its end."""

import pytest

from arkflow_kernel.ids import MonotonicMs
from arkflow_kernel.plan import ComponentPlan
from arkflow_kernel.ports import NothingYet, SourceBatch, SourceEnded
from arkflow_ray.components.api import BuildContext, ComponentKind
from arkflow_ray.components.building import build_component


@pytest.fixture
def make():
    """A built input: `make("file", input_type=…)`."""

    def build(kind, codec=None, **config):
        plan = ComponentPlan(kind, config, codec)
        return build_component(ComponentKind.INPUT, plan, BuildContext("source"))

    return build


@pytest.fixture
def drain():
    """All batches of a source, opened at `restored`; `limit` stops early."""

    def run(reader, restored=(), limit=None):
        reader.open(list(restored))
        batches = []
        try:
            while limit is None or len(batches) < limit:
                result = reader.read(MonotonicMs(0))
                if isinstance(result, SourceEnded):
                    break
                if isinstance(result, NothingYet):
                    assert result.resume_ms is None
                    continue
                assert isinstance(result, SourceBatch)
                batches.append(result)
        finally:
            reader.close()
        return batches

    return run
