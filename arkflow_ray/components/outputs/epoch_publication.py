"""The objects of a token become files that readers see, each in one step (X3).

A final name is a function of the token: `part-<generation>-<checkpoint>-<lane>-<n>.<ext>`. So
publishing again finds its own files and leaves them. A file of that name with other bytes is not
this job's: another job writes to the folder, or this one did before its checkpoints were deleted.
It is never replaced. On the store's own file system a file is a hard link to its object, and
nothing is copied.
"""

import errno
import os
import re
from pathlib import Path
from typing import Final

from arkflow_kernel.checkpoint_ports import Staging
from arkflow_kernel.errors import CorruptObjectError, SinkError
from arkflow_kernel.limits import MIB
from arkflow_kernel.snapshot import ObjectRef, SinkToken
from arkflow_ray.components.outputs.file_errors import CREATE_FOLDER, os_failure
from arkflow_ray.components.outputs.hidden_files import (
    NO_LINKS,
    HiddenOwner,
    clear_dead,
    create_hidden,
    discard_file,
    give_name,
    make_folders,
    sync_folder,
)
from arkflow_ray.components.outputs.part_folders import part_name, part_stem
from arkflow_ray.components.outputs.part_stream import PartStream

_COPY_BYTES: Final = 8 * MIB
_COPIED: Final = (errno.EXDEV, *NO_LINKS)
_EPOCH_PART: Final = re.compile(r"part-(\d{10})-(\d{10})-(\d{10})-\d{10}\.")


def epoch_stem(token: SinkToken) -> str:
    """How the names of all files of a token begin."""
    return part_stem(token.epoch.generation, token.epoch.checkpoint, token.lane)


class EpochPublication:
    """The target folder of one subtask of an exactly-once sink.

    New parts are of its own lane; tokens of other lanes that it recovers keep theirs (X5).

    Raises `SinkError`, `CorruptObjectError` if an object is missing or damaged, and `StoreError`.
    """

    def __init__(
        self, operator: str, folder: str, staging: Staging, owner: HiddenOwner | None = None
    ) -> None:
        self._operator, self._folder, self._owner = operator, Path(folder), owner
        self._objects, self._lane = staging.objects, staging.lane
        self._generation, self._logged_upto = staging.generation, staging.logged_upto

    def open(self) -> None:
        """Prove that files can be published, and that the names of this generation are free."""
        self._make_folder()
        clear_dead(self._folder, self._owner)
        try:
            path, descriptor = create_hidden(self._folder, "part", self._owner)
            discard_file(PartStream(descriptor), path)
            names = os.listdir(self._folder)
        except OSError as error:
            raise self._failure("publish a part", error) from error
        for name in names:
            self._refuse_later_part(name)

    def publish(self, token: SinkToken) -> None:
        """Show every file of the token; those that are there stay. Costs one sync of the folder."""
        self._make_folder()
        stem = epoch_stem(token)
        # What this process put, the store has just verified.
        proved = token.epoch.generation == self._generation
        try:
            for number, staged in enumerate(token.objects, start=1):
                final = self._folder / part_name(stem, number, staged.extension)
                self._show(staged.object, final, proved=proved)
            sync_folder(self._folder)
        except OSError as error:
            raise self._failure("publish a part", error) from error

    def _make_folder(self) -> None:
        try:
            make_folders(self._folder)
        except OSError as error:
            raise self._failure(CREATE_FOLDER, error) from error

    def _refuse_later_part(self, name: str) -> None:
        found = _EPOCH_PART.match(name)
        if found is None:
            return
        generation, checkpoint, lane = (int(digits) for digits in found.groups())
        # Checkpoint 0 is of a sink that delivers at least once; it takes no name that is taken.
        if lane != self._lane or checkpoint == 0:
            return
        if generation >= self._generation:
            raise SinkError(
                f"output '{self._operator}': this job begins generation {self._generation}, and "
                f"'{self._folder}' already holds a part of generation {generation}: '{name}'. "
                f"{_OTHERS}"
            )
        # What is published is in the log, and its numbers only grow: a start that was refused
        # once and comes again with the next generation is refused again.
        logged_upto = self._logged_upto()
        if logged_upto is not None and checkpoint > logged_upto:
            raise SinkError(
                f"output '{self._operator}': the newest checkpoint in this job's log is "
                f"{logged_upto or 'none'}, and '{self._folder}' already holds a part of checkpoint "
                f"{checkpoint}: '{name}'. {_OTHERS}"
            )

    def _show(self, ref: ObjectRef, final: Path, *, proved: bool) -> None:
        source = self._objects.local_path(ref.name)
        if self._is_shown(ref, source, final):
            return
        if source is not None:
            self._check(ref, source, final, proved=proved)
        if source is None or not self._linked(ref, source, final):
            self._copy(ref, final)

    def _is_shown(self, ref: ObjectRef, source: Path | None, final: Path) -> bool:
        if not os.path.lexists(final):
            return False
        if source is not None and source.exists() and final.samefile(source):
            return True
        if self._objects.is_copy(ref, final):
            return True
        raise SinkError(
            f"output '{self._operator}': '{final}' is there and does not hold the rows that belong "
            f"into it. {_OTHERS}"
        )

    def _check(self, ref: ObjectRef, source: Path, final: Path, *, proved: bool) -> None:
        whole = source.exists() and source.stat().st_size == ref.size
        if not whole or not (proved or self._objects.is_copy(ref, source)):
            raise CorruptObjectError(
                f"output '{self._operator}': object '{ref.name}' of the checkpoint store is "
                f"missing or damaged, and '{final}' is not there either"
            )

    def _linked(self, ref: ObjectRef, source: Path, final: Path) -> bool:
        """Whether the file is there now; False: it has to be copied."""
        try:
            os.link(source, final)
        except FileExistsError:
            return self._is_shown(ref, source, final)
        except OSError as error:
            if error.errno not in _COPIED:
                raise
            return False
        return True

    def _copy(self, ref: ObjectRef, final: Path) -> None:
        hidden, descriptor = create_hidden(self._folder, final.name, self._owner)
        stream = PartStream(descriptor)
        try:
            for offset in range(0, ref.size, _COPY_BYTES):
                stream.write(self._objects.read(ref, offset, min(_COPY_BYTES, ref.size - offset)))
            stream.sync()
            if not self._objects.is_copy(ref, hidden):
                raise CorruptObjectError(
                    f"output '{self._operator}': object '{ref.name}' of the checkpoint store is "
                    "not what was written"
                )
            if not give_name(hidden, final):
                self._is_shown(ref, None, final)
        finally:
            discard_file(stream, hidden)

    def _failure(self, doing: str, error: OSError) -> SinkError:
        return os_failure(self._operator, str(self._folder), doing, error)


_OTHERS: Final = (
    "Another job writes to this folder, or this job did before its checkpoints were deleted; it is "
    "not replaced. Set another `path`, or move the old parts away"
)

__all__ = ["EpochPublication", "epoch_stem"]
