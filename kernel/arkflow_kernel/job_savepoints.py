"""The savepoints of one run of a job: who is wanted, whose copy is still to be written (X4).

A part of `job_rounds.py`. A savepoint is wanted, then has a round, then a record whose tokens are
published, then a copy: only then it is told. What an attempt did not bring to its end is wanted
again by the next one.
"""

from collections import deque
from collections.abc import Mapping

from arkflow_kernel.errors import ArkflowError, CheckpointError
from arkflow_kernel.snapshot import CheckpointRecord


class JobSavepoints:
    """`told`: URL of a copy by name, or why there is none."""

    def __init__(self) -> None:
        self.told: Mapping[str, str | ArkflowError] = {}
        self._wanted: deque[str] = deque()
        self._unsaved: deque[CheckpointRecord] = deque()
        self._closing: str | None = None

    def want(self, name: str) -> None:
        """A user wants one; one of that name is not made twice."""
        if name not in self._wanted and not isinstance(self.told.get(name), str):
            self._wanted.append(name)

    def want_at_end(self, name: str | None) -> None:
        """The job is to end in order; its last round is for this one."""
        self._closing = name

    def want_again(self, under_way: str | None) -> None:
        """The attempt is over: what it began and did not save. `under_way` has an open round."""
        for name in (*(record.savepoint for record in self._unsaved), under_way):
            if name is not None and name != self._closing:
                self._wanted.append(name)
        self._unsaved.clear()

    def next_wanted(self) -> str | None:
        """The one whose round is to be opened now."""
        return self._wanted.popleft() if self._wanted else None

    def next_at_end(self) -> str | None:
        """The one that the job's last round is for."""
        return self._closing or self.next_wanted()

    def recorded(self, record: CheckpointRecord) -> None:
        """A round is completed; if it is for a savepoint, a copy is due."""
        if record.savepoint is not None:
            self._unsaved.append(record)

    @property
    def unsaved(self) -> CheckpointRecord | None:
        """The record whose copy is due, once its tokens are published."""
        return self._unsaved[0] if self._unsaved else None

    def saving(self) -> None:
        """That copy is being written."""
        self._unsaved.popleft()

    def tell(self, name: str, found: str | ArkflowError) -> None:
        """Where a copy lies, or why there is none."""
        self.told = {**self.told, name: found}

    def ended(self, reason: str) -> None:
        """The job is over: what is wanted and not made will not be."""
        made = isinstance(self.told.get(self._closing or ""), str)
        names = [*self._wanted, *(record.savepoint for record in self._unsaved)]
        names += [] if made else [self._closing]
        for name in names:
            if name is not None:
                self.tell(name, CheckpointError(f"the job ended first: {reason}"))
        self._wanted.clear()
        self._unsaved.clear()


__all__ = ["JobSavepoints"]
