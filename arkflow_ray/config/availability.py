"""What parses and this release does not do: one table, never silence.

It holds what stands outside the JobSpec: the file's own sections, and parts of a stream that
compile to nothing. What a job may not ask for is in the kernel's own table, `job_availability`.
Removing a row enables the feature.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from arkflow_kernel.errors import Issue
from arkflow_ray.components.config_path import ConfigPath, parse_path, render_path
from arkflow_ray.components.model_issues import FindingKind, findings
from arkflow_ray.config.models import MemoryBufferConfig

_ANY: Final = "*"


def _later(feature: str, comes_with: str) -> str:
    return f"{feature} is not available in this release; it comes with {comes_with}"


def _never(feature: str, instead: str) -> str:
    return f"{feature} will not come: {instead}"


@dataclass(frozen=True, slots=True)
class Row:
    """A place, what is said about it, and the values that are accepted there.

    `pattern` is a path with `[*]` for every item of a list. `null` is accepted everywhere.
    """

    pattern: str
    sentence: str
    accepted: tuple[Any, ...] = ()

    def steps(self) -> ConfigPath:
        """The pattern with `*` as a step for every index."""
        return parse_path(self.pattern.replace("[*]", f".{_ANY}"))


_HUB = _never("the hub", "Ray manages the nodes; leave the key out")
_SERVER = _later("the HTTP server (`health_check`)", "observability")

TABLE: Final[tuple[Row, ...]] = (
    Row("plugins", _later("`plugins`", "the component catalogue"), ([],)),
    Row("secrets", _later("`secrets`", "clusters; secrets are resolved by the driver"), ({},)),
    Row("health_check.enabled", _SERVER, (False,)),
    Row("health_check.observability.enabled", _SERVER, (False,)),
    Row("health_check.observability.tracing.enabled", _later("tracing", "observability"), (False,)),
    Row("health_check.hub_url", _HUB),
    Row("health_check.node_id", _HUB),
    Row("health_check.node_token", _HUB),
    Row("health_check.agent_lease_ttl_ms", _HUB, (15_000,)),
    Row("health_check.agent_session_ttl_ms", _HUB, (3_600_000,)),
    Row(
        "health_check.data_host",
        _never("`data_host`", "actors find each other through Ray; leave the key out"),
    ),
    Row(
        "health_check.data_port",
        _never("`data_port`", "actors find each other through Ray; leave the key out"),
    ),
    Row("streams[*].temporary", _later("`temporary`", "lookups and connectors"), ([],)),
    Row("streams[*].durability", _later("`durability` (the WAL)", "the inputs that need it")),
)
"""Places that a file may fill and this release does not serve."""

_SILENT_SERVER: Final = (
    "no HTTP server is started: it comes with observability; the section is only checked"
)


def availability_issues(data: dict[str, Any]) -> list[Issue]:
    """One issue for each place of the file that this release does not serve."""
    issues: list[Issue] = []
    for row in TABLE:
        *steps, key = row.steps()
        for path, parent in _matches(data, tuple(steps), ()):
            value = parent.get(str(key))
            accepted = any(type(value) is type(a) and value == a for a in (None, *row.accepted))
            if not accepted:
                issues.append(Issue(render_path((*path, key)), row.sentence))
    issues += _health_check(data.get("health_check"))
    for path, buffer in _matches(data, ("streams", _ANY, "buffer"), ()):
        issues += _memory_buffer(path, buffer)
    return issues


def _matches(
    value: Any, steps: ConfigPath, path: ConfigPath
) -> Iterator[tuple[ConfigPath, dict[str, Any]]]:
    """The mappings at a pattern; what has another shape is the models' matter."""
    if not steps:
        if isinstance(value, dict):
            yield path, value
        return
    step, rest = steps[0], steps[1:]
    if step == _ANY:
        for index, item in enumerate(value if isinstance(value, list) else []):
            yield from _matches(item, rest, (*path, index))
    elif isinstance(value, dict) and step in value:
        yield from _matches(value[step], rest, (*path, step))


def _health_check(section: Any) -> list[Issue]:
    if not isinstance(section, dict) or section.get("enabled") is not None:
        return []
    return [Issue("health_check", _SILENT_SERVER, warning=True)]


def _memory_buffer(path: ConfigPath, buffer: dict[str, Any]) -> list[Issue]:
    """The values of a memory buffer; its keys are the compiler's matter."""
    if buffer.get("type") != "memory":
        return []
    try:
        MemoryBufferConfig.model_validate(buffer)
    except ValidationError as error:
        found = findings(error, MemoryBufferConfig, buffer)
        wrong = [f for f in found if f.kind is not FindingKind.UNKNOWN_KEY]
        return [Issue(render_path((*path, *f.path)), f.message) for f in wrong]
    return []


__all__ = ["TABLE", "Row", "availability_issues"]
