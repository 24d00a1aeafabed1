"""Panes against a dictionary, over everything that can happen to them (N1, S2, S4, S5, S6)."""

import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arkflow_kernel.ids import CheckpointId, EventTimeMs, Generation, OperatorId, WallMs
from arkflow_kernel.limits import INT64_MAX, INT64_MIN
from arkflow_kernel.plan import AggregatePlan, WindowKind, WindowPlan
from arkflow_kernel.snapshot import Epoch, StateSnapshot
from arkflow_kernel.state.api import StateAddress
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.state_snapshots import ChainStates
from arkflow_kernel.window import pane_merge, pane_runs, pane_sides
from arkflow_kernel.window.aggregates import Aggregates, result_column
from arkflow_kernel.window.keys import KeyLedger
from arkflow_kernel.window.pane_runs import PaneRuns
from arkflow_kernel.window.pane_sides import RawRows
from tests.kernel.state.snapshot_bench import PLAN, Objects

pytestmark = pytest.mark.thorough

OPERATOR = OperatorId("windows")
FUNCTIONS = ("count", "sum", "min", "max", "count_distinct")
WIDTH = 10

Row = tuple[int, Any, int]
"""Pane, key, value."""

Model = dict[tuple[int, Any], list[int]]
"""All values by pane and key."""


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    """Few rows are many here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pane_sides, "RAW_ROWS", 6)
        patch.setattr(pane_sides, "_RAW_ROWS_MAX", 24)
        patch.setattr(pane_runs, "PIECE_ROWS", 4)
        patch.setattr(pane_sides, "_FAN_IN", 3)
        patch.setattr(pane_sides, "_SMALL_ROWS", 4)
        patch.setattr(pane_merge, "_AT_ONCE_ROWS", 8)
        yield


class Panes:
    """The panes of an operator, with its chain's journal and snapshots."""

    def __init__(self, objects: Objects, generation: int, **limits: Any) -> None:
        functions = tuple(AggregatePlan(name, "v", name) for name in FUNCTIONS)
        plan = WindowPlan(WindowKind.TUMBLING, "ts", WIDTH, WIDTH, aggregates=functions)
        self.generation = Generation(generation)
        self.aggregates = Aggregates(plan, OPERATOR)
        self.ledger = KeyLedger(("k",), OPERATOR)
        self.journal = CommitOnAck(lambda: WallMs(0))
        self.states = ChainStates(PLAN, self.generation, objects)
        self.runs: dict[str, PaneRuns] = {}
        for family in self.aggregates.families:
            runs = self.runs[family.name] = PaneRuns(
                family,
                self.ledger,
                StateAddress("ns", OPERATOR, family.name),
                self.journal,
                dead=lambda panes, watermark: panes + WIDTH <= watermark,
                values=self.aggregates,
                windows="ten",
                **limits,
            )
            self.journal.joined(runs)
            self.states.joined(runs)

    def add(self, rows: list[Row], fails: bool) -> None:
        """One item with two batches."""
        try:
            with self.journal.item():
                for part in (rows[::2], rows[1::2]):
                    self._add(part)
                if fails:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            pass

    def _add(self, rows: list[Row]) -> None:
        panes = pa.array([row[0] for row in rows], pa.int64())
        keys = pa.array([row[1] for row in rows])
        batch = pa.record_batch({"k": keys, "v": pa.array([row[2] for row in rows], pa.int64())})
        types = self.aggregates.types
        raw = {"pane": panes, **self.ledger.columns(batch), **self.aggregates.raw(batch)}
        main = self.runs["panes"]
        self.journal.stage(main, 0, lambda: setattr(self.aggregates, "types", types))
        for runs in self.runs.values():
            runs.add(RawRows.of(raw))

    def let_go(self, watermark: int, fails: bool) -> None:
        """One item: the watermark rises."""
        try:
            with self.journal.item():
                for runs in self.runs.values():
                    runs.watermark = EventTimeMs(watermark)
                    runs.drop_below((watermark // WIDTH) * WIDTH)
                if fails:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            pass

    def upload(self, checkpoint: int) -> tuple[StateSnapshot, ...]:
        """What was sealed up to a checkpoint."""
        return self.states.upload(Epoch(self.generation, CheckpointId(checkpoint)))[0]

    def found(self, tables: dict[str, pa.Table], by: list[str]) -> dict[Any, tuple[int, ...]]:
        """Results by pane (or not) and key."""
        if not tables["panes"].num_rows:
            return {}
        final = self.aggregates.final(tables, by)
        keys = self.ledger.restored(final)[0].to_pylist()
        panes = final["pane"].to_pylist() if "pane" in by else [None] * len(keys)
        values = zip(*(final[result_column(name)].to_pylist() for name in FUNCTIONS), strict=True)
        rows = dict(zip(zip(panes, keys, strict=True), values, strict=True))
        assert len(rows) == final.num_rows, "a key stands twice"
        return rows

    def rows(self, first: int, last: int, parts: int, by: list[str]) -> dict[Any, tuple[int, ...]]:
        """All parts of some panes."""
        rows: dict[Any, tuple[int, ...]] = {}
        with self.journal.item():
            for part in range(parts):
                tables = {n: r.rows(first, last, part, parts, by) for n, r in self.runs.items()}
                found = self.found(tables, by)
                assert not rows.keys() & found.keys(), "a key is in two parts"
                rows |= found
        return rows


@dataclass
class Checked:
    """The panes of a chain, and what they must hold. `cuts`: what was sealed, oldest first."""

    limits: dict[str, Any]
    objects: Objects
    model: Model = field(default_factory=dict)
    watermark: int = 0
    cuts: list[tuple[int, Model, int]] = field(default_factory=list)
    uploaded: tuple[tuple[StateSnapshot, ...], Model, int] = ((), {}, 0)

    def __post_init__(self) -> None:
        self.generation = 1
        self.checkpoint = 0
        self.panes = Panes(self.objects, 1, **self.limits)

    def add(self, rows: list[Row], fails: bool) -> None:
        """New rows of panes that are open."""
        rows = [row for row in rows if row[0] + WIDTH > self.watermark]
        self.panes.add(rows, fails)
        if not fails:
            for pane, key, value in rows:
                self.model = self.model | {
                    (pane, key): [*self.model.get((pane, key), []), value],
                }

    def advance(self, by: int, fails: bool) -> None:
        """The watermark rises."""
        self.panes.let_go(self.watermark + by, fails)
        if not fails:
            self.watermark += by
            self.model = {k: v for k, v in self.model.items() if k[0] + WIDTH > self.watermark}

    def seal(self) -> None:
        """A cut, not uploaded yet."""
        self.checkpoint += 1
        self.panes.states.seal(CheckpointId(self.checkpoint))
        self.cuts.append((self.checkpoint, dict(self.model), self.watermark))

    def upload(self, maintain: bool) -> None:
        """Upload the oldest cut."""
        if self.cuts:
            checkpoint, model, watermark = self.cuts.pop(0)
            self.uploaded = self.panes.upload(checkpoint), model, watermark
            if maintain:
                self.panes.states.maintain()

    def restore(self) -> None:
        """Go back to the newest upload."""
        snapshots, self.model, self.watermark = self.uploaded
        self.generation += 1
        self.cuts = []
        self.panes = Panes(self.objects, self.generation, **self.limits)
        listed = {ref.object for state in snapshots for ref in state.runs}
        objects = [ref for ref in self.objects.written if ref.name in listed]
        self.panes.states.restore(snapshots, objects)

    def agrees(self, parts: int) -> None:
        """Compare everything that can be read."""
        expected = {key: _aggregated(values) for key, values in self.model.items()}
        main = self.panes.runs["panes"]
        assert sorted({pane for pane, _ in self.model}) == main.panes().tolist()
        by = ["pane", *self.panes.ledger.names]
        assert self.panes.rows(INT64_MIN, INT64_MAX, parts, by) == expected
        inner = {key: value for key, value in expected.items() if 20 <= key[0] < 40}
        assert self.panes.rows(20, 40, parts, by) == inner
        keys: dict[Any, list[int]] = {}
        for (_, key), values in self.model.items():
            keys.setdefault((None, key), []).extend(values)
        found = self.panes.rows(INT64_MIN, INT64_MAX, parts, list(self.panes.ledger.names))
        assert found == {key: _aggregated(values) for key, values in keys.items()}
        self._agrees_of_some(expected, by)
        assert main.live_keys >= len(self.model)
        assert (main.live_bytes > 0) == bool(self.model)

    def _agrees_of_some(self, expected: dict[Any, tuple[int, ...]], by: list[str]) -> None:
        some = sorted({key for _, key in self.model}, key=repr)[::2]
        if not some:
            return
        wanted = pa.table(self.panes.ledger.columns(pa.record_batch({"k": pa.array(some)})))
        with self.panes.journal.item():
            tables = {n: r.rows_of(wanted, 10, 50, by) for n, r in self.panes.runs.items()}
        found = self.panes.found(tables, by)
        chosen = {k: v for k, v in expected.items() if k[1] in some and 10 <= k[0] < 50}
        assert found == chosen


def _aggregated(values: list[int]) -> tuple[int, ...]:
    return len(values), sum(values), min(values), max(values), len(set(values))


_KEYS = st.sampled_from(
    [
        st.sampled_from(["a", "b", "", "ä", None]),
        st.integers(0, 4) | st.none(),
        st.sampled_from([0.5, 1.0, 2.0**53, None]) | st.integers(0, 3),
    ]
)


@st.composite
def _steps(draw: st.DrawFn) -> list[tuple[str, Any]]:
    keys = draw(_KEYS)
    row = st.tuples(st.integers(0, 6).map(lambda n: n * WIDTH), keys, st.integers(-3, 3))
    step = st.one_of(
        st.tuples(st.just("add"), st.tuples(st.lists(row, max_size=8), st.booleans())),
        st.tuples(st.just("add"), st.tuples(st.lists(row, max_size=8), st.just(False))),
        st.tuples(st.just("advance"), st.tuples(st.integers(0, 12), st.booleans())),
        st.tuples(st.just("seal"), st.just(())),
        st.tuples(st.just("upload"), st.tuples(st.booleans())),
        st.tuples(st.just("restore"), st.just(())),
        st.tuples(st.just("agrees"), st.tuples(st.sampled_from([1, 2, 5]))),
    )
    return draw(st.lists(step, max_size=25))


def _played(steps: list[tuple[str, Any]], memory_bytes: int | None, groups: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        limits = {"memory_bytes": memory_bytes, "max_parallelism": groups}
        checked = Checked(limits, Objects(Path(folder)))
        for name, arguments in steps:
            getattr(checked, name)(*arguments)
        for parts in (1, 5):
            checked.agrees(parts)
        checked.seal()
        while checked.cuts:
            checked.upload(maintain=True)
        checked.restore()
        checked.agrees(2)


_LIMITS = st.sampled_from([None, 1, 400]), st.sampled_from([1, 4, 128])


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(_steps(), *_LIMITS)
def test_panes_hold_what_a_dictionary_does(
    steps: list[tuple[str, Any]], memory_bytes: int | None, groups: int
) -> None:
    """Whatever failed, was let go of, merged, spilled, and restored from any cut."""
    _played(steps, memory_bytes, groups)


def _loses_tables(side: Any) -> Any:
    return pane_sides.PaneSide(side._raw_taken(), side._held_taken()[:1])


_MISTAKES: list[tuple[str, Any, str, Callable[..., Any]]] = [
    ("a seal that loses a table", pane_sides.PaneSide, "taken", _loses_tables),
    ("an undo that does nothing", PaneRuns, "_take_back", lambda *_: None),
    ("rows that are let go of and stay", pane_sides.PaneSide, "let_go", lambda *_: None),
    ("keys in any bucket", pane_merge, "buckets_of", lambda h, _: np.arange(len(h), dtype="u1")),
    ("runs that keep what is dead", PaneRuns, "_alive", lambda *_: lambda each: each),
]


@pytest.mark.parametrize(
    ("owner", "name", "mistake"), [m[1:] for m in _MISTAKES], ids=[m[0] for m in _MISTAKES]
)
def test_the_model_notices(
    owner: Any, name: str, mistake: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, mistake)
    with pytest.raises((AssertionError, pa.ArrowException)):
        _all_drawn()


def _all_drawn() -> None:
    for seed in range(60):
        _played(_drawn(random.Random(seed)), *_DRAWN_LIMITS[seed % len(_DRAWN_LIMITS)])


_DRAWN_LIMITS = [(None, 128), (400, 128), (1, 4)]


def _drawn(dice: random.Random) -> list[tuple[str, Any]]:
    """Steps as above, without a search for the smallest that fail."""
    steps: list[tuple[str, Any]] = []
    for _ in range(30):
        rows = [
            (dice.randrange(7) * WIDTH, dice.choice("abcd"), dice.randrange(-3, 4))
            for _ in range(dice.randrange(9))
        ]
        steps.append(("add", (rows, dice.random() < 0.3)))
        steps.append(
            dice.choice(
                [
                    ("advance", (dice.randrange(14), dice.random() < 0.3)),
                    ("seal", ()),
                    ("upload", (True,)),
                    ("restore", ()),
                    ("agrees", (dice.choice([1, 2, 5]),)),
                ]
            )
        )
    return steps
