"""The Python API: a configuration file, checked, explained and run from a program or a notebook.

It prints the rows of `stdout` sinks to `sys.stdout` and nothing else. The file's `logging:` section
is for the command line: in a program, the standard library's logger `arkflow_ray` is the program's.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from arkflow_kernel.errors import ConfigError, Issue, RescaleError
from arkflow_kernel.ids import JobId
from arkflow_ray.config.issues import LoadError, LocatedIssue
from arkflow_ray.observability.results import JobResult

if TYPE_CHECKING:
    from arkflow_ray.cluster.job_handle import JobHandle
    from arkflow_ray.config.project import CheckedJob, CheckedProject
    from arkflow_ray.runtime.running import RunningJobs


@dataclass(frozen=True, slots=True)
class RunResult:
    """How all jobs of a run ended, in the order of the file. None of them failed."""

    jobs: tuple[JobResult, ...]

    def __getitem__(self, job: str) -> JobResult:
        """One job's result; `KeyError` if it did not run."""
        for result in self.jobs:
            if result.job == job:
                return result
        raise KeyError(job)


@dataclass(frozen=True, slots=True)
class RescaleResult:
    """What a rescale changed: subtasks before and after, by operator; empty if all was so already.

    `phases`: how long each took, in milliseconds by name (`prepare_ms` … `deploy_ms`). `notes`:
    sentences about what else changed.
    """

    job: str
    changed: Mapping[str, tuple[int, int]]
    phases: Mapping[str, int]
    notes: tuple[str, ...] = ()


class Pipeline:
    """A configuration file with its streams and jobs. The file is read when something needs it."""

    def __init__(
        self, path: str | Path, *, lenient: bool = False, env: Mapping[str, str] | None = None
    ) -> None:
        self.path = Path(path)
        self._lenient = lenient
        self._env = env
        self._project: CheckedProject | None = None
        self._running: RunningJobs | None = None

    def __repr__(self) -> str:
        return f"Pipeline({str(self.path)!r})"

    def validate(self) -> list[LocatedIssue]:
        """Every mistake and warning, by place; empty if the file is right. Builds all components
        without connecting them."""
        try:
            return self._checked().issues
        except LoadError as error:
            return error.located

    def explain(self, form: Literal["text", "json", "mermaid", "dot"] = "text") -> str:
        """What the jobs will do, as text, JSON or a diagram for Mermaid or Graphviz.

        Raises `LoadError` with every mistake if the file is wrong.
        """
        from arkflow_ray.explained import explain_jobs

        return explain_jobs(self._runnable(None), form)

    def run(
        self,
        *,
        inline: bool = False,
        only: Sequence[str] | None = None,
        address: str | None = None,
        from_savepoint: str | None = None,
        from_checkpoint: int | None = None,
        from_scratch: bool = False,
        accept_duplicates: bool = False,
        allow_dropped_state: bool = False,
    ) -> RunResult:
        """Run the jobs to their end, on Ray or (`inline`) in this process.

        A job with a `checkpoint:` block goes on from its newest checkpoint if it has one, else
        from its beginning. `from_savepoint` (a name, a URL or a folder), `from_checkpoint` (a
        number) and `from_scratch` say otherwise. `accept_duplicates` and `allow_dropped_state`
        let a start happen that would repeat rows of exactly-once sinks, or drop the state of
        operators that are gone.

        A Ray that this process is connected to is used and left as it is; else `address` is
        joined; else a local Ray is started and shut down at the end. Works in any thread and
        under a running event loop, which it blocks. In the main thread a first Ctrl-C stops in
        order, a second cancels; then `KeyboardInterrupt` is raised.

        Raises `LoadError` for mistakes in the file, `ConfigError` for an unknown id in `only` and
        for options that contradict each other, `RestoreError` if a job must not start so,
        `ClusterError` or `ResourceError` if there is no Ray to be had, and the error of a job
        that failed (of several: the first one's, with a note of the others).
        """
        from arkflow_ray.attached import StopSignals, first_failure, run_attached
        from arkflow_ray.observability.display import LogDisplay
        from arkflow_ray.observability.rows import StdoutRows
        from arkflow_ray.restore_choice import StartOptions, check_jobs, restore_choice
        from arkflow_ray.runtime.launch import RunSettings, launch
        from arkflow_ray.runtime.ray_address import check_address

        start = StartOptions(
            from_savepoint, from_checkpoint, from_scratch, accept_duplicates, allow_dropped_state
        )
        choice = restore_choice(start)
        selected = self._runnable(only)
        check_jobs(selected, start)
        check_address(address)
        rows, display = StdoutRows(), LogDisplay()
        environment = os.environ if self._env is None else self._env
        settings = RunSettings(inline, address, environment, choice)
        # SIGTERM is the program's own.
        signals = StopSignals(terminate=False)
        results = run_attached(
            lambda: self._held(launch(selected, settings, rows, display.phase)),
            signals,
            display,
            rows,
        )
        error = first_failure(results)
        if error is not None:
            raise error
        if signals.interrupts:
            raise KeyboardInterrupt
        return RunResult(tuple(results))

    def submit(
        self,
        *,
        address: str | None = None,
        cluster: str | None = None,
        only: str | None = None,
        from_savepoint: str | None = None,
        from_checkpoint: int | None = None,
        from_scratch: bool = False,
        accept_duplicates: bool = False,
        allow_dropped_state: bool = False,
    ) -> "JobHandle":
        """Give a job to a cluster, where it runs without this program.

        The cluster is named by its address, by its name in `clusters.yaml`, or by
        ARKFLOW_RAY_ADDRESS. `only` names the job if the file has several. The other arguments are
        those of `run`. The file is checked here and there; `${env:…}` is read here, `${secret:…}`
        there. A Ray that this process is connected to is used.

        Raises `LoadError` for mistakes in the file, `ConfigError` if no cluster or no job is named,
        `BadRequestError` if the job is there already, `ClusterError` or `ResourceError` if there
        is no runner to be had, and the error of a job that could not be started.
        """
        from arkflow_ray.cluster.job_handle import JobHandle
        from arkflow_ray.cluster.submitting import check_for_cluster, submissions, submit_all
        from arkflow_ray.cluster.target import the_target
        from arkflow_ray.config.profiles import Profile
        from arkflow_ray.restore_choice import StartOptions, check_jobs, restore_choice

        start = StartOptions(
            from_savepoint, from_checkpoint, from_scratch, accept_duplicates, allow_dropped_state
        )
        choice = restore_choice(start)
        target = the_target(address, cluster)
        profile = target.profile or Profile()
        checked = check_for_cluster(self.path, profile, lenient=self._lenient, env=self._env)
        if checked.project.errors:
            raise LoadError(checked.project.errors)
        selected = select_jobs(checked.project.jobs, None if only is None else [only])
        if len(selected) > 1:
            listed = ", ".join(job.id for job in selected)
            raise ConfigError([Issue("", f"say with `only` which job to submit: {listed}")])
        check_jobs(selected, start)
        given = submissions(selected, checked, profile, choice)
        submit_all(given, target, lambda _: None, lambda _: None)
        return JobHandle(selected[0].id, target)

    def rescale(self, job: str, parallelism: Mapping[str, int]) -> RescaleResult:
        """Give operators of a job another number of subtasks while `run` runs in another thread.

        `parallelism` holds the wanted numbers by operator. Returns when the new plan is at work;
        without a change, at once. A run of another program is rescaled by `arkflow-ray rescale`.

        Raises `ConfigError` with every reason why the job cannot be so, `KeyError` if no such job
        runs, and `RescaleError` if it cannot be rescaled now, or if the new plan did not come to
        work; then the job goes on as it was.
        """
        from arkflow_ray.attached import POLL_S

        jobs = self._running
        if jobs is None or job not in jobs.jobs:
            raise KeyError(job)
        running = jobs.jobs[JobId(job)]
        asked = running.rescale(parallelism)
        while True:
            outcome = running.outcome  # before the status, which is final once this is set
            end = asked.end(running.status(), outcome)
            if end is not None:
                break
            jobs.wait(POLL_S)
        if end.error is not None:
            raise RescaleError(f"job '{job}': {end.error}")
        return RescaleResult(job, asked.changed, asdict(end.phases), asked.notes)

    def _held(self, running: "RunningJobs") -> "RunningJobs":
        """Note what runs, for `rescale`."""
        self._running = running
        return running

    def _checked(self) -> "CheckedProject":
        if self._project is None:
            from arkflow_ray.config.project import check_file

            self._project = check_file(self.path, lenient=self._lenient, env=self._env)
        return self._project

    def _runnable(self, only: Sequence[str] | None) -> "list[CheckedJob]":
        project = self._checked()
        if project.errors:
            raise LoadError(project.errors)
        return select_jobs(project.jobs, only)


def load(
    path: str | Path, *, lenient: bool = False, env: Mapping[str, str] | None = None
) -> Pipeline:
    """A pipeline from a .yaml, .yml, .json or .toml file.

    `lenient` turns unknown keys into warnings; `env` replaces the environment that `${env:…}`
    and `${secret:…}` look into. What is wrong with the file is told by `validate`, and raised by
    `explain` and `run`.
    """
    return Pipeline(path, lenient=lenient, env=env)


def select_jobs(jobs: "Sequence[CheckedJob]", only: Sequence[str] | None) -> "list[CheckedJob]":
    """The jobs of these ids, in the order of the file; all without ids. `ConfigError` for an id
    that is none."""
    if not only:
        return list(jobs)
    known = [job.id for job in jobs]
    unknown = [wanted for wanted in only if wanted not in known]
    if unknown:
        listed = ", ".join(known)
        raise ConfigError(
            [Issue("", f"no job has the id '{i}'; there are: {listed}") for i in unknown]
        )
    return [job for job in jobs if job.id in only]


__all__ = ["Pipeline", "RescaleResult", "RunResult", "load", "select_jobs"]
