"""The checkpoint store of a simulated job: bytes that outlive every process, behind a bad way.

Each call of a process is a request of its own: others act before it arrives and before its answer
does, it may be lost, done with a lost answer, done much later, or left half done by a process that
dies. `SimFiles` is what the log sees of it, `SimObjects` what chains see.
"""

import hashlib
from collections.abc import Callable
from collections.abc import Sequence as Seq
from enum import Enum
from pathlib import Path
from typing import Protocol, TypeVar

import pyarrow as pa

from arkflow_kernel.errors import CorruptObjectError, StoreError, UnknownOutcomeError
from arkflow_kernel.snapshot import ObjectRef

T = TypeVar("T")

OBJECTS = "objects/"
LOG = "log/"


class Interrupted(BaseException):
    """The process that was at work is gone, or a violation was found while it waited.

    No `Exception`: nothing that a process does about errors may catch it.
    """


class Trouble(Enum):
    """What may become of a request to the store."""

    NONE = "none"
    REFUSED = "refused"
    LOST = "lost"
    UNANSWERED = "unanswered"
    LATE = "late"
    TORN = "torn"


class Way(Protocol):
    """What lies between a process and the store."""

    def trouble(self, verb: str) -> Trouble:
        """What becomes of the next request."""
        ...

    def reached(self, point: str) -> None:
        """A request is on its way (`before <verb>`), or was done (`after <verb>`).

        Others act meanwhile. Raises `Interrupted` if the process is gone then.
        """
        ...


class SimStore:
    """The bytes, by path, and requests that are still under way though nobody waits for them.

    `created` and `deleted` are told of what happens, before it does.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.late: list[Callable[[], object]] = []
        self.created: Callable[[str, bytes, object], None] = lambda _path, _data, _by: None
        self.deleted: Callable[[str], None] = lambda _path: None

    def create(self, path: str, data: bytes, by: object) -> bool:
        """Create exclusively; False if it was there."""
        if path in self.files:
            return False
        self.created(path, data, by)
        self.files[path] = data
        return True

    def delete(self, path: str) -> None:
        """Delete; a path that is not there is deleted."""
        if path in self.files:
            self.deleted(path)
            del self.files[path]


class _Requests:
    """The requests of one process, each over its way."""

    def __init__(self, store: SimStore, way: Way) -> None:
        self._store, self._way = store, way

    def _call(
        self,
        verb: str,
        effect: Callable[[], T],
        torn: Callable[[], None] | None = None,
    ) -> T:
        trouble = self._way.trouble(verb)
        self._way.reached(f"before {verb}")
        if trouble is Trouble.REFUSED:
            raise StoreError(f"injected: the store refuses to {verb}")
        if trouble is Trouble.TORN and torn is not None:
            torn()
            self._way.reached(f"after {verb}")
            raise UnknownOutcomeError(f"injected: {verb} broke off")
        if trouble is Trouble.LATE:
            self._store.late.append(effect)
        done = None if trouble in (Trouble.LOST, Trouble.LATE) else effect()
        self._way.reached(f"after {verb}")
        if done is None or trouble is Trouble.UNANSWERED:
            raise UnknownOutcomeError(f"injected: no answer to {verb}")
        return done


class SimFiles(_Requests):
    """`LogFiles` of the simulated store. `by` is what the creator is at work on, for the checks."""

    def __init__(self, store: SimStore, way: Way) -> None:
        super().__init__(store, way)
        self.by: object = None
        self.closed = False

    def sizes(self, folder: str) -> dict[str, int]:
        """Files directly in a folder."""
        prefix = f"{folder.rstrip('/')}/"
        return self._call(
            "list",
            lambda: {
                path[len(prefix) :]: len(data)
                for path, data in self._store.files.items()
                if path.startswith(prefix) and "/" not in path[len(prefix) :]
            },
        )

    def folders(self, folder: str) -> tuple[str, ...]:
        """Folders directly in a folder."""
        prefix = f"{folder.rstrip('/')}/" if folder else ""

        def effect() -> tuple[str, ...]:
            below = (p[len(prefix) :] for p in self._store.files if p.startswith(prefix))
            return tuple(sorted({path.partition("/")[0] for path in below if "/" in path}))

        return self._call("list", effect)

    def read(self, path: str) -> bytes | None:
        """All bytes, or None."""
        return self._call("read", lambda: (self._store.files.get(path),))[0]

    def create(self, path: str, data: bytes) -> bool:
        """Create exclusively."""
        store, by = self._store, self.by

        def torn() -> None:
            if path not in store.files:
                store.files[path] = data[: len(data) // 2]

        return self._call("create", lambda: store.create(path, data, by), torn)

    def copy(self, source: str, target: str) -> None:
        """Copy a file."""
        files = self._store.files

        def effect() -> bool:
            if source not in files:
                raise StoreError(f"{source} is not there")
            files[target] = files[source]
            return True

        self._call("copy", effect)

    def delete(self, path: str) -> None:
        """Delete a file."""

        def effect() -> bool:
            self._store.delete(path)
            return True

        self._call("delete", effect)

    def close(self) -> None:
        """Let calls that wait end."""
        self.closed = True

    def pause(self, attempt: int) -> None:
        """Others act meanwhile."""
        del attempt
        self._way.reached("pause")
        if self.closed:
            raise StoreError("the log is closed")


class SimObjects(_Requests):
    """`ObjectStore` of the simulated store. A put is verified before it returns."""

    def put(self, name: str, parts: Seq[pa.Buffer | bytes]) -> ObjectRef:
        """Write an object; the process may die when half of it is there."""
        data = b"".join(bytes(part) for part in parts)
        path, store = OBJECTS + name, self._store

        def torn() -> None:
            store.files.setdefault(path, data[: len(data) // 2])

        def effect() -> bool:
            known = store.files.get(path)
            if known is not None and known != data and not data.startswith(known):
                raise AssertionError(f"object {name} is overwritten with other bytes")
            store.created(path, data, None)
            store.files[path] = data
            return True

        self._call("put", effect, torn)
        return self._verified(name, data)

    def _verified(self, name: str, data: bytes) -> ObjectRef:
        if self._store.files.get(OBJECTS + name) != data:
            raise StoreError(f"object {name} is not what was written")
        return ObjectRef(name, len(data), checksum_of(data))

    def put_file(self, name: str, path: Path) -> ObjectRef:
        """No sink of the simulation has local files."""
        raise NotImplementedError

    def read(self, ref: ObjectRef, offset: int = 0, length: int | None = None) -> pa.Buffer:
        """Bytes of an object."""
        data = self._call("get", lambda: (self._store.files.get(OBJECTS + ref.name),))[0]
        if data is None or len(data) != ref.size:
            raise CorruptObjectError(f"object {ref.name} is missing or has another size")
        if length is None and offset == 0:
            if checksum_of(data) != ref.checksum:
                raise CorruptObjectError(f"object {ref.name} has another checksum")
            return pa.py_buffer(data)
        end = len(data) if length is None else offset + length
        return pa.py_buffer(data[offset:end])

    def local_path(self, name: str) -> Path | None:
        """Nothing lies on a disk."""
        del name
        return None

    @property
    def spool(self) -> Path:
        """No sink of the simulation has local files."""
        raise NotImplementedError


def checksum_of(data: bytes) -> str:
    """The checksum that the simulated store keeps of an object."""
    return hashlib.sha256(data).hexdigest()


__all__ = [
    "LOG",
    "OBJECTS",
    "Interrupted",
    "SimFiles",
    "SimObjects",
    "SimStore",
    "Trouble",
    "Way",
    "checksum_of",
]
