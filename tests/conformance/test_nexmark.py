"""The queries of Nexmark write what DuckDB finds in the same events, with any parallelism."""

import os
import pathlib
from typing import Final

import pytest

import arkflow_ray
from tests.conformance.nexmark_oracle import KEYED, ORACLE, QUERIES, assert_right, edited


def test_every_example_has_an_oracle_and_every_oracle_an_example() -> None:
    assert set(ORACLE) == set(QUERIES)


RUNS: Final = [
    (query, parallelism)
    for query in QUERIES
    for parallelism in (1, 2)
    if os.environ.get("ARKFLOW_MATRIX") == "full" or (parallelism == 2) == (query in KEYED)
]
"""Those whose rows go to subtasks by key run with two, the others with one; all with both if
`ARKFLOW_MATRIX` is `full`."""


@pytest.mark.parametrize(("query", "parallelism"), RUNS)
def test_a_query_writes_what_it_must(query: str, parallelism: int, tmp_path: pathlib.Path) -> None:
    text = edited(query, tmp_path, parallelism, batch_rows=700)
    path = tmp_path / f"{query}.yaml"
    path.write_text(text)
    arkflow_ray.load(path).run(inline=True)
    assert_right(query, tmp_path, text)
