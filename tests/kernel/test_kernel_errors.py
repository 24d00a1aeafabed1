"""Errors tell the story and survive pickling: Ray raises them again in another process."""

import copy
import pickle
from typing import Any

import pytest

from arkflow_kernel import errors
from arkflow_kernel.errors import ArkflowError, ConfigError, Issue, ProtocolError

_ARGUMENTS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "ConfigError": (([Issue("a.b", "wrong"), Issue("", "no place", warning=True)],), {}),
    "ProcessingError": (
        ("op", "cause"),
        {"error_class": "ValueError", "where": "file, offset 3", "row": "{}"},
    ),
    "OperatorTimeoutError": (("op", 100), {"where": "file"}),
    "BadRowError": (("op", "cause"), {"where": "file, offset 3", "row": "{"}),
    "ProtocolError": (("broken", ("first", "second")), {}),
}

CLASSES = [
    kind
    for name in errors.__all__
    if isinstance(kind := getattr(errors, name), type) and issubclass(kind, ArkflowError)
]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_keeps_its_type_text_and_fields(kind: type[ArkflowError]) -> None:
    positional, named = _ARGUMENTS.get(kind.__name__, (("what happened",), {}))
    error = kind(*positional, **named)
    error.add_note("a note")
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is kind
        assert str(twin) == str(error) != ""
        assert twin.__dict__ == error.__dict__
        assert twin.args == (str(error),)


def test_a_config_error_shows_every_issue_at_its_place() -> None:
    error = ConfigError([Issue("streams[0].input", "no such type"), Issue("", "empty")])
    assert str(error) == "streams[0].input: no such type\nempty"


def test_a_protocol_error_tells_its_story() -> None:
    assert str(ProtocolError("no")) == "no"
    assert str(ProtocolError("no", ("a", "b"))) == "no; last transitions:\n  a\n  b"
