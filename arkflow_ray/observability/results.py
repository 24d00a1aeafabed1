"""How jobs ended: figures, error and what to do about it, for a person and for a program."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from arkflow_kernel.errors import (
    ActorLostError,
    ArkflowError,
    OperatorTimeoutError,
    ProcessingError,
    ProtocolError,
    RestoreError,
)
from arkflow_kernel.protocol import JobOutcome, OutcomeKind
from arkflow_ray.observability.figures import CheckpointFigures, JobFigures

_ADVICE: Final[tuple[tuple[type[ArkflowError], str], ...]] = (
    # The time-out's own message says what to do.
    (OperatorTimeoutError, ""),
    (
        ProcessingError,
        "correct the operator or its input; an `error_output` keeps what fails and lets the "
        "rest go on",
    ),
    (ProtocolError, "this is a fault of arkflow-ray; report it with the text above"),
    (
        ActorLostError,
        "look for the reason on its node (out of memory, killed); run the job again",
    ),
)

SinkTypes = Mapping[str, Mapping[str, str]]
"""Per job: the type of output that each sink is."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """The end of one job; `duration_s` runs from its deployment to its end.

    `rows_written` is per sink what was handed to it: all of it is confirmed if the job finished
    or was stopped, and perhaps not the last of it if it failed or was cancelled. `late_rows` came
    too late for a window, `untimed_rows` had no event time, `evicted_rows` were let go of by
    windows with too many keys. Figures of a job that lost its process are the last that were
    reported, those of one that was restarted or rescaled belong to its last attempt. `rescales`
    counts those that were asked for.
    """

    job: str
    outcome: str
    rows_read: int
    rows_written: Mapping[str, int]
    bad_rows: int
    skipped_rows: int
    duration_s: float
    error: ArkflowError | None = None
    restarts: int = 0
    checkpoint: CheckpointFigures | None = None
    late_rows: int = 0
    untimed_rows: int = 0
    evicted_rows: int = 0
    rescales: int = 0

    @property
    def rows_per_s(self) -> float | None:
        """Rows read per second of the job's life; 0 for a job without a measurable one.

        None for a job that was restarted or rescaled: its rows are those of the last attempt alone.
        """
        if self.restarts or self.rescales:
            return None
        return self.rows_read / self.duration_s if self.duration_s > 0 else 0.0

    @property
    def failed(self) -> bool:
        """Whether the job failed."""
        return self.outcome == OutcomeKind.FAILED.value

    def as_dict(self) -> dict[str, Any]:
        """The result as JSON values."""
        error = self.error
        return {
            "job": self.job,
            "outcome": self.outcome,
            "rows_read": self.rows_read,
            "rows_written": dict(self.rows_written),
            "bad_rows": self.bad_rows,
            "skipped_rows": self.skipped_rows,
            "late_rows": self.late_rows,
            "untimed_rows": self.untimed_rows,
            "evicted_rows": self.evicted_rows,
            "duration_s": round(self.duration_s, 3),
            "rows_per_s": None if self.rows_per_s is None else round(self.rows_per_s, 1),
            "restarts": self.restarts,
            "rescales": self.rescales,
            "checkpoint": None if self.checkpoint is None else asdict(self.checkpoint),
            "error": None
            if error is None
            else {"type": type(error).__name__, "message": error.message},
        }


def job_result(last: JobFigures, outcome: JobOutcome, duration_s: float) -> JobResult:
    """A job's last figures and its outcome, together."""
    return JobResult(
        last.job,
        outcome.kind.value,
        last.read,
        dict(last.written),
        last.bad,
        last.skipped,
        duration_s,
        outcome.error,
        last.restarts,
        last.checkpoint,
        last.late,
        last.untimed,
        last.evicted,
        0 if last.rescale is None else last.rescale.number,
    )


def results_json(results: Sequence[JobResult], exit_code: int) -> str:
    """All results as one JSON object on one line."""
    jobs = [result.as_dict() for result in results]
    return json.dumps({"jobs": jobs, "exit_code": exit_code}, ensure_ascii=False)


def results_text(results: Sequence[JobResult], types: SinkTypes | None = None) -> str:
    """All results for a person: a few lines per job. `types` says what each sink is."""
    return "".join(_text(result, (types or {}).get(result.job, {})) for result in results)


def advice(error: ArkflowError) -> str:
    """What a user can do about an error whose message does not say it; may be empty."""
    return next((text for kind, text in _ADVICE if isinstance(error, kind)), "")


def _text(result: JobResult, types: Mapping[str, str]) -> str:
    lines = [f"{result.job}: {result.outcome} after {result.duration_s:,.1f} s"]
    rate = "" if result.rows_per_s is None else f", {result.rows_per_s:,.0f} rows/s"
    lines.append(f"  read     {_rows(result.rows_read)}{rate}")
    for sink, rows in result.rows_written.items():
        what = f" ({types[sink]})" if sink in types else ""
        lines.append(f"  written  {_rows(rows)} to {sink}{what}")
    if result.bad_rows:
        lines.append(f"  bad      {_rows(result.bad_rows)}")
    if result.skipped_rows:
        lines.append(f"  skipped  {_rows(result.skipped_rows)}")
    if result.late_rows:
        lines.append(f"  late     {_rows(result.late_rows)}")
    if result.untimed_rows:
        lines.append(f"  no time  {_rows(result.untimed_rows)}")
    if result.evicted_rows:
        lines.append(f"  evicted  {_rows(result.evicted_rows)}")
    if result.restarts:
        lines.append(f"  restarts {result.restarts:,}; the figures are those of the last attempt")
    if result.rescales:
        lines.append(f"  rescales {result.rescales:,}; the figures are those of the last attempt")
    if result.checkpoint is not None:
        lines += [f"  saved    {text}" for text in _saved(result, result.checkpoint)]
    note = _figures_note(result)
    if note:
        lines.append(f"  note     {note}")
    if result.error is not None:
        lines.append(f"  error    {_indented(result.error)}")
        hint = advice(result.error)
        if hint:
            lines.append(f"  to do    {hint}")
    return "\n".join(lines) + "\n"


def _saved(result: JobResult, checkpoint: CheckpointFigures) -> list[str]:
    """What is left of the job for a later run, as at most one sentence."""
    finished = result.outcome == OutcomeKind.FINISHED.value
    if isinstance(result.error, RestoreError):
        return []  # it was refused, nothing changed, and the error says what to do
    if checkpoint.root is None:
        advice = "with a `checkpoint:` block a later run continues"
        return [] if finished else [f"nothing: checkpoints ended with this run; {advice}"]
    if not checkpoint.last:
        if finished:
            before = checkpoint.restored
            return [f"{before} in {checkpoint.root}, as before"] if before else []
        if not checkpoint.restored and not result.rows_read:  # perhaps no claim was made
            shows = f"`arkflow-ray checkpoints {result.job} --config FILE` shows what there is"
            return [f"nothing in this run; {shows}"]
        begins = checkpoint.restored or "its beginning"
        return [f"nothing in this run; the next run of this file begins at {begins}"]
    tail = "; the job is finished" if finished else "; the next run of this file continues from it"
    return [f"checkpoint {checkpoint.last} in {checkpoint.root}{tail}"]


def _figures_note(result: JobResult) -> str:
    """What the figures of a job that was cut short do not say; empty if they say it all."""
    if isinstance(result.error, ActorLostError):
        return "the figures are the last that its process reported"
    cut_short = result.outcome in (OutcomeKind.FAILED.value, OutcomeKind.CANCELLED.value)
    if cut_short and any(result.rows_written.values()):
        return "written is what the outputs were given; the last of it may not be confirmed"
    return ""


def _indented(error: ArkflowError) -> str:
    notes: list[str] = getattr(error, "__notes__", [])
    return "\n".join([error.message, *notes]).replace("\n", "\n           ")


def _rows(count: int) -> str:
    return f"{count:,} row" if count == 1 else f"{count:,} rows"


__all__ = ["JobResult", "SinkTypes", "advice", "job_result", "results_json", "results_text"]
