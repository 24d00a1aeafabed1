"""Every check of a configuration, all mistakes at once: what `validate` runs and `run` runs first.

In order: loading, availability, components (each built dry), compilation of streams, the rules of
jobs, and the plan. A place is complained about once, by the first check that does.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from arkflow_kernel.delivery import EXACTLY_ONCE_KEY, cannot
from arkflow_kernel.errors import ConfigError, Issue
from arkflow_kernel.graph import build_graph
from arkflow_kernel.job import JobSpec, SinkSpec, SourceSpec, StreamSpec
from arkflow_kernel.job_availability import unavailable
from arkflow_kernel.job_validation import validate_job
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.ports import ReplayKind
from arkflow_kernel.source_rules import source_issues
from arkflow_kernel.stream_compiler import compile_stream
from arkflow_ray.components.api import BuildContext, ComponentKind
from arkflow_ray.components.building import (
    check_component,
    component_model,
    replay_kind,
    stages_epochs,
    subtasks_max,
)
from arkflow_ray.components.config_path import ConfigPath, parse_path, render_path
from arkflow_ray.config.availability import availability_issues
from arkflow_ray.config.checkpoint_roots import root_issues
from arkflow_ray.config.issues import LocatedIssue, sort_issues
from arkflow_ray.config.loader import Defaults, LoadedConfig, Reading, read
from arkflow_ray.config.repair import Parsed
from arkflow_ray.config.sites import Site, component_sites
from arkflow_ray.config.time_columns import time_column_issues


@dataclass(frozen=True, slots=True)
class CheckedJob:
    """A job of the file. `job` is None if it has mistakes that leave none; `graph` if it has any.

    `place` is where it stands: `streams[0]` or `jobs[2]`.
    """

    id: str
    form: Literal["stream", "job"]
    place: str
    job: JobSpec | None = None
    graph: ExecutionGraph | None = None


@dataclass(frozen=True, slots=True)
class CheckedProject:
    """A file with everything that is known about it before anything runs."""

    reading: Reading = field(repr=False)
    jobs: tuple[CheckedJob, ...]

    @property
    def path(self) -> Path:
        """The file."""
        return self.reading.path

    @property
    def issues(self) -> list[LocatedIssue]:
        """Mistakes and warnings, by place."""
        return sort_issues(self.reading.issues)

    @property
    def errors(self) -> list[LocatedIssue]:
        """Mistakes, by place."""
        return self.reading.errors

    @property
    def warnings(self) -> list[LocatedIssue]:
        """Warnings, by place."""
        return self.reading.warnings

    @property
    def ok(self) -> bool:
        """Whether every job can run."""
        return not self.errors


def check_file(
    path: str | Path,
    *,
    lenient: bool = False,
    env: Mapping[str, str] | None = None,
    defaults: Defaults | None = None,
) -> CheckedProject:
    """Load and check a file. Mistakes are in the result. `defaults`: see `read`.

    Raises `LoadError` only for a file that cannot be read or parsed at all.
    """
    return _check(read(path, lenient=lenient, env=env, defaults=defaults))


def check(loaded: LoadedConfig) -> CheckedProject:
    """Check what `load` gave. Mistakes are in the result; components are built and thrown away."""
    return _check(loaded.reading)


def _check(given: Reading) -> CheckedProject:
    reading = replace(given, issues=list(given.issues))
    _add(reading, availability_issues(reading.data), lambda path: path)
    _add(reading, root_issues(reading.data), lambda path: path)
    _check_components(reading)
    jobs = [_stream(reading, i, parsed) for i, parsed in enumerate(reading.streams)]
    jobs += [_declared(reading, i, parsed) for i, parsed in enumerate(reading.jobs)]
    return CheckedProject(reading, tuple(jobs))


def _add(
    reading: Reading,
    issues: Iterable[Issue],
    place: Callable[[ConfigPath], ConfigPath],
    foreign: ConfigPath | None = None,
) -> None:
    """Note what a check found, except where an earlier check has complained already."""
    told = {i.path for i in reading.issues}
    wrong = {i.path for i in reading.issues if not i.warning}
    for issue in issues:
        path = place(parse_path(issue.path))
        if render_path(path) not in (told if issue.warning else wrong):
            reading.add(
                path,
                issue.message,
                warning=issue.warning,
                at_key=issue.message.startswith("unknown key"),
                foreign=foreign,
            )


def _check_components(reading: Reading) -> None:
    for site in component_sites(reading.data):
        context = BuildContext(operator=site.operator)
        _add(reading, _insists(site), site.place)
        found = check_component(site.kind, site.plan, context, reading.resolve)
        _add(reading, found, site.place, site.entry)


def _insists(site: Site) -> Iterator[Issue]:
    """An output that insists on `exactly_once` and has no such key says more than "unknown key"."""
    if site.kind is ComponentKind.OUTPUT and site.plan.config.get(EXACTLY_ONCE_KEY) is True:
        model = component_model(site.kind, site.plan.type)
        if model is not None and EXACTLY_ONCE_KEY not in model.model_fields:
            yield Issue(EXACTLY_ONCE_KEY, cannot(site.operator, site.plan.type))


def _replays(source: SourceSpec) -> ReplayKind:
    return replay_kind(source.input_type)


def _stages_epochs(sink: SinkSpec) -> bool:
    return stages_epochs(sink.output_type, sink.config)


def _subtasks_max(source: SourceSpec) -> int | None:
    return subtasks_max(source.input_type, source.config)


def _job_checks(job: JobSpec) -> Iterator[list[Issue]]:
    """What each check of a whole job says, at job-relative places."""
    yield validate_job(job, _stages_epochs, _replays)
    yield list(source_issues(job, _subtasks_max))
    yield unavailable(job)
    yield list(time_column_issues(job))


def job_issues(job: JobSpec) -> list[Issue]:
    """Mistakes and warnings of a whole job; a place is complained about by one check."""
    issues: list[Issue] = []
    for found in _job_checks(job):
        told = {issue.path for issue in issues}
        issues += [issue for issue in found if issue.path not in told]
    return issues


def job_graph(job: JobSpec) -> ExecutionGraph:
    """The plan of a job without mistakes."""
    return build_graph(job, _stages_epochs)


def _stream(reading: Reading, index: int, parsed: Parsed[StreamSpec]) -> CheckedJob:
    unchecked = CheckedJob(_id(reading, "streams", index), "stream", f"streams[{index}]")
    if parsed.spec is None:
        return unchecked
    entry = _Entry(reading, ("streams", index), parsed.concerns_removed)
    try:
        compiled = compile_stream(parsed.spec, index)
    except ConfigError as error:
        entry.add(error.issues)
        return unchecked
    entry.add(compiled.warnings)
    return entry.check_job(compiled.job, unchecked, compiled.locate)


def _declared(reading: Reading, index: int, parsed: Parsed[JobSpec]) -> CheckedJob:
    unchecked = CheckedJob(_id(reading, "jobs", index), "job", f"jobs[{index}]")
    if parsed.spec is None:
        return unchecked
    entry = _Entry(reading, ("jobs", index), parsed.concerns_removed)
    return entry.check_job(parsed.spec, unchecked, lambda path: path)


def _id(reading: Reading, key: str, index: int) -> str:
    entry = reading.data[key][index]
    given = entry.get("id") if isinstance(entry, dict) else None
    return given if isinstance(given, str) else f"{key.removesuffix('s')}-{index}"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A stream or job of the file, and the rules of the kernel applied to it.

    What they say about a part that had to be left out (`removed`) only repeats its mistake.
    """

    reading: Reading
    prefix: ConfigPath
    removed: Callable[[ConfigPath], bool]

    def add(self, issues: Iterable[Issue]) -> None:
        kept = [i for i in issues if not self.removed(parse_path(i.path))]
        _add(self.reading, kept, lambda path: (*self.prefix, *path), self.prefix)

    def check_job(
        self, job: JobSpec, unchecked: CheckedJob, locate: Callable[[str], str]
    ) -> CheckedJob:
        for found in _job_checks(job):
            self.add([replace(i, path=locate(i.path)) for i in found])
        checked = replace(unchecked, job=job)
        if self._has_errors():
            return checked
        try:
            return replace(checked, graph=job_graph(job))
        except ConfigError as error:
            self.add([replace(i, path=locate(i.path)) for i in error.issues])
            return checked

    def _has_errors(self) -> bool:
        own = [parse_path(i.path)[:2] for i in self.reading.errors]
        return self.prefix in own


__all__ = ["CheckedJob", "CheckedProject", "check", "check_file", "job_graph", "job_issues"]
