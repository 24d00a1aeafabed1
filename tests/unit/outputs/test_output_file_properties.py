"""Output `file`, any sequence of writes and rolls: every row is in one part, confirmed in time."""

import tempfile
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from arkflow_kernel.ids import MonotonicMs, Sequence
from arkflow_ray.components.api import BuildContext
from arkflow_ray.components.outputs.file import FileSink, build
from arkflow_ray.components.outputs.file_config import FileOutputConfig

Parts = Callable[[Path], list[Path]]
Rows = Callable[[Path], list[dict[str, Any]]]

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 9), st.booleans()),
        st.tuples(st.just("roll"), st.integers(0, 9), st.just(False)),
        st.tuples(st.just("flush"), st.just(0), st.just(False)),
    ),
    max_size=12,
)
ROLLS = st.fixed_dictionaries(
    {"interval": st.sampled_from(["4ms", "1h"]), "bytes": st.sampled_from([1, 60, "1GiB"])},
    optional={"rows": st.integers(1, 6)},
)
FORMATS = ("json", "csv", "parquet", "arrow")


def batch(start: int, count: int, wide: bool) -> pa.RecordBatch:
    numbers = pa.array(range(start, start + count), pa.int64())
    if not wide:
        return pa.record_batch([numbers], ["n"])
    return pa.record_batch([numbers, pa.array(["text"] * count, pa.string())], ["n", "wide"])


@pytest.mark.parametrize("form", FORMATS)
@given(steps=STEPS, roll=ROLLS)
@example(steps=[("write", 3, False), ("write", 3, False)], roll={"rows": 4, "interval": "1h"})
@example(
    steps=[("write", 2, False), ("write", 0, True), ("write", 4, False)],
    roll={"rows": 3, "interval": "1h"},
)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_published_rows_are_the_written_ones_in_order_and_confirmed_exactly_then(
    parts: Parts, rows: Rows, form: str, steps: list[tuple[str, int, bool]], roll: dict[str, Any]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = {"path": name, "format": form, "roll": roll}
        sink = build(FileOutputConfig.model_validate(config), BuildContext(operator="sink"))
        assert isinstance(sink, FileSink)
        sink.open()
        counts, now, confirmed = [0], 0, 0
        for verb, number, wide in [*steps, ("flush", 0, False)]:
            if verb == "write":
                counts.append(number)
                start = sum(counts[:-1])
                receipt = sink.write(
                    Sequence(len(counts) - 1), batch(start, number, wide), MonotonicMs(now)
                )
            elif verb == "roll":
                now += number
                receipt = sink.roll(MonotonicMs(now))
            else:
                receipt = sink.flush(MonotonicMs(now))
            assert receipt.confirmed_upto >= confirmed
            confirmed = receipt.confirmed_upto
            seen = [row["n"] for row in rows(folder)]
            assert seen == list(range(len(seen)))
            upto = list(accumulate(counts))
            assert len(seen) >= upto[confirmed]
            later = [total for total in upto if total > upto[confirmed]]
            assert not later or len(seen) < later[0]
        assert confirmed == len(counts) - 1
        assert len(seen) == sum(counts)
        for part in parts(folder):
            assert 1 <= len(rows_of(rows, part)) <= roll.get("rows", 10**9)
        sink.close()


def rows_of(rows: Rows, part: Path) -> list[dict[str, Any]]:
    """Rows of one part, which a folder of its own makes readable."""
    with tempfile.TemporaryDirectory() as name:
        Path(name, part.name).hardlink_to(part)
        found = rows(Path(name))
    assert len({tuple(row) for row in found}) == 1, "one schema a part"
    return found
