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
        self._under_way: dict[str, None] = {}
        self._closing: str | None = None
        self._at_end: str | None = None

    def want(self, name: str) -> None:
        """A user wants one, perhaps again; one of that name is not made twice."""
        begun = name in self._wanted or name in self._under_way
        if not begun and not isinstance(self.told.get(name), str):
            self._wanted.append(name)

    def want_at_end(self, name: str | None) -> None:
        """The job is to end in order; its last round is for this one."""
        self._closing = name

    @property
    def wanted_at_end(self) -> bool:
        """The last round is for one."""
        return self._closing is not None

    def want_again(self) -> None:
        """The attempt is over: what it began and did not save is wanted by the next one."""
        self._wanted.extend(name for name in self._under_way if name != self._closing)
        self._under_way.clear()
        self._unsaved.clear()
        self._at_end = None

    def next_wanted(self) -> str | None:
        """The one whose round is to be opened now."""
        name = self._wanted.popleft() if self._wanted else None
        return self._begun(name)

    def next_at_end(self) -> str | None:
        """The one that the job's last round is for: the same for every try of it."""
        if self._at_end is None:
            self._at_end = self._begun(self._closing) or self.next_wanted()
        return self._at_end

    def _begun(self, name: str | None) -> str | None:
        if name is not None:
            self._under_way[name] = None
        return name

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
        self._under_way.pop(name, None)
        self.told = {**self.told, name: found}

    def ended(self, reason: str) -> None:
        """The job is over: what is wanted and not made will not be."""
        closing = self._closing
        never_told = closing is not None and closing not in self.told
        names = [*self._wanted, *self._under_way, *([closing] if never_told else [])]
        for name in dict.fromkeys(names):
            if name is not None and not isinstance(self.told.get(name), str):
                self.tell(name, CheckpointError(f"the job ended first: {reason}"))
        self._wanted.clear()
        self._unsaved.clear()


__all__ = ["JobSavepoints"]
