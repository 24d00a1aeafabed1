"""`checkpoints JOB`: what a job's log holds, what the next start would restore, how old it is."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from arkflow_kernel.durations import age_text
from arkflow_kernel.errors import ArkflowError, ConfigError, Issue
from arkflow_ray.cli.doors import tell_error, tell_failure
from arkflow_ray.cli.exits import ExitCode
from arkflow_ray.cli.places import HERE, Where, jobs_at
from arkflow_ray.door.messages import DoorError, Request

if TYPE_CHECKING:
    from arkflow_kernel.log_view import LogView, RecordView

WHERE: Final = "say where with --config FILE or --root URL"

_UNITS: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def list_checkpoints(
    job: str, where: Where = HERE, *, config: Path | None, root: str | None, as_json: bool
) -> int:
    """Print the checkpoints of a job, newest first."""
    try:
        place, name = _place(job, where, config, root)
        view = _read(place, name)
    except DoorError as error:
        message = f"{error.message}; {WHERE}"
        tell_error(type(error).__name__, message, ExitCode.NO_CLUSTER, as_json=as_json)
        return ExitCode.NO_CLUSTER
    except ArkflowError as error:
        return tell_failure(error, as_json=as_json)
    now_ms = time.time_ns() // 1_000_000
    if as_json:
        print(json.dumps(history_values(view, name, place, now_ms), ensure_ascii=False))
    else:
        print(history_text(view, name, place, now_ms))
    return ExitCode.DONE


def _place(job: str, where: Where, config: Path | None, root: str | None) -> tuple[str, str]:
    """The checkpoint root of a job, and the job's id."""
    if config is not None and root is not None:
        raise ConfigError([Issue("", "--config and --root exclude each other: name one place")])
    if root is not None:
        from arkflow_ray.checkpoint.roots import parse_root

        return parse_root(root).url, job
    if config is not None:
        return _root_of(job, config), job
    with jobs_at(where) as jobs:
        told = jobs.ask(job, Request("status"), None)
    checkpoints = told["checkpoints"]
    if checkpoints is None or checkpoints["root"] is None:
        text = f"job '{job}' keeps no checkpoints beyond its run; `arkflow-ray status {job}` shows"
        raise ConfigError([Issue("", f"{text} those of this run")])
    return str(checkpoints["root"]), str(told["job"])


def _root_of(job: str, config: Path) -> str:
    from arkflow_ray.cli.problems import check
    from arkflow_ray.pipeline import select_jobs

    project, issues = check(config, lenient=True)
    if project is None:
        raise ConfigError([Issue("", str(issue)) for issue in issues])
    (found,) = select_jobs(project.jobs, [job])
    plan = None if found.graph is None else found.graph.checkpoint
    if found.graph is None:
        raise ConfigError([Issue("", str(issue)) for issue in issues if not issue.warning])
    if plan is None or plan.root is None:
        text = f"job '{job}' has no `checkpoint:` block with an `object_store_uri` in {config}"
        raise ConfigError([Issue("", text)])
    return plan.root


def _read(root: str, job: str) -> "LogView":
    from arkflow_kernel.log_view import read_log
    from arkflow_ray.checkpoint.open import open_files

    files = open_files(root, job)
    try:
        return read_log(files)
    finally:
        files.close()


def history_values(view: "LogView", job: str, root: str, now_ms: int) -> dict[str, Any]:
    """A log as JSON values. Times are ms since 1970 and ms of age; sizes are bytes."""
    records = [slot.record for slot in reversed(view.slots) if slot.record is not None]
    claims = [slot.claim for slot in reversed(view.slots) if slot.claim is not None]
    return {
        "job": job,
        "root": root,
        "restores": view.restores,
        "refused": view.refused,
        "newest_age_ms": None if not records else max(0, now_ms - records[0].created_at),
        "checkpoints": [_record_values(record, now_ms) for record in records],
        "savepoints": [_record_values(record, now_ms) for record in _newest_first(view)],
        "broken_savepoints": view.broken_savepoints,
        "claims": [asdict(claim) for claim in claims],
        "unreadable": {slot.slot: slot.unreadable for slot in view.slots if slot.unreadable},
    }


def _record_values(record: "RecordView", now_ms: int) -> dict[str, Any]:
    return {**asdict(record), "age_ms": max(0, now_ms - record.created_at)}


def _newest_first(view: "LogView") -> "list[RecordView]":
    return sorted(view.savepoints, key=lambda record: record.created_at, reverse=True)


def history_text(view: "LogView", job: str, root: str, now_ms: int) -> str:
    """A log for a person."""
    records = [slot.record for slot in reversed(view.slots) if slot.record is not None]
    if not view.slots and not view.savepoints:
        return f"job '{job}' has no checkpoint in {root}: a start begins from nothing"
    lines = _table(records, now_ms) if records else ["no checkpoints"]
    if view.savepoints:
        lines += ["", "savepoints"]
        lines += [_savepoint_line(record, now_ms) for record in _newest_first(view)]
    lines += [f"  {name}: broken: {why}" for name, why in view.broken_savepoints.items()]
    lines.append("")
    lines += [f"warning: slot {s.slot}: {s.unreadable}" for s in view.slots if s.unreadable]
    lines.append(_next_start(view, records, now_ms))
    claims = [slot.claim for slot in view.slots if slot.claim is not None]
    if claims:
        last = claims[-1]
        since = age_text(max(0, now_ms - last.created_at))
        lines.append(f"generation {last.generation} was begun by {last.coordinator} {since} ago")
    return "\n".join(lines)


def _table(records: "list[RecordView]", now_ms: int) -> list[str]:
    rows: list[tuple[str, ...]] = [
        (
            "checkpoint", "kind", "age", "took ms", "pause", "sealed", "upload", "new", "total",
            "pending", "",
        )
    ]  # fmt: skip
    rows += [_row(record, now_ms) for record in records]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [_line(row, widths) for row in rows]


def _row(record: "RecordView", now_ms: int) -> tuple[str, ...]:
    kind = record.kind if record.savepoint is None else f"{record.kind} '{record.savepoint}'"
    return (
        str(record.checkpoint),
        kind,
        age_text(max(0, now_ms - record.created_at)),
        f"{record.phases.acknowledged_ms:,}",
        f"{record.phases.pause_ms:,}",
        f"{record.phases.sealed_ms:,}",
        f"{record.phases.upload_ms:,}",
        size_text(record.new_bytes),
        size_text(record.total_bytes),
        str(record.tokens),
        "usable" if record.unusable is None else f"unusable: {record.unusable}",
    )


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    """Numbers to the right, words to the left."""
    words = (1, len(row) - 1)
    cells = [
        cell.ljust(width) if column in words else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def _savepoint_line(record: "RecordView", now_ms: int) -> str:
    age = age_text(max(0, now_ms - record.created_at))
    usable = "usable" if record.unusable is None else f"unusable: {record.unusable}"
    size = size_text(record.total_bytes)
    return f"  {record.savepoint}: checkpoint {record.checkpoint}, {age} ago, {size}, {usable}"


def _next_start(view: "LogView", records: "list[RecordView]", now_ms: int) -> str:
    if view.refused is not None:
        return f"warning: the next start is refused: {view.refused}"
    if view.restores is None:
        return "the next start begins from nothing"
    text = f"the next start restores {view.restores}"
    if not records:
        return text
    return f"{text}; the newest is {age_text(max(0, now_ms - records[0].created_at))} old"


def size_text(size: int) -> str:
    """Bytes in the unit that a person would use."""
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"


__all__ = ["history_text", "history_values", "list_checkpoints", "size_text"]
