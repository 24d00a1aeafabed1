"""The way into a checkpoint store: by the root that a user wrote and the job's name."""

import os
import tempfile
from pathlib import Path
from typing import Protocol

from arkflow_kernel.checkpoint_ports import LogFiles, ObjectStore
from arkflow_ray.checkpoint.bucket import Bucket
from arkflow_ray.checkpoint.bucket_objects import BucketObjects
from arkflow_ray.checkpoint.fsspec_bucket import FsspecBucket, open_client
from arkflow_ray.checkpoint.kept_objects import KeptObjects
from arkflow_ray.checkpoint.local_files import LocalFiles
from arkflow_ray.checkpoint.local_objects import LocalObjects
from arkflow_ray.checkpoint.memory_bucket import MemoryBucket
from arkflow_ray.checkpoint.object_files import BucketFiles
from arkflow_ray.checkpoint.probe import ProbedFiles
from arkflow_ray.checkpoint.retries import PATIENCE, Patience, Retrier
from arkflow_ray.checkpoint.roots import Root, parse_root
from arkflow_ray.checkpoint.s3_bucket import S3Bucket
from arkflow_ray.checkpoint.spool import Spool


class StoreObjects(ObjectStore, Protocol):
    """The objects of a job, with an end."""

    def close(self) -> None:
        """Remove the spool folder, release the client. Calls that wait end with `StoreError`."""
        ...


def open_files(root: str, job: str, patience: Patience = PATIENCE) -> LogFiles:
    """The files of a job's log. The store is proved before the first is created (M1).

    `root` and `job` may also be the folder and the name of a savepoint.

    `StoreError` if the root is refused or its client is missing. Connects nothing yet.
    """
    parsed = parse_root(root)
    folder, retrier = _job(parsed, job, patience)
    files: LogFiles
    if parsed.is_local:
        files = LocalFiles(Path(folder), retrier)
    else:
        files = BucketFiles(_bucket(parsed, patience), folder, retrier)
    return ProbedFiles(files, retrier.place)


def open_objects(root: str, job: str, patience: Patience = PATIENCE) -> StoreObjects:
    """The objects of a job. `StoreError` as `open_files` raises it. Connects nothing yet."""
    parsed = parse_root(root)
    folder, retrier = _job(parsed, job, patience)
    if parsed.is_local:
        return LocalObjects(Path(folder), retrier)
    return BucketObjects(_bucket(parsed, patience), folder, retrier, _spool(job))


def open_kept(root: str, job: str) -> KeptObjects | None:
    """Where a process keeps runs of a job's states, over its generations (P1). None if the store
    is a folder of this machine: what lies there is as near.
    """
    return None if parse_root(root).is_local else KeptObjects(_spool(job))


def _spool(job: str) -> Spool:
    base = Path(tempfile.gettempdir()) / f"arkflow-spool-{os.geteuid()}"
    return Spool(base / job, private=True)


def _job(root: Root, job: str, patience: Patience) -> tuple[str, Retrier]:
    folder = root.job_path(job)
    return folder, Retrier(f"{root.scheme}://{folder}", patience)


def _bucket(root: Root, patience: Patience) -> Bucket:
    if root.scheme == "memory":
        return MemoryBucket()
    if root.scheme == "s3":
        return S3Bucket(patience)
    return FsspecBucket(open_client(root.scheme, patience))


__all__ = ["StoreObjects", "open_files", "open_kept", "open_objects"]
