"""A thing that happens to a job and is told once."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class JobEvent:
    """A line for the user, and its fields for log lines in JSON. `warning`: something is wrong."""

    text: str
    warning: bool
    fields: dict[str, object] = field(default_factory=dict)


__all__ = ["JobEvent"]
