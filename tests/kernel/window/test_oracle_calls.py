"""No Python per row (N1): the calls that a batch costs from the gate to the window's results."""

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

from arkflow_kernel.bad_rows import Origin
from arkflow_kernel.chain_work import ChainWork
from arkflow_kernel.ids import MonotonicMs, SplitId
from arkflow_kernel.ports import ReadResult, SourceBatch, SourceEnded
from arkflow_kernel.protocol import ChainEvent, Request
from tests.kernel.window.window_oracle import Row, WindowCase
from tests.kernel.window.windowed_components import PartitionedSource, Plan, batch_of
from tests.kernel.window.windowed_jobs import WindowedJob

pytestmark = pytest.mark.thorough

BATCH_ROWS, KEYS = 8_192, 200

FEW, MANY = 3, 7
"""Batches of two runs; what is told is the difference, so starts and ends are not in it."""

OPEN = {
    "tumbling": WindowCase("tumbling", size_ms=10**7, bound_ms=1_000),
    "sliding": WindowCase("sliding", size_ms=10**7, slide_ms=4 * 10**6, bound_ms=1_000),
    "session": WindowCase("session", gap_ms=10**6, bound_ms=1_000),
}
"""Windows that stay open."""

CALLS_MAX = 2_000
"""So many calls of Python functions a batch may cost."""

FIRING = {
    "tumbling": WindowCase("tumbling", size_ms=10_000, bound_ms=1_000),
    "sliding": WindowCase("sliding", size_ms=10_000, slide_ms=4_000, bound_ms=1_000),
    "session": WindowCase("session", gap_ms=300, bound_ms=1_000),
}
"""Windows some of which fire with every batch."""


class MadeSource(PartitionedSource):
    """Batches that were made before."""

    def __init__(self, batches: Seq[pa.RecordBatch]) -> None:
        super().__init__({0: ()}, Plan(), 0)
        self._batches = batches

    def splits(self) -> Seq[SplitId]:
        """One, until its end."""
        return () if self._reads == len(self._batches) else (SplitId("0"),)

    def read(self, now_ms: MonotonicMs) -> ReadResult:
        """The next batch."""
        place = self._reads
        if place == len(self._batches):
            return SourceEnded()
        self._reads += 1
        ended = self._reads == len(self._batches)
        batch, position = self._batches[place], {"row": self._reads}
        return SourceBatch(SplitId("0"), batch, position, Origin("0", None, 0), split_ended=ended)


class Calls:
    """Counts calls of Python functions, of all threads, by file and function.

    `work`: only those that the work of a request makes, without the machines and the driver.
    """

    def __init__(self, *, work: bool) -> None:
        self.counts: Counter[str] = Counter()
        self._work, self._depth = work, 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count meanwhile."""
        perform = ChainWork.perform

        def performed(chain: ChainWork, request: Request) -> ChainEvent:
            self._depth += 1
            try:
                return perform(chain, request)
            finally:
                self._depth -= 1

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ChainWork, "perform", performed)
            threading.setprofile(self._profile)
            sys.setprofile(self._profile)
            try:
                yield
            finally:
                sys.setprofile(None)
                threading.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and (self._depth or not self._work):
            code = frame.f_code
            self.counts[f"{code.co_filename}:{code.co_qualname}"] += 1


def batches_of(rows_of_batch: int) -> list[pa.RecordBatch]:
    """Batches that reach over the same times, whatever their rows; some rows are behind others."""
    step = BATCH_ROWS // rows_of_batch
    ts = [n * step - n % 7 * 200 for n in range(rows_of_batch * MANY)]
    rows = [Row(n, at, n * 7919 % KEYS, n % 1_000) for n, at in enumerate(ts)]
    starts = range(0, len(rows), rows_of_batch)
    return [batch_of(rows[at : at + rows_of_batch]) for at in starts]


def calls_of_a_batch(case: WindowCase, rows_of_batch: int, *, work: bool) -> Counter[str]:
    """What some batches cost a job whose window has two subtasks, by function."""
    batches = batches_of(rows_of_batch)
    found: Counter[str] = Counter()
    for sign, count in ((-1, FEW), (1, MANY)):
        source = partial(MadeSource, batches[:count])
        job = WindowedJob(case, [()], Plan(parallelism=2), source=source)
        calls = Calls(work=work)
        with calls.counted():
            assert job.run() is not None
        assert job.published("out")
        for name, times in calls.counts.items():
            found[name] += sign * times
    return found


def told(calls: Counter[str]) -> str:
    """The most frequent ones."""
    most = (f"{count:8,d} {name}" for name, count in calls.most_common(30))
    return f"{calls.total() / (MANY - FEW):,.0f} calls a batch\n" + "\n".join(most)


@pytest.mark.parametrize("kind", OPEN)
def test_a_batch_of_8192_rows_goes_through_gate_edge_and_window_in_less_calls_than_rows(
    kind: str,
) -> None:
    calls_of_a_batch(OPEN[kind], BATCH_ROWS, work=True)  # what is only done once
    calls = calls_of_a_batch(OPEN[kind], BATCH_ROWS, work=True)
    assert calls.total() / (MANY - FEW) < CALLS_MAX, told(calls)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FIRING)
def test_a_large_batch_costs_as_many_calls_as_a_small_one_also_when_windows_fire(kind: str) -> None:
    """The machines, the driver, results and their sink included."""
    large = calls_of_a_batch(FIRING[kind], BATCH_ROWS, work=False)
    small = calls_of_a_batch(FIRING[kind], BATCH_ROWS // 16, work=False)
    assert large.total() < 1.25 * small.total(), told(large - small)
