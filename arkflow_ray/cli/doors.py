"""What the commands for running jobs do: knock at a door, print the answer."""

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from arkflow_kernel.durations import age_text
from arkflow_kernel.errors import ArkflowError, ClusterError, ConfigError
from arkflow_ray.cli.autoscale_lines import autoscale_lines
from arkflow_ray.cli.exits import ExitCode, say
from arkflow_ray.cli.places import HERE, Where, jobs_at
from arkflow_ray.door.messages import (
    BadRequestError,
    DoorError,
    NotReachableError,
    RefusedError,
    Request,
    SeveralRunsError,
    WaitedTooLongError,
    name_fault,
)
from arkflow_ray.observability.subtasks import counts_text
from arkflow_ray.observability.time_figures import time_text

TIMES_SHOWN_MAX: Final = 16
"""So many chains are shown with their event time; JSON has all of them."""

OPERATORS_SHOWN_MAX: Final = 16
SUBTASKS_SHOWN_MAX: Final = 8
"""So many operators are shown, and so many subtasks of each one by one; JSON has all of them."""


def list_jobs(where: Where = HERE, *, as_json: bool) -> int:
    """Print every job of this machine, or of a cluster."""
    try:
        with jobs_at(where) as jobs:
            found, silent = jobs.list()
    except ArkflowError as error:
        return tell_failure(error, as_json=as_json)
    if as_json:
        print(json.dumps({"jobs": found, "silent": silent}, ensure_ascii=False))
        return ExitCode.DONE
    for each in silent:
        say(str(each["error"]))
    if not found:
        print(f"no job {'that answers ' if silent else ''}{jobs.place}")
        return ExitCode.DONE
    width = max(len(told["job"]) for told in found)
    for told in found:
        print(f"{told['job']:{width}}  {_line(told)}")
    return ExitCode.DONE


def _line(told: dict[str, Any]) -> str:
    """A job in the list. One of a cluster may be without a status, and stays when it is over."""
    status = told["status"] if "phase" in told else told
    state = told["phase"] if status is None else status["state"]
    node = f"node {told['node'][:8]}  " if "node" in told else ""
    saved = "" if status is None else f"  {_saved(status)}"
    end = told.get("end")
    if end is not None:
        state = end["outcome"]
        if status is None and end["error"] is not None:
            saved = f"  {end['error']['message'].splitlines()[0]}"
    return f"{state:10}  {node}pid {told['pid']:<8} since {told['started_at']}{saved}"


def show_status(job: str, where: Where = HERE, *, as_json: bool) -> int:
    """Print the status of a running job."""
    told, code = ask_job(job, Request("status"), None, where, as_json=as_json)
    if told is not None:
        print(json.dumps(told, ensure_ascii=False) if as_json else status_text(told))
    return code


def stop_job(
    job: str,
    where: Where = HERE,
    *,
    drain: bool,
    savepoint: str | None,
    timeout_s: float,
    as_json: bool,
) -> int:
    """Stop a running job in order. `savepoint`: its name, "" for one of the time; None: none."""
    name = None if savepoint is None else savepoint or default_name()
    if not _fine(name, as_json=as_json):
        return ExitCode.USAGE
    request = Request("stop", drain, name)
    told, code = ask_job(job, request, timeout_s, where, as_json=as_json)
    _print_end(told, as_json=as_json)
    if told is not None and name is not None and not as_json:
        print(f"savepoint '{name}': {told['url']}")
    return code


def cancel_job(job: str, where: Where = HERE, *, timeout_s: float, as_json: bool) -> int:
    """End a running job now."""
    told, code = ask_job(job, Request("cancel"), timeout_s, where, as_json=as_json)
    _print_end(told, as_json=as_json)
    return code


def _print_end(told: dict[str, Any] | None, *, as_json: bool) -> None:
    """How a job ended that was asked to end."""
    if told is None:
        return
    if as_json:
        print(json.dumps(told, ensure_ascii=False))
        return
    verb = "has" if told["outcome"] == "finished" else "was"
    kept = "" if told["checkpoint"] is None else f"; its last checkpoint is {told['checkpoint']}"
    print(f"job '{told['job']}' {verb} {told['outcome']}{kept}")


def make_savepoint(
    job: str, name: str | None, where: Where = HERE, *, timeout_s: float, as_json: bool
) -> int:
    """Make a savepoint of a running job."""
    named = name or default_name()
    if not _fine(named, as_json=as_json):
        return ExitCode.USAGE
    request = Request("savepoint", savepoint=named)
    told, code = ask_job(job, request, timeout_s, where, as_json=as_json)
    if told is not None:
        print(json.dumps(told, ensure_ascii=False) if as_json else told["url"])
    return code


def default_name() -> str:
    """`sp-20261130T041000Z`: a savepoint's name by the time."""
    return datetime.now(UTC).strftime("sp-%Y%m%dT%H%M%SZ")


def status_text(told: dict[str, Any]) -> str:
    """A status for a person."""
    lines = [f"{told['job']}: {told['state']}" + (f" ({told['cause']})" if told["cause"] else "")]
    lines.append(f"  process   {told['pid']}, since {told['started_at']}")
    lines.append(f"  chains    {told['ready']} of {told['chains']} are up, {told['mode']} mode")
    lines.append(f"  read      {told['rows_read']:,} rows, {told['bad_rows']:,} bad")
    for sink, rows in told["rows_written"].items():
        lines.append(f"  written   {rows:,} rows to {sink}")
    if told["restarts"]:
        lines.append(f"  restarts  {told['restarts']:,}; the figures are of the last attempt")
    lines += [*_operator_lines(told), *_rescale_lines(told), *autoscale_lines(told)]
    lines += _time_lines(told)
    if told.get("evicted_rows"):
        lines.append(f"  evicted   {told['evicted_rows']:,} rows of windows with too many keys")
    for wait in told["waits"]:
        seconds = wait["waited_ms"] / 1000
        what = f"{wait['on']}: {wait['detail']}"
        lines.append(f"  waits     chain '{wait['chain']}' for {seconds:.0f} s for {what}")
    if told["checkpoints"] is not None:
        lines += _checkpoint_lines(told["checkpoints"])
    if told["error"] is not None:
        lines.append(f"  error     {told['error']['message']}")
    return "\n".join(lines)


def _operator_lines(told: dict[str, Any]) -> list[str]:
    """Every operator with its subtasks, and what those of each parallel chain got."""
    operators = told.get("operators", [])
    if not operators:
        return []
    named = [f"{each['operator']} {each['parallelism']}" for each in operators]
    more = len(named) - OPERATORS_SHOWN_MAX
    listed = ", ".join(named[:OPERATORS_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
    lines = [f"  operators {listed}"]
    parallel = [each for each in operators if each["operator"] == each["chain"]]
    parallel = [each for each in parallel if each["parallelism"] > 1]
    for each in parallel[:OPERATORS_SHOWN_MAX]:
        counts = counts_text(each["rows_in"], SUBTASKS_SHOWN_MAX)
        skew = "" if each["skew"] is None else f"; skew {each['skew']:.2f}"
        lines.append(f"  subtasks  {each['operator']}: {counts} rows in{skew}{_fullest(each)}")
    return lines


def _fullest(told: dict[str, Any]) -> str:
    """The key group with the most rows: no number of subtasks divides it."""
    fullest = told.get("fullest_key_group")
    if fullest is None:
        return ""
    return f"; key group {fullest['key_group']} has {fullest['share']:.1%} of them"


def _rescale_lines(told: dict[str, Any]) -> list[str]:
    rescale = told.get("rescale")
    if rescale is None:
        return []
    return [f"  rescale   {rescale['text']}; asked for {age_text(rescale['age_ms'])} ago"]


def _time_lines(told: dict[str, Any]) -> list[str]:
    """Where the chains are in event time, and what was late; nothing in processing time."""
    lines = []
    chains = told.get("event_time", [])
    for chain in chains[:TIMES_SHOWN_MAX]:
        parts = [_watermark(chain), *(["idle"] if chain["idle"] else [])]
        for key, what in (("late", "late"), ("untimed", "without a time"), ("ahead", "ahead")):
            count = chain[f"{key}_rows"]
            if count:
                parts.append(f"{count:,} row{'s' if count != 1 else ''} {what}")
        lines.append(f"  time      {chain['chain']}: {', '.join(parts)}")
    if len(chains) > TIMES_SHOWN_MAX:
        lines.append(f"            and {len(chains) - TIMES_SHOWN_MAX:,} more chains")
    return lines


def _watermark(chain: dict[str, Any]) -> str:
    if chain["watermark"] is None:
        return "no watermark yet"
    side = "behind" if chain["lag_ms"] >= 0 else "ahead of"
    lag = age_text(abs(chain["lag_ms"]))
    return f"{time_text(chain['watermark'])}, {lag} {side} the clock"


def _checkpoint_lines(told: dict[str, Any]) -> list[str]:
    lines = [f"  saves in  {told['root'] or 'a folder of this run, which goes with it'}"]
    lines.append(f"  restored  {told['restored'] or 'nothing'}")
    if told["last"] is not None:
        age = "" if told["age_ms"] is None else f", {age_text(told['age_ms'])} ago"
        took = f"took {told['duration_ms']:,} ms, {told['new_bytes']:,} new bytes"
        lines.append(f"  saved     checkpoint {told['last']}{age}; {took}")
        phases = told["phases"]
        lines.append(
            f"            paused {phases['pause_ms']:,} ms, sealed after "
            f"{phases['sealed_ms']:,} ms, uploaded in {phases['upload_ms']:,} ms"
        )
    if told["under_way"] is not None:
        missing = ", ".join(told["missing"][:5]) or "its record"
        lines.append(f"  saving    checkpoint {told['under_way']}; waits for {missing}")
    if told["failures"]:
        lines.append(f"  failed    {told['failures']} rounds in a row: {told['error']}")
    for name, end in told["savepoints"].items():
        lines.append(f"  savepoint {name}: {end.get('url') or 'failed: ' + end['error']}")
    return lines


def _saved(told: dict[str, Any]) -> str:
    checkpoints = told["checkpoints"]
    if checkpoints is None:
        return "no checkpoints"
    if checkpoints["last"] is None:
        return "no checkpoint yet"
    age = "" if checkpoints["age_ms"] is None else f", {age_text(checkpoints['age_ms'])} ago"
    return f"checkpoint {checkpoints['last']}{age}"


def ask_job(
    job: str, request: Request, timeout_s: float | None, where: Where = HERE, *, as_json: bool
) -> tuple[dict[str, Any] | None, ExitCode]:
    """A job's answer; without one, what was wrong is printed."""
    try:
        with jobs_at(where) as jobs:
            return jobs.ask(job, request, timeout_s, _progress(as_json)), ExitCode.DONE
    except ArkflowError as error:
        return None, tell_failure(error, as_json=as_json)
    except (DoorError, KeyboardInterrupt) as error:
        code, message = _verdict(error, job, where, timeout_s)
        tell_error(type(error).__name__, message, code, as_json=as_json)
        return None, code


def _verdict(
    error: DoorError | KeyboardInterrupt, job: str, where: Where, timeout_s: float | None
) -> tuple[ExitCode, str]:
    shows = f"`arkflow-ray status {job}{where.options}` shows how it is"
    stands = f"what you asked for stands; {shows}"
    match error:
        case NotReachableError():
            return ExitCode.NO_CLUSTER, error.message
        case SeveralRunsError() | BadRequestError():
            return ExitCode.USAGE, error.message
        case RefusedError():
            return ExitCode.FAILED, f"job '{job}': {error.message}"
        case WaitedTooLongError():
            return ExitCode.FAILED, f"job '{job}': not done after {timeout_s:g} s; {stands}"
        case _:
            return ExitCode.CANCELLED, f"no longer waiting; {stands}"


def tell_failure(error: ArkflowError, *, as_json: bool) -> ExitCode:
    """Why nobody could be asked: the cluster, or how it was named."""
    code = ExitCode.FAILED
    if isinstance(error, ClusterError):
        code = ExitCode.NO_CLUSTER
    elif isinstance(error, ConfigError):
        code = ExitCode.USAGE
    tell_error(type(error).__name__, error.message, code, as_json=as_json)
    return code


def tell_error(kind: str, message: str, code: ExitCode, *, as_json: bool) -> None:
    """What went wrong: a line on stderr, or the answer in JSON."""
    if as_json:
        told = {"error": {"type": kind, "message": message}, "exit_code": int(code)}
        print(json.dumps(told, ensure_ascii=False))
    else:
        say(message)


def _progress(as_json: bool) -> Callable[[str], None]:
    def tell(text: str) -> None:
        if as_json:
            print(json.dumps({"progress": text}, ensure_ascii=False), file=sys.stderr, flush=True)
        else:
            say(text)

    return tell


def _fine(name: str | None, *, as_json: bool) -> bool:
    fault = None if name is None else name_fault(name)
    if fault is not None:
        tell_error("BadRequestError", fault, ExitCode.USAGE, as_json=as_json)
    return fault is None


__all__ = [
    "ask_job",
    "cancel_job",
    "default_name",
    "list_jobs",
    "make_savepoint",
    "show_status",
    "status_text",
    "stop_job",
    "tell_error",
    "tell_failure",
]
