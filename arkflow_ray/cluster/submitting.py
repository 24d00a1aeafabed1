"""From a file to the jobs of a cluster: checked here, checked there, started (M8, P8)."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arkflow_kernel.errors import ConfigError, Issue
from arkflow_kernel.snapshot import NEWEST, RestoreChoice
from arkflow_ray.cluster.connection import Connection
from arkflow_ray.cluster.submission import Submission, SubmittersEnvironment
from arkflow_ray.cluster.target import Target
from arkflow_ray.config.profiles import Profile
from arkflow_ray.config.project import CheckedJob, CheckedProject, check_file


@dataclass(frozen=True, slots=True)
class Checked:
    """A file that was checked for a cluster: its text, and what of the environment it used."""

    path: Path
    text: str
    environment: SubmittersEnvironment = field(repr=False)
    project: CheckedProject = field(repr=False)
    lenient: bool = False


def check_for_cluster(
    path: Path, profile: Profile, *, lenient: bool = False, env: Mapping[str, str] | None = None
) -> Checked:
    """Check a file as far as this machine can: secrets need not be set here.

    Mistakes are in `project`. Raises `LoadError` for a file that cannot be read or parsed at all.
    """
    environment = SubmittersEnvironment(env)
    defaults = profile.defaults()
    project = check_file(path, lenient=lenient, env=environment, defaults=defaults)
    text = path.read_bytes().decode("utf-8-sig")
    return Checked(path, text, environment, project, lenient)


def submissions(
    jobs: Sequence[CheckedJob],
    checked: Checked,
    profile: Profile,
    choice: RestoreChoice = NEWEST,
) -> list[Submission]:
    """What goes to the cluster, one for each job."""
    moves = "working_dir" in profile.runtime_env
    return [
        Submission(
            job.id,
            str(checked.path),
            checked.text,
            None if moves else os.getcwd(),
            dict(checked.environment.used),
            checked.lenient,
            choice,
            profile.defaults(),
        )
        for job in jobs
    ]


def submit_all(
    given: Sequence[Submission],
    target: Target,
    on_progress: Callable[[str], None],
    on_started: Callable[[Mapping[str, Any]], None],
) -> None:
    """Start jobs, one after another; `on_started` hears what each runner says of itself.

    Raises what `ClusterJobs.submit` raises; the jobs before that one run. Raises `ConfigError`
    before the first if code that the profile names is not here.
    """
    _check_code((target.profile or Profile()).runtime_env)
    with Connection(target, on_progress, submits=True) as cluster:
        for submission in given:
            on_started(cluster.submit(submission, on_progress=on_progress))


def _check_code(runtime_env: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for code that is not here: Ray's error would be one of the connection."""
    named = [("working_dir", runtime_env.get("working_dir"))]
    modules = runtime_env.get("py_modules")
    named += [("py_modules", each) for each in (modules if isinstance(modules, list) else [])]
    for key, place in named:
        if isinstance(place, str) and "://" not in place and not Path(place).exists():
            text = f"'{place}' is not on this machine (seen from {os.getcwd()})"
            raise ConfigError([Issue(f"runtime_env.{key}", text)])


def suspicious_variables(profile: Profile, secrets: Sequence[str]) -> list[str]:
    """Variables of the `runtime_env` that a file uses as secrets: the whole cluster reads them."""
    variables = profile.runtime_env.get("env_vars", {})
    return sorted(set(variables) & set(secrets)) if isinstance(variables, dict) else []


__all__ = ["Checked", "check_for_cluster", "submissions", "submit_all", "suspicious_variables"]
