"""When `json_flat` uses a compiled loop: where numba is installed, and there is much to read.

Loading it costs a second or more of CPU and about 110 MB of memory, so it happens once a process
has read so much JSON that it will pay, beside the reading, and until it is done numpy goes on.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

from arkflow_kernel.limits import MIB
from arkflow_ray.components.codecs.json_types import Scalar

Scan = Callable[..., bool]
"""`json_scan.scan(data, starts, ends, due, edges, kinds, slots, values, places)`.

Whether each line, `starts[i]` to `ends[i]` of `data`, is `due[edges[0]:edges[1]]`, a value of
`kinds[0]`, the next bytes that are due, and so on, and ends with the last of them. A value with a
slot is kept: an integer or a truth value in `values[slot]`, a text or a float as the places where
it begins and ends in `places[slot]`, both by line. A text has neither escapes nor control
characters; UTF-8 is not looked at.
"""

SCANNED: Final = (Scalar.INT, Scalar.STRING, Scalar.FLOAT, Scalar.BOOL)
"""What a value can be; `kinds` are indexes of it."""

LOAD_AFTER_BYTES: Final = 64 * MIB
"""So much is read without; a loop of half the cost has then earned what loading it costs."""

_log = logging.getLogger(__name__)


Loading = Callable[[Callable[[Scan], None]], None]
"""Begins to load, and calls back once when it is loaded, from any thread."""


class ScanWhenItPays:
    """Of one process. Every method may be called from any thread."""

    def __init__(self, load: Loading, after_bytes: int = LOAD_AFTER_BYTES) -> None:
        self._load = load
        self._left = after_bytes
        self._asked = False
        self._scan: Scan | None = None
        self._lock = threading.Lock()

    def of(self, size: int) -> Scan | None:
        """The loop for the next `size` bytes; None: numpy reads them."""
        if self._scan is None and not self._asked:
            self._count(size)
        return self._scan

    def _count(self, size: int) -> None:
        with self._lock:
            self._left -= size
            due, self._asked = self._left < 0 and not self._asked, self._left < 0
        if due:
            self._load(self._loaded)

    def _loaded(self, scan: Scan) -> None:
        self._scan = scan


def in_a_thread(loaded: Callable[[Scan], None]) -> None:
    """Load numba's loop beside the reading, if numba is installed."""
    threading.Thread(target=_load, args=(loaded,), name="json-scan").start()


def _load(loaded: Callable[[Scan], None]) -> None:
    try:
        from arkflow_ray.components.codecs.json_scan import scan
    except ModuleNotFoundError as error:
        if error.name != "numba":
            raise
        return
    except Exception as error:  # noqa: BLE001 - whatever numba meets, the rows can be read
        _log.warning("JSON is read without numba, which failed: %s", error)
        return
    loaded(scan)


COMPILED = ScanWhenItPays(in_a_thread)
"""The loop of this process."""

__all__ = [
    "COMPILED",
    "LOAD_AFTER_BYTES",
    "SCANNED",
    "Scan",
    "ScanWhenItPays",
    "in_a_thread",
]
