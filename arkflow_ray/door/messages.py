"""What is said at a door: JSON objects, one a line, and the errors of whoever knocks.

A caller sends one request, and gets lines until there is a result or an error:

    {"version": 1, "command": "stop", "drain": false, "savepoint": "before-upgrade"}
    {"version": 1, "command": "rescale", "parallelism": {"count": 4}, "wait": true}

and is told, for example

    {"progress": "checkpoint 12 is under way; waiting for chain 'count-0'"}
    {"alive": true}
    {"result": {…}}  or  {"error": {"type": "StoreError", "message": "…"}}
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from arkflow_kernel.limits import KIB, MIB

VERSION: Final = 1
REQUEST_BYTES_MAX: Final = 16 * KIB
"""A request that is longer is refused before it is read to its end."""

ANSWER_BYTES_MAX: Final = 16 * MIB
"""An answer's line that is longer is refused by the caller: a status of thousands of chains."""

ALIVE_S: Final = 2.0
"""A door says so often that it is there while there is nothing to tell."""

SILENCE_S: Final = 10.0
"""A door that says nothing for so long does not answer."""

DONE_WITHIN_S: Final = 660.0
"""How long a caller waits who says nothing else: a round may take ten minutes before it fails (B5);
then there is an answer.
"""

NAME_CHARS_MAX: Final = 128

Command = Literal["status", "stop", "cancel", "savepoint", "rescale"]
_COMMANDS: Final[Mapping[str, Command]] = {
    "status": "status",
    "stop": "stop",
    "cancel": "cancel",
    "savepoint": "savepoint",
    "rescale": "rescale",
}
_KEYS: Final = {"version", "command", "drain", "savepoint", "parallelism", "wait"}
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


class DoorError(Exception):
    """What a caller at a door may be told; `message` is for the user."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NotReachableError(DoorError):
    """There is no such run on this machine as this user, or it does not answer."""


class SeveralRunsError(DoorError):
    """The job runs more than once, and it was not said which is meant."""


class BadRequestError(DoorError):
    """The request is none that the job could carry out."""


class RefusedError(DoorError):
    """The job did not do it. `kind` is the type of its error."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class WaitedTooLongError(DoorError):
    """The time that the caller had is over; what was asked for still stands."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a caller wants. `savepoint` names a savepoint; `drain` goes with `stop` (D5).

    `parallelism` goes with `rescale` (K2): the wanted number of subtasks by operator; without
    `wait` the answer comes as soon as the rescale has begun.
    """

    command: Command
    drain: bool = False
    savepoint: str | None = None
    parallelism: Mapping[str, int] | None = None
    wait: bool = True


def name_fault(name: str) -> str | None:
    """Why this cannot be the name of a savepoint, or None."""
    if len(name) <= NAME_CHARS_MAX and _NAME.fullmatch(name):
        return None
    return (
        f"'{name[:NAME_CHARS_MAX]}' cannot name a savepoint: use 1 to {NAME_CHARS_MAX} letters, "
        "digits, '.', '_' or '-', and no '.' in front"
    )


def request_line(request: Request) -> bytes:
    """A request as it is sent."""
    fields: dict[str, Any] = {"version": VERSION, "command": request.command}
    if request.drain:
        fields["drain"] = True
    if request.savepoint is not None:
        fields["savepoint"] = request.savepoint
    if request.parallelism is not None:
        fields["parallelism"] = dict(request.parallelism)
    if not request.wait:
        fields["wait"] = False
    return message_line(fields)


def message_line(message: Mapping[str, Any]) -> bytes:
    """A message as one line."""
    return json.dumps(message, ensure_ascii=False).encode() + b"\n"


def parse_message(line: bytes) -> dict[str, Any] | None:
    """The object that a line holds, or None if it holds none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def refusal(error: Mapping[str, Any]) -> BadRequestError | RefusedError:
    """What a job's `error` means for its caller."""
    kind, message = str(error.get("type", "")), str(error.get("message", ""))
    if kind == BadRequestError.__name__:
        return BadRequestError(message)
    return RefusedError(message, kind)


def parse_request(line: bytes) -> Request:
    """The request that a line holds; `BadRequestError` if it is none."""
    fields = parse_message(line)
    if fields is None:
        raise BadRequestError("a request is one line with a JSON object")
    if fields.get("version", VERSION) != VERSION:
        raise BadRequestError(
            f"this run speaks version {VERSION} of the protocol; use the arkflow-ray that runs it"
        )
    unknown = sorted(set(fields) - _KEYS)
    if unknown:
        raise BadRequestError(f"unknown key in the request: {', '.join(unknown)[:200]}")
    command = fields.get("command")
    if not isinstance(command, str) or command not in _COMMANDS:
        raise BadRequestError(f"`command` is one of {', '.join(_COMMANDS)}")
    request = Request(
        _COMMANDS[command],
        _typed(fields.get("drain", False), bool, "drain"),
        _savepoint(fields.get("savepoint")),
        _parallelism(fields.get("parallelism")),
        _typed(fields.get("wait", True), bool, "wait"),
    )
    if request.drain and command != "stop":
        raise BadRequestError("`drain` goes with `stop`")
    if command not in ("stop", "savepoint") and request.savepoint is not None:
        raise BadRequestError("`savepoint` goes with `stop` and `savepoint`")
    if command == "savepoint" and request.savepoint is None:
        raise BadRequestError("`savepoint` must name the savepoint")
    if command == "rescale" and request.parallelism is None:
        raise BadRequestError("`parallelism` must say how many subtasks which operator gets")
    if command != "rescale" and (request.parallelism is not None or not request.wait):
        raise BadRequestError("`parallelism` and `wait` go with `rescale`")
    return request


def _savepoint(value: object) -> str | None:
    if value is None:
        return None
    name: str = _typed(value, str, "savepoint")
    fault = name_fault(name)
    if fault is not None:
        raise BadRequestError(fault)
    return name


def _parallelism(value: object) -> Mapping[str, int] | None:
    if value is None:
        return None
    given: dict[str, Any] = _typed(value, dict, "parallelism")
    if not given or any(type(subtasks) is not int for subtasks in given.values()):
        raise BadRequestError("`parallelism` must hold whole numbers by operator")
    return given


def _typed(value: object, kind: type[Any], key: str) -> Any:
    if not isinstance(value, kind):
        raise BadRequestError(f"`{key}` must be a {kind.__name__}")
    return value


__all__ = [
    "ALIVE_S",
    "ANSWER_BYTES_MAX",
    "DONE_WITHIN_S",
    "NAME_CHARS_MAX",
    "REQUEST_BYTES_MAX",
    "SILENCE_S",
    "VERSION",
    "BadRequestError",
    "Command",
    "DoorError",
    "NotReachableError",
    "RefusedError",
    "Request",
    "SeveralRunsError",
    "WaitedTooLongError",
    "message_line",
    "name_fault",
    "parse_message",
    "parse_request",
    "refusal",
    "request_line",
]
