"""What errors of stores' clients mean, and how they are told."""

import errno
import socket
from typing import Any

import pytest

from arkflow_ray.checkpoint.retries import Patience
from arkflow_ray.checkpoint.troubles import TEXT_CHARS_MAX, Trouble, advice, judge, told


class ClientError(Exception):
    """As botocore's: the answer of the store, parsed."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"An error occurred ({code})")
        self.response: dict[str, Any] = {
            "Error": {"Code": code},
            "ResponseMetadata": {"HTTPStatusCode": status},
        }


class HttpError(Exception):
    """As gcsfs's."""

    def __init__(self, code: int) -> None:
        super().__init__(str(code))
        self.code = code


class EndpointConnectionError(Exception):
    """As botocore's."""


class NoCredentialsError(Exception):
    """As botocore's."""


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (ClientError(503, "SlowDown"), Trouble.BUSY),
        (ClientError(409, "ConditionalRequestConflict"), Trouble.UNSENT),
        (ClientError(400, "RequestTimeout"), Trouble.UNSENT),
        (ClientError(500, "InternalError"), Trouble.UNKNOWN),
        (ClientError(403, "AccessDenied"), Trouble.REFUSED),
        (ClientError(404, "NoSuchBucket"), Trouble.REFUSED),
        (ClientError(301, "PermanentRedirect"), Trouble.REFUSED),
        (HttpError(429), Trouble.BUSY),
        (HttpError(504), Trouble.UNKNOWN),
        (HttpError(401), Trouble.REFUSED),
        (EndpointConnectionError("x"), Trouble.UNSENT),
        (NoCredentialsError("x"), Trouble.REFUSED),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), Trouble.UNSENT),
        (socket.gaierror(-2, "unknown name"), Trouble.UNSENT),
        (ConnectionResetError(errno.ECONNRESET, "reset"), Trouble.UNKNOWN),
        (TimeoutError(), Trouble.UNKNOWN),
        (OSError(errno.ENOSPC, "full"), Trouble.REFUSED),
        (OSError(errno.ESTALE, "stale"), Trouble.UNKNOWN),
        (FileNotFoundError("x"), Trouble.REFUSED),
        (RuntimeError("who knows"), Trouble.UNKNOWN),
    ],
)
def test_an_error_is_judged_by_what_it_may_have_done(error: Exception, trouble: Trouble) -> None:
    """M1, M4: only what certainly did nothing may be tried again without looking."""
    assert judge(error) is trouble


def test_an_error_s_text_shows_no_credentials_of_a_url_and_is_short() -> None:
    """M8."""
    text = told(EndpointConnectionError('Could not connect to "http://me:hunter2@host:9000/b"'))
    assert "hunter2" not in text
    assert "host:9000/b" in text
    assert len(told(RuntimeError("x" * 10_000))) < TEXT_CHARS_MAX + 50


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (NoCredentialsError("x"), "set the credentials"),
        (ClientError(404, "NoSuchBucket"), "create the bucket"),
        (ClientError(403, "AccessDenied"), "check the credentials"),
        (ClientError(503, "SlowDown"), "check that the store runs"),
        (OSError(errno.ENOSPC, "full"), "free space"),
        (ClientError(400, "InvalidRequest"), "the store's own log"),
    ],
)
def test_every_error_has_an_advice(error: Exception, what: str) -> None:
    assert what in advice(error)


def test_waits_grow_up_to_a_limit() -> None:
    """M4."""
    patience = Patience(first_s=0.1, longest_s=5.0)
    waits = [patience.before(attempt) for attempt in (1, 2, 3, 7, 10_000)]
    assert waits == pytest.approx([0.1, 0.2, 0.4, 5.0, 5.0])
    assert patience.of_bytes(0) == patience.call_s
    assert patience.of_bytes(60 << 20) == patience.call_s + 60
