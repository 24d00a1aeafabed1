"""Reading a source to its end."""

from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest

from arkflow_kernel.ids import MonotonicMs
from arkflow_kernel.plan import ComponentPlan
from arkflow_kernel.ports import NothingYet, SourceBatch, SourceEnded, SourceReader, SplitPosition
from arkflow_ray.components.api import BuildContext, ComponentKind
from arkflow_ray.components.building import build_component


@pytest.fixture
def make() -> Callable[..., SourceReader]:
    """A built input: `make("file", input_type=…)`."""

    def build(kind: str, codec: dict[str, Any] | None = None, **config: Any) -> SourceReader:
        plan = ComponentPlan(kind, config, codec)
        return cast(
            SourceReader, build_component(ComponentKind.INPUT, plan, BuildContext("source"))
        )

    return build


@pytest.fixture
def lines_of(make: Callable[..., SourceReader]) -> Callable[..., SourceReader]:
    """An input `file` that reads JSON lines: `lines_of(path, …)`."""

    def build(path: object, **config: Any) -> SourceReader:
        return make("file", input_type={"type": "json", "path": str(path)}, **config)

    return build


@pytest.fixture
def drain() -> Callable[..., list[SourceBatch]]:
    """All batches of a source, opened at `restored`; `limit` stops early."""

    def run(
        reader: SourceReader, restored: Iterable[SplitPosition] = (), limit: int | None = None
    ) -> list[SourceBatch]:
        reader.open(list(restored))
        batches: list[SourceBatch] = []
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
