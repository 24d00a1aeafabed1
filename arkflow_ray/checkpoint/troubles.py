"""What a failed call of a store means: was it done, may it be tried again, what can the user do.

Clients of stores are told apart by what their errors carry, not by their classes: none of them has
to be installed.
"""

import errno
from enum import Enum
from typing import Any, Final

from arkflow_ray.components.paths import shown

TEXT_CHARS_MAX: Final = 400
"""So much of a client's error text goes into ours."""


_NO_RETRIES: Final = "(reached max retries: 0)"
"""botocore says so of every failure; its retries are ours."""


class Trouble(Enum):
    """What a failed call may have done."""

    UNSENT = "unsent"
    """Nothing for certain; the same call may pass later."""
    BUSY = "busy"
    """Nothing: the store is overloaded."""
    UNKNOWN = "unknown"
    """Nothing or everything."""
    REFUSED = "refused"
    """Nothing, and the same call fails again."""


_UNSENT: Final = frozenset(
    (
        "ClientConnectorError",
        "ConnectTimeoutError",
        "ConnectionRefusedError",
        "EndpointConnectionError",
        "ServiceRequestError",  # azure: the request did not leave
        "gaierror",
    )
)
_REFUSED: Final = frozenset(
    (
        "ClientAuthenticationError",
        "CredentialRetrievalError",
        "DefaultCredentialsError",
        "ImportError",
        "InvalidEndpointDiscoveryConfigurationError",
        "NoCredentialsError",
        "NoRegionError",
        "ParamValidationError",
        "PartialCredentialsError",
        "ProfileNotFound",
        "TokenRetrievalError",
        "UnauthorizedSSOTokenError",
    )
)
_CODES: Final = {
    "ConditionalRequestConflict": Trouble.UNSENT,
    "InvalidPart": Trouble.UNKNOWN,  # a part was lost: the whole upload is done again
    "OperationAborted": Trouble.UNSENT,
    "RequestTimeout": Trouble.UNSENT,  # the store did not get the whole request
    "SlowDown": Trouble.BUSY,
    "Throttling": Trouble.BUSY,
    "ThrottlingException": Trouble.BUSY,
}
_STATUSES: Final = {
    408: Trouble.UNKNOWN,
    409: Trouble.UNSENT,
    429: Trouble.BUSY,
    500: Trouble.UNKNOWN,
    502: Trouble.UNKNOWN,
    503: Trouble.BUSY,
    504: Trouble.UNKNOWN,
}
_ERRNOS: Final = {
    errno.ECONNREFUSED: Trouble.UNSENT,
    errno.EAGAIN: Trouble.UNKNOWN,
    errno.EBUSY: Trouble.UNKNOWN,
    errno.EINTR: Trouble.UNKNOWN,
    errno.ESTALE: Trouble.UNKNOWN,
    errno.ETIMEDOUT: Trouble.UNKNOWN,
    errno.ECONNRESET: Trouble.UNKNOWN,
    errno.EPIPE: Trouble.UNKNOWN,
}


def judge(error: BaseException) -> Trouble:
    """What the failed call may have done. What is not known is `UNKNOWN`, but errors of the local
    disk, which tells what it did not do.
    """
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & _UNSENT:
        return Trouble.UNSENT
    if names & _REFUSED:
        return Trouble.REFUSED
    if error_code(error) in _CODES:
        return _CODES[error_code(error)]
    status = http_status(error)
    if status:
        return _STATUSES.get(status, Trouble.REFUSED if 300 <= status < 500 else Trouble.UNKNOWN)
    if isinstance(error, OSError) and error.errno is not None:
        return _ERRNOS.get(error.errno, Trouble.REFUSED)
    if isinstance(error, PermissionError | FileNotFoundError):
        return Trouble.REFUSED
    return Trouble.UNKNOWN


def error_code(error: BaseException) -> str:
    """The store's own name of an error, as `NoSuchKey`; "" if it has none."""
    return str(_details(error).get("Code", ""))


def http_status(error: BaseException) -> int:
    """The status of the answer that an error is about, 0 if it is about none."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        found = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return int(found) if isinstance(found, int) else 0
    for name in ("status_code", "status", "code"):
        found = getattr(error, name, None)
        if isinstance(found, int) and not isinstance(found, bool):
            return found
    return 0


def told(error: BaseException) -> str:
    """The error in one line, without credentials in URLs (M8)."""
    if isinstance(error, OSError) and error.strerror:
        where = f" '{error.filename}'" if error.errno == errno.EPERM and error.filename else ""
        return f"{error.strerror}{where} ({errno.errorcode.get(error.errno or 0, error.errno)})"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text = " ".join(str(error).replace(_NO_RETRIES, "").split())
    text = shown(text).rstrip(".")[:TEXT_CHARS_MAX]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


_ELSEWHERE = "set another `checkpoint.object_store_uri`"


def advice(error: BaseException) -> str:
    """What the user can do about it."""
    number = error.errno if isinstance(error, OSError) else None
    status, code = http_status(error), error_code(error)
    if number in (errno.ENOSPC, errno.EDQUOT):
        return f"free space there, or {_ELSEWHERE}"
    if number == errno.EROFS:
        return f"the file system is read-only; {_ELSEWHERE}"
    if number in (errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS):
        return f"this file system lacks hard links; {_ELSEWHERE}"
    if number == errno.ENOTDIR:
        return f"a file stands where a folder has to be; move it, or {_ELSEWHERE}"
    if number in (errno.EACCES, errno.EPERM):
        return "give this user the right to read, write and delete in that folder"
    if status in (401, 403):
        return "check the credentials: they must read, write, list and delete below the root"
    if "Credential" in type(error).__name__:
        return "set the credentials of the store's client in the environment"
    if code == "NoSuchBucket":
        return f"create the bucket, or {_ELSEWHERE}"
    if judge(error) in (Trouble.BUSY, Trouble.UNSENT, Trouble.UNKNOWN):
        return "check that the store runs, its address (endpoint) and the network"
    return "check the root and the store's own log"


def _details(error: BaseException) -> dict[str, Any]:
    response = getattr(error, "response", None)
    found = response.get("Error", {}) if isinstance(response, dict) else {}
    return found if isinstance(found, dict) else {}


__all__ = ["TEXT_CHARS_MAX", "Trouble", "advice", "error_code", "http_status", "judge", "told"]
