"""Starts planned jobs, inline or on Ray, and returns what controls them.

Importing this module imports neither ray nor a component; `launch` does, when it must.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from arkflow_kernel.ports import LineOutput
from arkflow_kernel.snapshot import NEWEST, RestoreChoice
from arkflow_ray.runtime.running import RunningJob, RunningJobs

if TYPE_CHECKING:
    from arkflow_kernel.job import JobSpec
    from arkflow_kernel.plan import ExecutionGraph
    from arkflow_ray.config.project import CheckedJob

    Planned = tuple[ExecutionGraph, JobSpec | None]

THREADS_PER_CHAIN = 1
"""Threads of Arrow's pools in a chain's process: its lanes already overlap (R2)."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How to run. `inline`: without Ray, in this process. `address`: a Ray that is running.

    `environment` holds the variables that `${secret:NAME}` names; this process's by default.
    `choice` says where jobs in checkpoint mode begin (M2). `run` names the run of a single job on
    Ray, for whoever must clear up after it; without it, it has a name of its own.
    """

    inline: bool = False
    address: str | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    choice: RestoreChoice = NEWEST
    run: str = ""


def launch(
    jobs: Sequence["CheckedJob"],
    settings: RunSettings,
    lines: LineOutput,
    on_phase: Callable[[str], None],
) -> RunningJobs:
    """Start all jobs. Blocks while Ray starts, and tells `on_phase` what it does.

    Raises `ClusterError` or `ResourceError` if there is no Ray to be had, `ConfigError` for a
    secret that is not set or autoscaling without Ray, `StoreError` for a checkpoint root that is
    refused. What goes wrong later is in the jobs' outcomes.
    """
    planned = [(job.graph, job.job) for job in jobs if job.graph is not None]
    assert len(planned) == len(jobs), "only jobs without mistakes can be started"
    if settings.inline:
        return _inline(planned, settings, lines)
    return _on_ray(planned, settings, lines, on_phase)


def _inline(planned: list["Planned"], settings: RunSettings, lines: LineOutput) -> RunningJobs:
    from arkflow_kernel.inline import InlineRunner
    from arkflow_ray.runtime.autoscaling import check_inline
    from arkflow_ray.runtime.clock import SystemClock
    from arkflow_ray.runtime.components import RegistryComponents
    from arkflow_ray.runtime.inline_caller import ThreadCaller
    from arkflow_ray.runtime.inline_stores import InlineStores

    check_inline([spec for _, spec in planned if spec is not None])
    running, stores = [], InlineStores()
    try:
        for graph, spec in planned:
            secrets = _secrets(graph, settings.environment)
            components = RegistryComponents(secrets, lines, graph.job)
            store = stores.open(graph)
            runner = InlineRunner(components, SystemClock(), store=store, caller=ThreadCaller())
            running.append(RunningJob(graph, runner.run_job(graph, settings.choice), spec))
    except BaseException:
        stores.close()
        raise
    return RunningJobs(running, stores)


def _on_ray(
    planned: list["Planned"],
    settings: RunSettings,
    lines: LineOutput,
    on_phase: Callable[[str], None],
) -> RunningJobs:
    from arkflow_ray.runtime.autoscaling import autoscaling
    from arkflow_ray.runtime.channel_folder import new_channel_folder
    from arkflow_ray.runtime.clock import SystemClock
    from arkflow_ray.runtime.job_settings import JobSettings
    from arkflow_ray.runtime.ray_job import RayRunner
    from arkflow_ray.runtime.ray_session import open_session

    secrets = [_secrets(graph, settings.environment) for graph, _ in planned]
    session = open_session(settings.address, on_phase)
    running: list[RunningJob] = []
    try:
        chains = sum(len(graph.chains) for graph, _ in planned)
        on_phase(f"creating {chains} chain actor{'s' if chains != 1 else ''}")
        for (graph, spec), values in zip(planned, secrets, strict=True):
            job_settings = JobSettings(
                session.num_cpus,
                THREADS_PER_CHAIN,
                os.getcwd(),
                values,
                new_channel_folder(),
                run=settings.run,
                ours=session.started,
            )
            runner = RayRunner(job_settings, lines)
            handle = runner.run_job(graph, settings.choice)
            scaling = autoscaling(spec, SystemClock().moment)
            running.append(RunningJob(graph, handle, spec, scaling))
    except BaseException:
        for job in running:
            job.cancel()  # in a Ray that is not ours, it would go on
        session.close()
        raise
    return RunningJobs(running, session)


def _secrets(graph: "ExecutionGraph", environment: Mapping[str, str]) -> dict[str, str]:
    """The values that the job's references name (M8)."""
    from arkflow_ray.config.secrets import secret_environment

    parts = [chain.source.component for chain in graph.chains if chain.source is not None]
    for chain in graph.chains:
        parts += [operator.component for operator in chain.operators]
        parts += [sink.component for sink in chain.sinks]
    found = secret_environment([[part.config, part.codec] for part in parts], environment)
    return {name: secret.reveal() for name, secret in found.items()}


__all__ = ["RunSettings", "launch"]
