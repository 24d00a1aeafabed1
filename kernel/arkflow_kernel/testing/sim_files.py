"""A job's files in memory, with faults: several `SimFiles` share one `SimStore`, as processes do.

Each call has a name, `create log/0000000004.json`. Before it `before` is asked, which may do
anything (let a rival go on, raise for a crash) and choose a fault; after it, `after` is told.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from arkflow_kernel.errors import StoreError, UnknownOutcomeError

T = TypeVar("T")


class FileFault(Enum):
    """What goes wrong in one call.

    `REFUSED`: not done, and it is said. The others leave a caller without knowledge: `LOST` was
    not done, `DONE` was, `LATE` will be, some calls of anybody later (only for `create`; any other
    call is not done).
    """

    REFUSED = "refused"
    LOST = "lost"
    DONE = "done"
    LATE = "late"


Before = Callable[[str], FileFault | None]
After = Callable[[str], None]


def _no_fault(call: str) -> None:
    del call


@dataclass(slots=True)
class SimStore:
    """What is durable: bytes by path. `late` holds creations on their way, and the calls to go."""

    files: dict[str, bytes] = field(default_factory=dict)
    late: list[tuple[int, str, bytes]] = field(default_factory=list)
    late_after_calls: int = 3

    def create(self, path: str, data: bytes) -> bool:
        """Create exclusively; False: it was there."""
        if path in self.files:
            return False
        self.files[path] = data
        return True

    def land(self, calls: int = 1) -> None:
        """So many calls pass: creations whose time has come are done, or find their place taken."""
        waiting = [(left - calls, path, data) for left, path, data in self.late]
        self.late = [each for each in waiting if each[0] > 0]
        for left, path, data in waiting:
            if left <= 0:
                self.create(path, data)


class SimFiles:
    """One process's view of a `SimStore`, below `root`: a `LogFiles`."""

    def __init__(
        self,
        store: SimStore | None = None,
        *,
        root: str = "",
        before: Before = _no_fault,
        after: After = _no_fault,
    ) -> None:
        self.store = SimStore() if store is None else store
        self.calls: list[str] = []
        self.closed = False
        self._root = root
        self._before = before
        self._after = after

    def sizes(self, folder: str) -> dict[str, int]:
        """See `LogFiles.sizes`."""
        return self._call(f"sizes {folder}", lambda: self._sizes(folder))

    def folders(self, folder: str) -> tuple[str, ...]:
        """See `LogFiles.folders`."""
        return self._call(f"folders {folder}", lambda: self._folders(folder))

    def read(self, path: str) -> bytes | None:
        """See `LogFiles.read`."""
        return self._call(f"read {path}", lambda: self.store.files.get(self._root + path))

    def create(self, path: str, data: bytes) -> bool:
        """See `LogFiles.create`."""
        full = self._root + path

        def late() -> None:
            self.store.late.append((self.store.late_after_calls, full, data))

        return self._call(f"create {path}", lambda: self.store.create(full, data), late)

    def copy(self, source: str, target: str) -> None:
        """See `LogFiles.copy`. A source that is not there is a `StoreError`."""
        self._call(f"copy {source} {target}", lambda: self._copy(source, target))

    def delete(self, path: str) -> None:
        """See `LogFiles.delete`."""

        def delete() -> None:
            self.store.files.pop(self._root + path, None)

        self._call(f"delete {path}", delete)

    def pause(self, attempt: int) -> None:
        """See `LogFiles.pause`: takes no time."""
        if self.closed:
            raise StoreError("the files are closed")
        self._call(f"pause {attempt}", lambda: None)

    def close(self) -> None:
        """See `LogFiles.close`."""
        self.closed = True

    def _call(
        self, name: str, perform: Callable[[], T], late: Callable[[], None] | None = None
    ) -> T:
        self.calls.append(name)
        fault = self._before(name)
        self.store.land()
        if fault is not None and not name.startswith("pause"):
            self._fail(fault, name, perform, late)
        result = perform()
        self._after(name)
        return result

    def _fail(
        self,
        fault: FileFault,
        name: str,
        perform: Callable[[], T],
        late: Callable[[], None] | None,
    ) -> None:
        if fault is FileFault.DONE:
            perform()
        elif fault is FileFault.LATE and late is not None:
            late()
        self._after(name)
        if fault is FileFault.REFUSED or late is None:
            raise StoreError(f"{name}: refused")
        raise UnknownOutcomeError(f"{name}: nobody knows")

    def _sizes(self, folder: str) -> dict[str, int]:
        prefix = f"{self._root}{folder}/"
        return {
            path.removeprefix(prefix): len(data)
            for path, data in self.store.files.items()
            if path.startswith(prefix) and "/" not in path.removeprefix(prefix)
        }

    def _folders(self, folder: str) -> tuple[str, ...]:
        prefix = f"{self._root}{folder}/"
        below = (path.removeprefix(prefix) for path in self.store.files if path.startswith(prefix))
        return tuple(sorted({path.partition("/")[0] for path in below if "/" in path}))

    def _copy(self, source: str, target: str) -> None:
        data = self.store.files.get(self._root + source)
        if data is None:
            raise StoreError(f"{source} is not there")
        self.store.files[self._root + target] = data


__all__ = ["FileFault", "SimFiles", "SimStore"]
