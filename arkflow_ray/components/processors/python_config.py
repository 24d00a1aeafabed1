"""Configuration of the `python` processor. No user code is touched here."""

from typing import Annotated

from pydantic import Field

from arkflow_ray.components.api import ComponentConfig

MAIN_MODULE = "__main__"


class PythonConfig(ComponentConfig):
    """A Python function that is called with each batch (F.6)."""

    function: Annotated[
        str,
        Field(
            min_length=1,
            description="Name of the function; it takes a pyarrow.RecordBatch and returns a "
            "RecordBatch, a Table, a list of them, or None.",
            examples=["first_ten"],
        ),
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
        Field(min_length=1, description="Module of the function; `__main__` is the script itself."),
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


__all__ = ["MAIN_MODULE", "PythonConfig"]
