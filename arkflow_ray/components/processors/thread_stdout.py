"""Prints of user code go to stderr, so that they never mix with the rows of a `stdout` output.

`contextlib.redirect_stdout` replaces the one `sys.stdout` of the process and so would catch what
other threads print meanwhile. Here a stand-in takes the place of `sys.stdout` and asks, at each
use, which thread is using it. Not covered: threads that user code starts, child processes, and
C code that writes to descriptor 1.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_redirected = threading.local()
_install_lock = threading.Lock()


class _ByThread:
    """Stands for `sys.stdout`; a redirected thread meets `sys.stderr` instead."""

    def __init__(self, original: Any) -> None:
        self.original = original
        self.users = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(_target(self.original), name)


def _target(original: Any) -> Any:
    redirected = getattr(_redirected, "depth", 0) > 0 and sys.stderr is not None
    return sys.stderr if redirected else original


def install() -> None:
    """Put the stand-in in place. Each call is undone by one call of `uninstall`."""
    with _install_lock:
        current: Any = sys.stdout
        if current is None:
            return  # a process without stdout drops prints by itself
        if not isinstance(current, _ByThread):
            current = _ByThread(current)
            sys.stdout = current
        current.users += 1


def uninstall() -> None:
    """Take the stand-in away after its last user, unless others have replaced it meanwhile."""
    with _install_lock:
        current: Any = sys.stdout
        if not isinstance(current, _ByThread):
            return
        current.users -= 1
        if current.users <= 0:
            sys.stdout = current.original


@contextmanager
def prints_to_stderr() -> Iterator[None]:
    """What this thread prints inside goes to stderr. Needs `install`; may be nested."""
    depth = getattr(_redirected, "depth", 0)
    _redirected.depth = depth + 1
    try:
        yield
    finally:
        _redirected.depth = depth


__all__ = ["install", "prints_to_stderr", "uninstall"]
