"""The files of a job's log on a local file system (M1): exclusive by link(2)."""

import contextlib
import os
from pathlib import Path

from arkflow_ray.checkpoint.local_disk import (
    UncertainLinkError,
    copy_whole,
    link_new,
    write_aside,
)
from arkflow_ray.checkpoint.retries import Retrier
from arkflow_ray.checkpoint.roots import checked_path
from arkflow_ray.checkpoint.spool import Spool


class LocalFiles:
    """See `LogFiles`. `folder` is the job's."""

    def __init__(self, folder: Path, retrier: Retrier) -> None:
        self._folder, self._retrier = folder, retrier
        self._spool = Spool(folder / "spool")

    def sizes(self, folder: str) -> dict[str, int]:
        """See `LogFiles`."""
        return self._retrier.run(f"list {folder}", lambda: _sizes(self._at(folder)))

    def folders(self, folder: str) -> tuple[str, ...]:
        """See `LogFiles`."""
        return self._retrier.run(f"list {folder}", lambda: _folders(self._at(folder)))

    def read(self, path: str) -> bytes | None:
        """See `LogFiles`."""
        return self._retrier.run(f"read {path}", lambda: _read(self._at(path)))

    def create(self, path: str, data: bytes) -> bool:
        """See `LogFiles`."""
        target = self._at(path)
        aside = self._retrier.run(
            f"write {path}", lambda: write_aside(self._spool, [memoryview(data)])
        )
        try:
            return link_new(aside, target)
        except UncertainLinkError as error:
            raise self._retrier.unknown(f"create {path}", str(error)) from error
        except OSError as error:
            raise self._retrier.failure(f"create {path}", error) from error
        finally:
            aside.unlink(missing_ok=True)

    def copy(self, source: str, target: str) -> None:
        """See `LogFiles`."""
        of, to = self._at(source), self._at(target)
        self._retrier.run(f"copy {source} to {target}", lambda: copy_whole(self._spool, of, to))

    def delete(self, path: str) -> None:
        """See `LogFiles`."""
        target = self._at(path)
        self._retrier.run(f"delete {path}", lambda: target.unlink(missing_ok=True))

    def pause(self, attempt: int) -> None:
        """See `LogFiles`."""
        self._retrier.pause(attempt)

    def close(self) -> None:
        """See `LogFiles`."""
        self._retrier.close()
        self._spool.close()

    def _at(self, path: str) -> Path:
        return self._folder / checked_path(path)


def _sizes(folder: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                if entry.is_file():
                    found[entry.name] = entry.stat().st_size
    return found


def _folders(folder: Path) -> tuple[str, ...]:
    try:
        with os.scandir(folder) as entries:
            return tuple(sorted(entry.name for entry in entries if entry.is_dir()))
    except FileNotFoundError:
        return ()


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


__all__ = ["LocalFiles"]
