"""Configuration of the `python` processor. No user code is touched here."""

from typing import Annotated, Any

from pydantic import Field

from arkflow_kernel.limits import SLICE_ROWS_MAX, WORKERS_MAX
from arkflow_ray.components.api import ComponentConfig

MAIN_MODULE = "__main__"
WAIT_MS_MAX = 60_000
"""A row that waits longer for company than this is better kept in a window."""


class PythonConfig(ComponentConfig):
    """A Python function, or an object, that is called with each batch (F.6)."""

    function: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Name of the function; it takes a pyarrow.RecordBatch and returns a "
            "RecordBatch, a Table, a list of them, or None.",
            examples=["first_ten"],
        ),
    ] = None
    class_: str | None = Field(
        default=None,
        alias="class",
        min_length=1,
        description="In place of `function`: name of a class. One object of it is made when the "
        "processor starts, and called with each batch; at the end its `close()`, if it has one.",
    )
    init: Annotated[
        dict[str, Any],
        Field(default_factory=dict, description="Arguments of the class, by name."),
    ]
    script: Annotated[
        str | None,
        Field(
            description="Python text, run once when the processor starts.",
            examples=["def first_ten(batch):\n    return batch.slice(0, 10)\n"],
        ),
    ] = None
    module: Annotated[
        str,
        Field(
            min_length=1,
            description="Module of the function or class; `__main__` is the script itself.",
        ),
    ] = MAIN_MODULE
    python_path: Annotated[
        list[str],
        Field(
            default_factory=list,
            description="Folders put in front of the module search path, in this order.",
        ),
    ]
    timeout_ms: Annotated[
        int, Field(ge=1, description="Longest time of one call, in milliseconds.")
    ] = 60_000
    # The rest is the planner's: the operator gets the batches that they ask for (E9), and as many
    # calls at once (T2).
    concurrency: Annotated[
        int | None,
        Field(
            ge=1,
            le=WORKERS_MAX,
            description="Calls at once, each from a thread of its own; results keep their order. "
            "Without it: 1 for a class, `thread_num` for a function.",
        ),
    ] = None
    max_batch_rows: Annotated[
        int | None,
        Field(
            ge=1,
            le=SLICE_ROWS_MAX,
            description="Most rows in a batch: larger ones are cut, and small ones joined up to "
            "it as `max_wait_ms` allows.",
        ),
    ] = None
    max_wait_ms: Annotated[
        int | None,
        Field(
            ge=1,
            le=WAIT_MS_MAX,
            description="How long a row waits for others to fill its batch, in milliseconds.",
        ),
    ] = None

    @property
    def called(self) -> str:
        """What is called, for a sentence: `function 'f'`."""
        return f"class '{self.class_}'" if self.function is None else f"function '{self.function}'"


__all__ = ["MAIN_MODULE", "PythonConfig"]
