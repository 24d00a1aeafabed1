"""Input `generate` with several splits: the same rows at the same rate for any subtasks (K5)."""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkflow_kernel.errors import ConfigError, SourceError
from arkflow_kernel.ids import MonotonicMs, SplitId
from arkflow_kernel.plan import ComponentPlan
from arkflow_kernel.ports import NothingYet, SourceBatch, SourceEnded, SourceReader, SplitPosition
from arkflow_kernel.split_assignment import assigned
from arkflow_kernel.split_dealing import listed_splits
from arkflow_ray.components.api import BuildContext, ComponentKind
from arkflow_ray.components.building import build_component
from arkflow_ray.components.inputs.generate import GenerateReader

Make = Callable[..., SourceReader]


def made(codec: dict[str, Any] | None = None, **config: Any) -> SourceReader:
    plan = ComponentPlan("generate", {"context": "{}", "interval": "10ms", **config}, codec)
    return cast(SourceReader, build_component(ComponentKind.INPUT, plan, BuildContext("source")))


def listed(reader: SourceReader, restored: Seq[SplitPosition] = ()) -> list[str]:
    return [split.split for split in listed_splits(reader, "source", tuple(restored))]


def run(reader: SourceReader, upto_ms: int) -> list[tuple[int, SourceBatch]]:
    """Batches of an open reader and when they came, with a read each millisecond."""
    found = []
    for ms in range(upto_ms):
        while isinstance(result := reader.read(MonotonicMs(ms)), SourceBatch):
            found.append((ms, result))
        if isinstance(result, SourceEnded):
            break
    return found


def test_splits_are_named_by_their_number_and_how_many_there_are() -> None:
    assert listed(made()) == ["generate"]
    assert listed(made(splits=3)) == [f"generate-{k}-of-3" for k in range(3)]
    sizes = [s.size for s in cast(GenerateReader, made(splits=3, count=11)).list_splits(())]
    assert sizes == [4, 4, 3], "rows, which balance shares"


def test_each_split_has_its_own_turns_and_all_together_the_interval() -> None:
    alone, shared = made(splits=3), [made(splits=3), made(splits=3)]
    alone.open([])
    names = [SplitId(name) for name in listed(made(splits=3))]
    shared[0].open([], (names[0], names[2]))
    shared[1].open([], (names[1],))
    one = [(ms, batch.split) for ms, batch in run(alone, 95)]
    assert one == [(10 * n, names[n % 3]) for n in range(10)]
    both = [(ms, batch.split) for reader in shared for ms, batch in run(reader, 95)]
    assert sorted(both) == one
    assert shared[0].read(MonotonicMs(95)) == NothingYet(MonotonicMs(110))


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(0, 40),
    batch_size=st.integers(1, 5),
    splits=st.integers(1, 6),
    interval=st.sampled_from(["0s", "1ns", "1ms", "3ms"]),
    batch_rows=st.integers(1, 9),
    attempts=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), max_size=4),
)
def test_the_rows_are_those_of_one_split_however_often_subtasks_change(
    count: int,
    batch_size: int,
    splits: int,
    interval: str,
    batch_rows: int,
    attempts: list[tuple[int, int]],
) -> None:
    def make() -> SourceReader:
        return made(
            count=count,
            batch_size=batch_size,
            splits=splits,
            interval=interval,
            batch_rows=batch_rows,
        )

    places: dict[SplitId, SplitPosition] = {}
    rows = 0
    for parallelism, limit in (*attempts, (2, 10_000)):
        known = tuple(places.values())
        shares = assigned(listed_splits(make(), "source", known), known, parallelism)
        for share in shares:
            reader = make()
            reader.open([p for p in known if p.split in share.splits], share.splits)
            assert set(reader.splits()) <= set(share.splits)
            for _, batch in run(reader, 400)[:limit]:
                rows += batch.batch.num_rows
                places[batch.split] = SplitPosition(batch.split, batch.position, batch.split_ended)
    assert rows == count // batch_size * batch_size
    assert made(count=count, batch_size=batch_size).splits() == (("generate",) if rows else ())


def test_positions_of_another_number_of_splits_are_refused() -> None:
    place = SplitPosition(SplitId("generate-1-of-3"), {"emitted": 4})
    for splits in (1, 2):
        with pytest.raises(SourceError, match="no split 'generate-1-of-3'; was `splits` changed"):
            made(splits=splits).open([place])
        with pytest.raises(SourceError, match="Set it back"):
            listed(made(splits=splits), [place])
    assert len(listed(made(splits=3), [place])) == 3


def test_a_codec_lists_and_restores_the_splits_of_its_input() -> None:
    json: dict[str, Any] = {"type": "json"}
    names = [SplitId(name) for name in listed(made(json, splits=2))]
    assert names == ["generate-0-of-2", "generate-1-of-2"]
    reader = made(json, splits=2, count=4)
    reader.open([], names[:1])
    (_, first), (_, second) = run(reader, 100)
    assert (first.split, second.split) == (names[0], names[0])
    place = SplitPosition(names[0], first.position)
    again = made(json, splits=2, count=4)
    assert listed(again, [place]) == names
    again.open([place], names[:1])
    assert [batch.position for _, batch in run(again, 100)] == [second.position]


def test_an_input_without_splits_to_share_says_so(make: Make) -> None:
    for codec in (None, {"type": "json"}):
        with pytest.raises(SourceError, match="'source' can only be read by one subtask"):
            listed_splits(make("memory", codec, messages=["{}"]), "source", ())


def test_a_number_of_splits_has_limits() -> None:
    for wrong in (0, 1_025):
        with pytest.raises(ConfigError, match="splits"):
            made(splits=wrong)
