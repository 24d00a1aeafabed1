"""Parts on their way into the checkpoint store: spooled, sealed into epochs, staged (X1).

The write lane spools and seals, the upload lane stages; a lock stands between them. What is in
memory is a path and a count per part.
"""

import os
import secrets
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from arkflow_kernel.checkpoint_ports import Staging
from arkflow_kernel.errors import SinkError
from arkflow_kernel.ids import OperatorId
from arkflow_kernel.snapshot import Epoch, SinkToken, StagedObject
from arkflow_ray.components.outputs.file_errors import os_failure
from arkflow_ray.components.outputs.hidden_files import discard_file
from arkflow_ray.components.outputs.part_stream import PartStream

_REMEDY: Final = "set another checkpoint root"


class SpoolPlace:
    """A `PartPlace` in the store's spool. A finished part is a closed file there, not yet synced:
    that is the store's to do when it is put.
    """

    def __init__(self, operator: str, staging: Staging) -> None:
        self._operator, self._staging = operator, staging
        self._folder = "the spool of the checkpoint store"
        self._path: Path | None = None
        self._stream: PartStream | None = None

    def begin(self) -> PartStream:
        """See `PartPlace`."""
        name = f"{self._staging.name}-{os.getpid()}-{secrets.token_hex(8)}.part"
        try:
            path = self._staging.objects.spool / name
            self._folder = str(path.parent)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise self.failure("create a part", error) from error
        self._path, self._stream = path, PartStream(descriptor)
        return self._stream

    def finish(self, stream: PartStream) -> str:
        """See `PartPlace`: the path of the finished part."""
        path = self._path
        if path is None:
            raise SinkError(f"output '{self._operator}': there is no part to finish")
        try:
            stream.drain()
            stream.release()
        except OSError as error:
            raise self.failure("write a part", error) from error
        self._path = self._stream = None
        return str(path)

    def discard(self) -> None:
        """See `PartPlace`."""
        discard_file(self._stream, self._path)
        self._path = self._stream = None

    def failure(self, doing: str, error: OSError) -> SinkError:
        """See `PartPlace`."""
        return os_failure(self._operator, self._folder, doing, error, _REMEDY)


@dataclass(slots=True)
class _Part:
    path: Path
    rows: int
    staged: StagedObject | None = None


@dataclass(slots=True)
class _SealedEpoch:
    epoch: Epoch
    parts: list[_Part] = field(default_factory=list)


class EpochStage:
    """The finished parts of one sink lane, epoch by epoch, until they are objects of the store.

    `add` and `seal` belong to the write lane, `stage` to the upload lane; `discard` comes after
    both.
    """

    def __init__(self, sink: OperatorId, staging: Staging, extension: str) -> None:
        self._sink, self._staging, self._extension = sink, staging, extension
        self._open: list[_Part] = []
        self._sealed: list[_SealedEpoch] = []
        self._lock = threading.Lock()
        self._objects = 0

    def add(self, path: str, rows: int) -> None:
        """A part of the epoch at work is finished."""
        self._open.append(_Part(Path(path), rows))

    def seal(self, epoch: Epoch) -> None:
        """The parts added since the seal before are this epoch."""
        parts, self._open = self._open, []
        if parts:
            with self._lock:
                self._sealed.append(_SealedEpoch(epoch, parts))

    def stage(self, upto: Epoch) -> tuple[SinkToken, ...]:
        """The tokens of the sealed epochs up to `upto`, all parts of which are in the store now.

        After a `StoreError` nothing is forgotten: the next call puts the parts that are missing.
        """
        with self._lock:
            due = [sealed for sealed in self._sealed if sealed.epoch <= upto]
        tokens = tuple(self._token(sealed) for sealed in due)
        with self._lock:
            self._sealed = [sealed for sealed in self._sealed if sealed.epoch > upto]
        return tokens

    def discard(self) -> None:
        """Remove the parts that are not in the store. Never raises."""
        with self._lock:
            sealed, self._sealed = self._sealed, []
        parts, self._open = self._open, []
        for part in (*(part for epoch in sealed for part in epoch.parts), *parts):
            if part.staged is None:
                discard_file(None, part.path)

    def _token(self, sealed: _SealedEpoch) -> SinkToken:
        objects = tuple(self._put(part) for part in sealed.parts)
        return SinkToken(self._sink, self._staging.lane, sealed.epoch, objects)

    def _put(self, part: _Part) -> StagedObject:
        if part.staged is None:
            # A new number with each try: after an error nobody knows what the old name holds.
            self._objects += 1
            name = f"{self._staging.name}-{self._objects}.sink"
            ref = self._staging.objects.put_file(name, part.path)
            part.staged = StagedObject(ref, part.rows, self._extension)
        return part.staged


__all__ = ["EpochStage", "SpoolPlace"]
