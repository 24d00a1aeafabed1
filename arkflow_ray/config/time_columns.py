"""Whether the rows of a source can have the column that its event time is in (W5).

The gate of a source sees rows as they were read. Rows that nothing has parsed are payloads, with
one column of bytes: no time is in it. The kernel knows no component, so this is asked here.
"""

from collections.abc import Iterator
from typing import Final

from arkflow_kernel.errors import Issue
from arkflow_kernel.job import JobSpec, SourceSpec
from arkflow_ray.components import registry
from arkflow_ray.components.api import ComponentKind

_META: Final = "__meta_"
"""Beginning of columns that an input adds to payloads, too."""


def time_column_issues(job: JobSpec) -> Iterator[Issue]:
    """One error for each source on event time whose rows are payloads."""
    for i, source in enumerate(job.sources):
        field = source.time.timestamp_field
        if source.time.mode != "event_time" or not field or field.startswith(_META):
            continue
        if _yields_payloads(source):
            text = f"the rows of input '{source.input_type}' are payloads until they are parsed,"
            advice = "give the input a `codec`, for example `codec: json`"
            yield Issue(
                f"sources[{i}].time.timestamp_field",
                f"{text} and have no column '{field}' for the event time; {advice}",
            )


def _yields_payloads(source: SourceSpec) -> bool:
    entry = registry.entries().get((ComponentKind.INPUT, source.input_type))
    given = source.codec is not None or source.config.get("codec") is not None
    return entry is not None and entry.takes_codec and not given


__all__ = ["time_column_issues"]
