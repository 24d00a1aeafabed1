"""How a `python` operator asks to be called: with batches of which size, and how many at once.

The graph builder reads these keys of its configuration (E9, G1, T2); what they may be is checked
with the rest of it, when its component is built.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from arkflow_kernel.errors import Issue
from arkflow_kernel.job import OperatorSpec
from arkflow_kernel.job_mode import keeps
from arkflow_kernel.limits import SLICE_ROWS_MAX
from arkflow_kernel.topology import Topology

PYTHON_TYPE: Final = "python"
CLASS_KEY: Final = "class"
CONCURRENCY_KEY: Final = "concurrency"
ROWS_KEY: Final = "max_batch_rows"
WAIT_KEY: Final = "max_wait_ms"


@dataclass(frozen=True, slots=True)
class Batching:
    """Batches of at most `rows`. With `wait_ms`, small ones are joined until the first row has
    waited so long; None: only as on any channel (E3).
    """

    rows: int = SLICE_ROWS_MAX
    wait_ms: int | None = None


AS_THEY_COME: Final = Batching()


def batching(operator: OperatorSpec) -> Batching:
    """The batches that the operator asks for (E9)."""
    rows, wait_ms = (_positive(operator, key) for key in (ROWS_KEY, WAIT_KEY))
    return Batching(min(rows or SLICE_ROWS_MAX, SLICE_ROWS_MAX), wait_ms)


def concurrency(operator: OperatorSpec) -> int | None:
    """How many calls at once it asks for by `concurrency`; None if it does not say."""
    return _positive(operator, CONCURRENCY_KEY)


def calls_at_once(operator: OperatorSpec) -> int | None:
    """How many calls at once it takes at most: an object takes one, unless it says otherwise.

    None: as many as `thread_num` says.
    """
    asked = concurrency(operator)
    return 1 if asked is None and _is_python(operator) and CLASS_KEY in operator.config else asked


def call_issues(topology: Topology) -> Iterator[Issue]:
    """`concurrency` where only one call at a time can be."""
    for i, operator in enumerate(topology.job.operators):
        kept = keeps(operator)
        if kept is not None and (concurrency(operator) or 1) > 1:
            text = f"operator '{operator.id}' {kept}, so it works on one batch at a time (T2)"
            advice = "leave `concurrency` out; `parallelism` gives it more subtasks"
            yield Issue(f"operators[{i}].config.{CONCURRENCY_KEY}", f"{text}; {advice}")


def _positive(operator: OperatorSpec, key: str) -> int | None:
    """A key of a `python` operator, unless it is something that its component refuses."""
    value = operator.config.get(key) if _is_python(operator) else None
    return value if type(value) is int and value >= 1 else None


def _is_python(operator: OperatorSpec) -> bool:
    return operator.config.get("type") == PYTHON_TYPE


__all__ = [
    "AS_THEY_COME",
    "PYTHON_TYPE",
    "Batching",
    "batching",
    "call_issues",
    "calls_at_once",
    "concurrency",
]
