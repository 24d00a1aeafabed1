"""What the operators of all joins have in common: their sides, and that only data and their time
move them.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import pyarrow as pa

from arkflow_kernel.bad_rows import Origin
from arkflow_kernel.errors import ProtocolError
from arkflow_kernel.ids import LATEST, EventTimeMs, OperatorId, WallMs
from arkflow_kernel.join.join_keys import JoinKeys
from arkflow_kernel.join.side_intake import SideIntake
from arkflow_kernel.join.side_state import SideState
from arkflow_kernel.plan import JoinPlan
from arkflow_kernel.ports import OperatorResult

LEFT, RIGHT = "left", "right"
"""The sides, and the names of their states."""


class JoinBase(ABC):
    """A `ports.TwoSided` operator. `keys` and `sides` are its states."""

    def __init__(
        self,
        operator: OperatorId,
        plan: JoinPlan,
        left: SideState,
        right: SideState,
        keys: JoinKeys,
    ) -> None:
        self._operator = operator
        self._plan = plan
        self.keys = keys
        self.sides = (left, right)
        self._intake = SideIntake(operator, plan, keys)

    def open(self) -> None:
        """The states are opened by whoever restores them."""
        return

    def close(self) -> None:
        """The states are released by whoever made them."""
        return

    def finish(self) -> OperatorResult:
        """`end` has let everything leave."""
        return OperatorResult(())

    def process(self, batch: pa.RecordBatch, origin: Origin) -> OperatorResult:
        """A row is of one of two sides."""
        del batch
        raise ProtocolError(f"join '{self._operator}' got rows of no side, from {origin}")

    @abstractmethod
    def process_edge(self, edge: str, batch: pa.RecordBatch) -> Iterator[OperatorResult]:
        """See `TwoSided`.

        Raises `ProcessingError` for a key or time column that is missing or of a type that does
        not fit, for columns that do not go together with those before, and when a bound is passed.
        """

    @abstractmethod
    def advance(self, watermark: EventTimeMs) -> Iterator[OperatorResult]:
        """See `TimedOperator`."""

    def tick(self, wall_ms: WallMs) -> Iterator[OperatorResult]:
        """The wall clock plays no part."""
        del wall_ms
        yield from ()

    def end(self) -> Iterator[OperatorResult]:
        """Everything that is left leaves, once (W10)."""
        yield from self.advance(LATEST)

    def timer(self) -> WallMs | None:
        """It wants no tick."""
        return None


__all__ = ["LEFT", "RIGHT", "JoinBase"]
