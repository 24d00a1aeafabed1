"""Runners in this process, whose jobs run inline: everything of a submitted job but Ray."""

import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from arkflow_kernel.ports import LineOutput
from arkflow_kernel.snapshot import RestoreChoice
from arkflow_ray.cluster.job_runner import OVER, JobRunner
from arkflow_ray.cluster.submission import Submission
from arkflow_ray.cluster.submitting import check_for_cluster, submissions
from arkflow_ray.config.profiles import Profile
from arkflow_ray.runtime.detached_actors import NameTakenError, SilentActorError
from arkflow_ray.runtime.launch import RunSettings, launch
from arkflow_ray.runtime.running import RunningJobs

FINITE = """\
streams:
  - id: shop
    input: {type: memory, messages: ['{"a": 1}', '{"a": 2}'], codec: json}
    pipeline: {processors: []}
    output: {type: stdout}
"""

ENDLESS = """\
streams:
  - id: shop
    input: {type: generate, context: '{"a": 1}', interval: 5ms, batch_size: 1}
    pipeline: {processors: [{type: json_to_arrow}, {type: arrow_to_json}]}
    output: {type: drop}
"""


class HeldActor:
    """A runner as its callers see it. `silent`: it does not answer; True if it is gone for good."""

    def __init__(self, world: "World", name: str, runner: JobRunner) -> None:
        self.name, self.runner = name, runner
        self.identity = secrets.token_hex(8)
        self.silent: bool | None = None
        self._world = world

    def call(self, method: str, *args: Any, timeout_s: float = 0) -> Any:
        if self.silent is not None:
            raise SilentActorError("it is away", gone=self.silent)
        return getattr(self.runner, method)(*args)

    def kill(self) -> None:
        if self._world.actors.get(self.name) is self:
            del self._world.actors[self.name]


class World:
    """What the cluster holds: actors by name, and what they have to remember."""

    def __init__(self) -> None:
        self.actors: dict[str, HeldActor] = {}
        self.kept: dict[str, dict[str, Any]] = {}
        self.cleared: list[str] = []
        self.choices: list[RestoreChoice] = []
        self.runs: list[str] = []
        self.launched: list[RunningJobs] = []
        self.runtime_envs: list[Mapping[str, Any] | None] = []

    def make(
        self,
        body: type[JobRunner],
        name: str,
        namespace: str,
        args: Sequence[Any],
        runtime_env: Mapping[str, Any] | None = None,
    ) -> HeldActor:
        if name in self.actors:
            raise NameTakenError(name)
        self.runtime_envs.append(runtime_env)
        self.actors[name] = HeldActor(self, name, body(*args))
        return self.actors[name]

    def launch(
        self, jobs: Any, settings: RunSettings, lines: LineOutput, on_phase: Any
    ) -> RunningJobs:
        self.choices.append(settings.choice)
        self.runs.append(settings.run)
        running = launch(jobs, replace(settings, inline=True), lines, on_phase)
        self.launched.append(running)
        return running


def submission(
    folder: Path, text: str, profile: Profile | None = None, env: Mapping[str, str] | None = None
) -> Submission:
    """The one job of a file, checked as `submit` checks it."""
    path = folder / "shop.yaml"
    path.write_text(text)
    used = profile or Profile()
    checked = check_for_cluster(path, used, env=env)
    assert not checked.project.errors, checked.project.errors
    (given,) = submissions(checked.project.jobs, checked, used)
    return given


def await_phase(runner: JobRunner, phase: str = OVER) -> dict[str, Any]:
    """What a runner says of itself when it is so far; the test's time-out bounds the wait."""
    waiting = threading.Event()
    while (told := runner.about())["phase"] != phase:
        assert told["phase"] != OVER, told["end"]
        waiting.wait(0.01)
    return told


__all__ = ["ENDLESS", "FINITE", "HeldActor", "World", "await_phase", "submission"]
