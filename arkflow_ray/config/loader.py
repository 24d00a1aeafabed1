"""From a file to the configuration, with every mistake and its place.

`load` gives a configuration without errors or raises all of them; `read` goes on as far as it can,
for `validate`, which adds what it finds in the components. Loading builds nothing. References to
the environment and to files are resolved here, those to secrets only checked (M8).
"""

import copy
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from arkflow_kernel.job import JobSpec, StreamSpec
from arkflow_ray.components.api import ComponentKind
from arkflow_ray.components.building import RATE_KEY, component_model
from arkflow_ray.components.config_path import ConfigPath, parse_path, render_path
from arkflow_ray.components.model_issues import Finding, FindingKind, describe, findings
from arkflow_ray.config.checkpoint_roots import make_absolute
from arkflow_ray.config.identity import identity_issues
from arkflow_ray.config.issues import LoadError, LocatedIssue, Location, sort_issues
from arkflow_ray.config.models import EngineConfig
from arkflow_ray.config.references import Resolution, resolve_references
from arkflow_ray.config.repair import Parsed, parse_entry, remove_key
from arkflow_ray.config.secrets import Secret, resolve_secrets, secret_environment
from arkflow_ray.config.sites import component_sites
from arkflow_ray.config.tree import Node, locate, plain, read_tree

Defaults = Mapping[str, Mapping[str, Any]]
"""Keys and values by `streams` and `jobs`."""


@dataclass(slots=True)
class Reading:
    """What was read of a file, right or wrong.

    `data` is the plain data (without the unknown keys that lenient mode drops); `streams` and
    `jobs` stand at their indexes of the file; `issues` are all mistakes and warnings so far.
    """

    path: Path
    lenient: bool
    data: dict[str, Any]
    root: Node
    top: EngineConfig | None = None
    streams: list[Parsed[StreamSpec]] = field(default_factory=list)
    jobs: list[Parsed[JobSpec]] = field(default_factory=list)
    issues: list[LocatedIssue] = field(default_factory=list)
    resolution: Resolution | None = field(default=None, repr=False)
    secrets: dict[str, Secret] = field(default_factory=dict)

    def locate(self, config_path: str) -> Location:
        """Line and column of a path, or of its nearest parent that stands in the file."""
        return locate(self.root, parse_path(config_path))

    def add(
        self,
        path: ConfigPath,
        message: str,
        *,
        warning: bool = False,
        at_key: bool = False,
        foreign: ConfigPath | None = None,
    ) -> None:
        """Note a mistake. `foreign`: the message is another's and may quote values of the part
        at that path; what references gave there is taken out."""
        if foreign is not None and self.resolution is not None:
            message = self.resolution.redactor(foreign).redact(message)
        at = locate(self.root, path, key=at_key)
        text = render_path(path)
        self.issues.append(LocatedIssue(str(self.path), at.line, at.column, text, message, warning))

    def resolve(self, config: dict[str, Any]) -> dict[str, Any]:
        """A component's configuration with its secrets, for a dry build. Never print it."""
        resolved = resolve_secrets(config, self.secrets)
        assert isinstance(resolved, dict)
        return resolved

    @property
    def errors(self) -> list[LocatedIssue]:
        """All mistakes, by place."""
        return sort_issues([i for i in self.issues if not i.warning])

    @property
    def warnings(self) -> list[LocatedIssue]:
        """All warnings, by place."""
        return sort_issues([i for i in self.issues if i.warning])


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration without errors. Texts in it may hold references to secrets."""

    reading: Reading = field(repr=False)
    config: EngineConfig

    @property
    def path(self) -> Path:
        """The file."""
        return self.reading.path

    @property
    def warnings(self) -> list[LocatedIssue]:
        """What the user should know, by place."""
        return self.reading.warnings

    def locate(self, config_path: str) -> Location:
        """Line and column of `jobs[0].operators[2].kind`; ValueError if that is not a path."""
        return self.reading.locate(config_path)


def load(
    path: str | Path, *, lenient: bool = False, env: Mapping[str, str] | None = None
) -> LoadedConfig:
    """Load a .yaml, .yml, .json or .toml file. `env` is the environment (default: the process's).

    With `lenient`, unknown keys are dropped with a warning. Raises `LoadError` with all mistakes.
    """
    reading = read(path, lenient=lenient, env=env)
    if reading.errors:
        raise LoadError(reading.errors)
    # Without errors every part was parsed.
    assert reading.top is not None
    streams = [parsed.spec for parsed in reading.streams]
    jobs = [parsed.spec for parsed in reading.jobs]
    config = reading.top.model_copy(update={"streams": streams, "jobs": jobs})
    return LoadedConfig(reading, config)


def read(
    path: str | Path,
    *,
    lenient: bool = False,
    env: Mapping[str, str] | None = None,
    defaults: Defaults | None = None,
) -> Reading:
    """Like `load`, but mistakes are in `issues` of the result.

    `defaults` has what entries get that do not say it themselves, by `streams` and `jobs`.
    Raises `LoadError` only for a file that cannot be read or parsed at all.
    """
    file = Path(path)
    root, duplicates = read_tree(file)
    if not isinstance(root.value, dict):
        told = f"expected a mapping with `streams` or `jobs`, got {describe(plain(root))}"
        raise LoadError([LocatedIssue(str(file), root.at.line, root.at.column, "", told)])
    environment = os.environ if env is None else env
    resolution = resolve_references(root, environment)
    data = plain(resolution.root)
    _add_defaults(data, defaults or {})
    make_absolute(data)
    reading = Reading(file, lenient, data, resolution.root, resolution=resolution)
    reading.issues += duplicates
    reading.secrets = secret_environment(data, environment)
    for place, message in resolution.issues:
        reading.add(place, message)
    if lenient:
        _drop_unknown_of_components(reading)
    _parse(reading)
    for issue in identity_issues(data):
        steps = parse_path(issue.path)
        reading.add(steps, issue.message, warning=issue.warning, foreign=steps)
    return reading


def _add_defaults(data: dict[str, Any], defaults: Defaults) -> None:
    """Add the keys that entries lack, in place."""
    for key, values in defaults.items():
        entries = data.get(key)
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict):
                for name, value in values.items():
                    entry.setdefault(name, copy.deepcopy(value))


def _parse(reading: Reading) -> None:
    data = reading.data
    lists = {key: data[key] for key in ("streams", "jobs") if isinstance(data.get(key), list)}
    top = parse_entry(EngineConfig, {**data, **{key: [] for key in lists}})
    _note(reading, top.findings, ())
    reading.top = top.spec
    for index, entry in enumerate(lists.get("streams", [])):
        stream = parse_entry(StreamSpec, entry)
        reading.streams.append(stream)
        _note(reading, stream.findings, ("streams", index))
    for index, entry in enumerate(lists.get("jobs", [])):
        job = parse_entry(JobSpec, entry)
        reading.jobs.append(job)
        _note(reading, job.findings, ("jobs", index))
    if not any(data.get(key) for key in ("streams", "jobs")):
        message = "the file declares neither streams nor jobs; add an entry under `streams:`"
        reading.add((), message)


def _note(reading: Reading, found: list[Finding], prefix: ConfigPath) -> None:
    for finding in found:
        path = (*prefix, *finding.path)
        unknown = finding.kind is FindingKind.UNKNOWN_KEY
        message = finding.message
        references = reading.resolution.values if reading.resolution else {}
        if path in references and finding.message.endswith("got text"):
            message += " (what a reference gives is always text)"
        reading.add(path, message, warning=unknown and reading.lenient, at_key=unknown)


def _drop_unknown_of_components(reading: Reading) -> None:
    """Lenient mode: the keys that a component does not know, which would fail its building."""
    for site in list(component_sites(reading.data)):
        parts = [(site.kind, site.plan.type, site.plan.config, site.config)]
        codec = site.plan.codec
        if codec is not None and isinstance(codec.get("type"), str):
            rest = {key: value for key, value in codec.items() if key != "type"}
            parts.append((ComponentKind.CODEC, codec["type"], rest, site.codec))
        for kind, name, config, place in parts:
            for finding in _unknown_keys(kind, name, config):
                path = (*place, *finding.path)
                reading.add(path, finding.message, warning=True, at_key=True)
                remove_key(reading.data, path)


def _unknown_keys(kind: ComponentKind, name: str, config: dict[str, Any]) -> list[Finding]:
    model = component_model(kind, name)
    if model is None:
        return []
    known = {key: value for key, value in config.items() if key != RATE_KEY}
    try:
        model.model_validate(known)
    except ValidationError as error:
        found = findings(error, model, known)
        return [f for f in found if f.kind is FindingKind.UNKNOWN_KEY]
    return []


__all__ = ["Defaults", "LoadedConfig", "Reading", "load", "read"]
