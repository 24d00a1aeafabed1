"""What a job promises about its rows: exactly-once sinks, and inputs that repeat nothing (X1, B7).

The kernel knows no component. Whether an output can stage epochs, and what an input can repeat,
is asked of the driver.
"""

import posixpath
from collections.abc import Callable, Iterator
from typing import Final

from arkflow_kernel.errors import Issue
from arkflow_kernel.job import JobSpec, SinkSpec, SourceSpec
from arkflow_kernel.ports import ReplayKind

EXACTLY_ONCE_KEY: Final = "exactly_once"
"""Key in a sink's config: false opts out, true insists (X1)."""

StagesEpochs = Callable[[SinkSpec], bool]
"""Whether the output of this sink, configured like this, can be an exactly-once sink."""

Replays = Callable[[SourceSpec], ReplayKind]
"""What the input of this source can repeat after a failure."""


def no_sink(_: SinkSpec) -> bool:
    """No output can stage epochs."""
    return False


def any_position(_: SourceSpec) -> ReplayKind:
    """Every input can be read again from a position."""
    return ReplayKind.POSITION


def is_exactly_once(job: JobSpec, sink: SinkSpec, stages_epochs: StagesEpochs) -> bool:
    """Whether a sink of the job publishes each row once (X1).

    With a `checkpoint:` block every sink does that can, unless its config says false. A sink for
    errors is no exception: after a restart it would else repeat the bad rows since the cut. Without
    the block none does: its epochs would end with the run.
    """
    wanted = sink.config.get(EXACTLY_ONCE_KEY) is not False
    return wanted and job.checkpoint is not None and stages_epochs(sink)


def guarantee(job: JobSpec, sink: SinkSpec, *, exactly_once: bool) -> str:
    """What a sink promises, and why, in one sentence without its full stop."""
    if exactly_once:
        return "exactly once: rows are published with the checkpoint that follows them"
    if job.checkpoint is None:
        return "at least once: there is no `checkpoint:` block"
    if sink.config.get(EXACTLY_ONCE_KEY) is False:
        return "at least once: its config says `exactly_once: false`"
    return f"at least once: output '{sink.output_type}' cannot hold rows back until a checkpoint"


def cannot(sink: str, output_type: str) -> str:
    """Why a sink that insists on `exactly_once` is refused, and what to do."""
    return (
        f"sink '{sink}' cannot be exactly-once: output '{output_type}' cannot hold rows back until "
        "a checkpoint; remove the key (its rows are delivered at least once)"
    )


def delivery_issues(job: JobSpec, stages_epochs: StagesEpochs, replays: Replays) -> Iterator[Issue]:
    """Promises that cannot be kept: sinks that insist, and inputs that repeat nothing."""
    for i, sink in enumerate(job.sinks):
        if sink.config.get(EXACTLY_ONCE_KEY) is not True:
            continue
        path = f"sinks[{i}].config.{EXACTLY_ONCE_KEY}"
        if job.checkpoint is None:
            text = f"exactly-once sink '{sink.operator_id}' needs a `checkpoint:` block"
            yield Issue(path, f"{text}; add one, or set it to false")
        elif not stages_epochs(sink):
            yield Issue(path, cannot(sink.operator_id, sink.output_type))
    yield from _shared_folders(job, stages_epochs)
    if job.delivery != "best_effort":
        yield from _forgetful(job, replays)


def _shared_folders(job: JobSpec, stages_epochs: StagesEpochs) -> Iterator[Issue]:
    """Parts are named by generation, checkpoint and lane: two sinks would share names (X3)."""
    first: dict[str, str] = {}
    for i, sink in enumerate(job.sinks):
        path = sink.config.get("path")
        if not isinstance(path, str) or not is_exactly_once(job, sink, stages_epochs):
            continue
        other = first.setdefault(posixpath.normpath(path), sink.operator_id)
        if other != sink.operator_id:
            text = f"exactly-once sinks '{other}' and '{sink.operator_id}' write into one folder"
            yield Issue(f"sinks[{i}].config.path", f"{text}; give each a folder of its own")


def _forgetful(job: JobSpec, replays: Replays) -> Iterator[Issue]:
    """Inputs of kind `none`: a warning, or an error where `at_least_once` was asked for (B7)."""
    for i, source in enumerate(job.sources):
        if replays(source) is not ReplayKind.NONE:
            continue
        text = f"input '{source.input_type}' of '{source.operator_id}' cannot repeat rows: those"
        text += " under way are lost when the job fails"
        if job.delivery == "at_least_once":
            advice = "`delivery: at_least_once` cannot be kept; say `best_effort`"
            yield Issue("delivery", f"{text}, so {advice}, or read from an input that can")
        else:
            advice = "`delivery: best_effort` says that you mean that"
            yield Issue(f"sources[{i}].input_type", f"{text}; {advice}", warning=True)


__all__ = [
    "EXACTLY_ONCE_KEY",
    "Replays",
    "StagesEpochs",
    "any_position",
    "cannot",
    "delivery_issues",
    "guarantee",
    "is_exactly_once",
    "no_sink",
]
