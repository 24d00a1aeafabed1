"""A state of keys and values that says more of itself in snapshots than it knows (S9, S10)."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Seq
from pathlib import Path

import pyarrow as pa

from arkflow_kernel.ids import OperatorId
from arkflow_kernel.state.api import Sealed, StateLayout
from arkflow_kernel.state.memory import MemoryState


class ToldState(ABC):
    """An `api.RunState` whose runs are those of `state`; a subclass says what layouts tell."""

    def __init__(self, state: MemoryState) -> None:
        self.state = state

    @abstractmethod
    def told(self, layout: StateLayout) -> StateLayout:
        """What snapshots say, given what the state says."""

    @abstractmethod
    def meant(self, layout: StateLayout) -> StateLayout:
        """The inverse of `told`. Raises `RestoreError` for what is another state's."""

    @property
    def operator(self) -> OperatorId:
        """Whose state it is."""
        return self.state.operator

    @property
    def layout(self) -> StateLayout:
        """Its layout now."""
        return self.told(self.state.layout)

    @property
    def merge_bytes_max(self) -> int | None:
        """See `RunState.merge_bytes_max`."""
        return self.state.merge_bytes_max

    def track(self) -> None:
        """See `RunState.track`."""
        self.state.track()

    def spill_to(self, folder: Callable[[], Path], prefix: str) -> None:
        """See `RunState.spill_to`."""
        self.state.spill_to(folder, prefix)

    def seal(self) -> Sealed:
        """See `RunState.seal`."""
        sealed = self.state.seal()
        return Sealed(sealed.changes, self.told(sealed.layout))

    def written(self, sealed: Seq[Sealed]) -> Iterator[pa.RecordBatch]:
        """See `RunState.written`."""
        return self.state.written(sealed)

    def merged(
        self, runs: Seq[pa.RecordBatch], layout: StateLayout, *, oldest: bool, newest: bool
    ) -> pa.RecordBatch | None:
        """See `RunState.merged`; nothing there depends on the layout."""
        return self.state.merged(runs, layout, oldest=oldest, newest=newest)

    def restore(self, layouts: Seq[StateLayout], runs: Iterable[pa.RecordBatch]) -> None:
        """See `RunState.restore`. What is another state's is refused."""
        self.state.restore([self.meant(each) for each in layouts], runs)


__all__ = ["ToldState"]
