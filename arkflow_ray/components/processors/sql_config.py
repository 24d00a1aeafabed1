"""Configuration of the `sql` processor. Light on purpose: no SQL engine is imported here."""

from typing import Annotated, Any

from pydantic import Field

from arkflow_ray.components.api import ComponentConfig


class SqlConfig(ComponentConfig):
    """A read-only query over each batch (F.5).

    `temporary_list` is parsed so that a file with it can be read; the factory refuses it.
    """

    query: Annotated[
        str,
        Field(
            min_length=1,
            description="One read-only DataFusion query, run on each batch.",
            examples=["SELECT * FROM flow"],
        ),
    ]
    table_name: Annotated[
        str, Field(min_length=1, description="Name of the batch's table in the query.")
    ] = "flow"
    temporary_list: Annotated[
        list[dict[str, Any]] | None,
        Field(description="Look-ups in temporaries; not in this release."),
    ] = None


__all__ = ["SqlConfig"]
