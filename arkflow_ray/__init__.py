"""ArkFlow streaming pipelines, distributed on Ray.

    import arkflow_ray

    pipeline = arkflow_ray.load("pipeline.yaml")
    result = pipeline.run()

Everything is imported when it is first used, so that `import arkflow_ray` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from arkflow_kernel.errors import ArkflowError
    from arkflow_ray.cluster.job_handle import JobHandle, find_job
    from arkflow_ray.config.issues import LoadError, LocatedIssue
    from arkflow_ray.observability.results import JobResult
    from arkflow_ray.pipeline import Pipeline, RescaleResult, RunResult, load

__version__: Final = "0.1.0"

_HOMES: Final = {
    "ArkflowError": "arkflow_kernel.errors",
    "JobHandle": "arkflow_ray.cluster.job_handle",
    "JobResult": "arkflow_ray.observability.results",
    "LoadError": "arkflow_ray.config.issues",
    "LocatedIssue": "arkflow_ray.config.issues",
    "Pipeline": "arkflow_ray.pipeline",
    "RescaleResult": "arkflow_ray.pipeline",
    "RunResult": "arkflow_ray.pipeline",
    "find_job": "arkflow_ray.cluster.job_handle",
    "load": "arkflow_ray.pipeline",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'arkflow_ray' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


__all__ = [
    "ArkflowError",
    "JobHandle",
    "JobResult",
    "LoadError",
    "LocatedIssue",
    "Pipeline",
    "RescaleResult",
    "RunResult",
    "__version__",
    "find_job",
    "load",
]
