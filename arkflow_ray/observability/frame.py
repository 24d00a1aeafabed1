"""The pictures of the live display, as lines of text that fit a terminal. Imports rich."""

from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Final

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from arkflow_kernel.protocol import JobState
from arkflow_ray.observability.figures import JobFigures, rescale_phase, restarts_text

_COLOURS: Final = {
    JobState.RUNNING: "green",
    JobState.FINISHED: "green",
    JobState.FAILED: "red",
    JobState.RESTARTING: "yellow",
    JobState.RESCALING: "yellow",
    JobState.STOPPING: "yellow",
    JobState.STOPPED: "yellow",
    JobState.CANCELLED: "yellow",
}


def phase_frame(phase: str, elapsed_s: float, columns: int) -> list[str]:
    """One line: what is being started, and for how long."""
    line = Text.assemble((phase, "bold"), f"  {elapsed_s:.1f} s")
    return _lines(line, columns)


def jobs_frame(
    jobs: Sequence[JobFigures],
    rates: Mapping[str, float],
    elapsed_s: float,
    size: tuple[int, int],
) -> list[str]:
    """A table with a line per job; `size` is columns and lines of the terminal."""
    columns, height = size
    room = max(1, height - 3)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("job")
    table.add_column("state")
    late = any(job.late for job in jobs)
    for title in ("rows read", "written", "rows/s", "bad", *(["late"] if late else [])):
        table.add_column(title, justify="right")
    table.add_column(f"{elapsed_s:.1f} s", justify="right")
    for job in jobs[:room]:
        table.add_row(
            Text(job.job, "bold"),
            Text(_state(job), _COLOURS.get(job.state, "cyan")),
            f"{job.read:,}",
            f"{job.rows_written:,}",
            f"{rates.get(job.job, 0.0):,.0f}",
            Text(f"{job.bad:,}", "red" if job.bad else ""),
            *([f"{job.late:,}"] if late else []),
        )
    lines = _lines(table, columns)
    left = len(jobs) - room
    return [*lines, f"… and {left} more jobs"] if left > 0 else lines


def _state(job: JobFigures) -> str:
    state = str(job.state.value)
    if job.state is JobState.DEPLOYING:
        state = f"deploying {job.ready}/{job.chains} chains"
    phase = rescale_phase(job)
    if phase is not None:
        state = f"rescaling, {phase}"
    if job.checkpoint is not None and job.checkpoint.last:
        state += f", checkpoint {job.checkpoint.last}"
    return f"{state}, {restarts_text(job.restarts)}" if job.restarts else state


def _lines(picture: RenderableType, columns: int) -> list[str]:
    text = StringIO()
    # One column is left free: a full line would make some terminals wrap.
    console = Console(file=text, force_terminal=True, width=max(20, columns - 1), height=100)
    console.print(picture, no_wrap=True, overflow="ellipsis", crop=True)
    return text.getvalue().splitlines()


__all__ = ["jobs_frame", "phase_frame"]
