"""`rescale JOB OPERATOR=N …`: parse what is wanted, knock at the job's door, print how it went."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from arkflow_ray.cli.doors import ask_job, tell_error
from arkflow_ray.cli.exits import ExitCode
from arkflow_ray.cli.places import HERE, Where
from arkflow_ray.door.messages import Request


def rescale_job(
    job: str,
    wanted: Sequence[str],
    where: Where = HERE,
    *,
    wait: bool,
    timeout_s: float,
    as_json: bool,
) -> int:
    """Give operators of a running job another number of subtasks. `wanted`: `OPERATOR=N` each."""
    try:
        parallelism = parse_wanted(wanted)
    except ValueError as error:
        tell_error("BadRequestError", str(error), ExitCode.USAGE, as_json=as_json)
        return ExitCode.USAGE
    request = Request("rescale", parallelism=parallelism, wait=wait)
    told, code = ask_job(job, request, timeout_s, where, as_json=as_json)
    if told is not None:
        print(json.dumps(told, ensure_ascii=False) if as_json else told_text(told, parallelism))
    return code


def parse_wanted(wanted: Sequence[str]) -> dict[str, int]:
    """The number of subtasks by operator. Raises `ValueError` with a sentence for the user."""
    found: dict[str, int] = {}
    for text in wanted:
        operator, equals, number = text.rpartition("=")
        if not operator or not equals or not (number.isascii() and number.isdigit()):
            raise ValueError(f"'{text}' is not OPERATOR=N, as in count=4")
        if operator in found:
            raise ValueError(f"operator '{operator}' is named twice")
        if len(number) > len("4294967295"):
            raise ValueError(f"'{text}' asks for more subtasks than there can be")
        found[operator] = int(number)
    return found


def told_text(told: Mapping[str, Any], wanted: Mapping[str, int]) -> str:
    """The answer for a person: what changed, and how long each phase took."""
    job, changed = told["job"], told["changed"]
    if told["outcome"] == "unchanged":
        so = ", ".join(f"'{operator}' has {number}" for operator, number in wanted.items())
        return f"job '{job}': nothing to change; {so} already"
    listed = ", ".join(f"{name} {before} -> {after}" for name, (before, after) in changed.items())
    notes = [f"  {note}" for note in told["notes"]]
    if told["outcome"] == "accepted":
        shows = f"`arkflow-ray status {job}` shows how it goes on"
        return "\n".join([f"job '{job}' is being rescaled: {listed}; {shows}", *notes])
    lines = [f"job '{job}' is rescaled: {listed}", *notes]
    phases: dict[str, int] = told["phases"]
    for name, ms in [*phases.items(), ("total_ms", told["duration_ms"])]:
        lines.append(f"  {name.removesuffix('_ms'):8} {ms:>9,} ms")
    return "\n".join(lines)


__all__ = ["parse_wanted", "rescale_job", "told_text"]
