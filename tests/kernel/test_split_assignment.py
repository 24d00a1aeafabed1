"""Which subtask reads which split, and what it restores (K5)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.errors import SourceError
from arkflow_kernel.ids import (
    ChainId,
    CheckpointId,
    EventTimeMs,
    Generation,
    RequestToken,
    SplitId,
    SubtaskIndex,
)
from arkflow_kernel.job_claims import restored_chains
from arkflow_kernel.plan import ChainPlan, SourcePlan
from arkflow_kernel.ports import SourceReader, Split, SplitPosition
from arkflow_kernel.protocol import DeployChain
from arkflow_kernel.snapshot import (
    NOTHING_RESTORED,
    ChainSnapshot,
    RestoredChain,
    RestoredJob,
    SplitTime,
)
from arkflow_kernel.split_assignment import SplitShare, assigned, paced_share, restored_share
from arkflow_kernel.split_dealing import SplitDealer
from arkflow_kernel.testing.components import ScriptedComponents, ScriptedSource
from arkflow_kernel.testing.plans import chain_plan

SPLITS = st.lists(
    st.builds(Split, st.integers(0, 60).map(lambda n: SplitId(f"s{n}")), st.integers(0, 1_000)),
    unique_by=lambda split: split.split,
    max_size=40,
)


def at(split: str, row: int = 1, *, ended: bool = False) -> SplitPosition:
    return SplitPosition(SplitId(split), {"row": row}, ended)


@given(
    splits=SPLITS,
    known=st.dictionaries(st.integers(0, 90).map(lambda n: SplitId(f"s{n}")), st.booleans()),
    parallelism=st.integers(1, 9),
    finished=st.sets(st.integers(0, 8)),
)
def test_every_split_is_in_one_share_in_order_and_what_is_left_is_balanced(
    splits: list[Split], known: dict[SplitId, bool], parallelism: int, finished: set[int]
) -> None:
    finished = {subtask for subtask in finished if subtask < parallelism}
    restored = [SplitPosition(split, {}, ended) for split, ended in known.items()]
    shares = assigned(splits, restored, parallelism, finished)
    assert shares == assigned(splits, reversed(restored), parallelism, finished)
    assert len(shares) == parallelism
    listed = [split.split for split in splits]
    dealt = [split for share in shares for split in share.splits]
    assert sorted(dealt) == sorted({*listed, *known}), "each of them once, ended ones too"
    for share in shares:
        own = [split for split in share.splits if split in listed]
        assert own == sorted(own, key=listed.index), "in the order of reading"
    if len(finished) == parallelism:
        return
    sizes = {split.split: max(1, split.size) for split in splits}
    left = [
        sum(sizes.get(s, 1) for s in share.splits if not known.get(s, False)) for share in shares
    ]
    assert all(left[subtask] == 0 for subtask in finished), "who was finished reads nothing (B8)"
    open_ones = [load for i, load in enumerate(left) if i not in finished]
    largest = max((sizes.get(s, 1) for s in dealt if not known.get(s, False)), default=0)
    assert max(open_ones) <= min(open_ones) + largest
    portions = [share.portion for share in shares]
    assert sum(portions) == pytest.approx(1 if sum(left) else 0)
    assert portions == pytest.approx([load / (sum(left) or 1) for load in left])


def test_equal_splits_are_dealt_in_turn_so_that_neighbours_are_read_together() -> None:
    splits = [Split(SplitId(name), 10) for name in "abcdefg"]
    assert ["".join(share.splits) for share in assigned(splits, (), 3)] == ["adg", "be", "cf"]


def test_a_share_keeps_what_is_of_its_splits_alone() -> None:
    times = tuple(SplitTime(SplitId(name), EventTimeMs(5)) for name in "abc")
    snapshot = ChainSnapshot(ChainId("in-0"), (), (at("a"), at("b"), at("c")), times=times)
    restored = RestoredChain(CheckpointId(4), snapshot, CheckpointId(7))
    found = restored_share(restored, SplitShare((SplitId("b"), SplitId("z"))))
    assert found.sources == (at("b"),)
    assert found.times == (times[1],)
    assert found.assigned == ("b", "z")
    assert (found.checkpoint, found.logged_upto) == (4, 7)
    nothing = restored_share(RestoredChain(), SplitShare((SplitId("z"),)))
    assert nothing == RestoredChain(assigned=(SplitId("z"),))


def test_the_rate_of_a_source_is_kept_by_its_subtasks_together() -> None:
    plan = subtask(0, 3).source
    assert plan is not None
    paced = replace(plan, rows_per_second=300.0)
    shares = assigned([Split(SplitId("a"), 10), Split(SplitId("b"), 20)], (), 3)
    rates = [paced_share(paced, share).rows_per_second for share in shares]
    assert rates == pytest.approx([200.0, 100.0, 300.0]), "who has nothing to read has any rate"
    assert paced_share(plan, shares[0]) is plan


# --- dealing before an attempt -------------------------------------------------------------------


class Counting(ScriptedComponents):
    """Counts how often a source is built."""

    built = 0

    def source(self, plan: SourcePlan) -> SourceReader:
        self.built += 1
        return super().source(plan)


def subtask(index: int, parallelism: int) -> ChainPlan:
    plan = chain_plan(f"in-{index}", source="in")
    return replace(plan, subtask=SubtaskIndex(index), parallelism=parallelism)


def deploy(
    index: int, of: int, generation: int = 1, restored: RestoredChain = NOTHING_RESTORED
) -> DeployChain:
    return DeployChain(RequestToken(1), subtask(index, of), Generation(generation), restored)


def components(**sizes: tuple[int, ...]) -> Counting:
    return Counting({"in": ScriptedSource(sizes)})


def test_a_source_is_listed_once_an_attempt_and_not_at_all_with_one_subtask() -> None:
    parts, dealer = components(a=(3,), b=(2,), c=(1,)), SplitDealer()
    alone = deploy(0, 1)
    assert dealer.deal(alone, parts) is alone
    assert parts.built == 0
    shares = [dealer.deal(deploy(i, 2), parts).restored.assigned for i in range(2)]
    assert shares == [("a",), ("b", "c")]
    assert parts.built == 1
    restored = RestoredChain(snapshot=ChainSnapshot(ChainId("in-0"), (), (at("a", ended=True),)))
    again = [dealer.deal(deploy(i, 2, 2, restored), parts).restored for i in range(2)]
    assert [r.assigned for r in again] == [("a", "b"), ("c",)]
    assert [r.sources for r in again] == [(at("a", ended=True),), ()]
    assert parts.built == 2


def test_a_source_that_is_finished_is_not_listed_again() -> None:
    chains = tuple(
        ChainSnapshot(ChainId(f"in-{i}"), (), (at("a", ended=True),), finished=True)
        for i in range(2)
    )
    job = RestoredJob(CheckpointId(1), RoundKind.PERIODIC, "checkpoint 1", chains)
    parts, dealer = components(a=(3,), new=(1,)), SplitDealer()
    found = [
        dealer.deal(deploy(i, 2, 1, restored_chains(job)[ChainId(f"in-{i}")]), parts).restored
        for i in range(2)
    ]
    assert [each.assigned for each in found] == [("a",), ()]
    assert parts.built == 0


def test_a_subtask_that_is_finished_gets_no_split_that_is_left() -> None:
    """B8: it reads no more, so a row that came to it would be lost."""
    chains = tuple(
        ChainSnapshot(ChainId(f"in-{i}"), (), (at("a", ended=True),), finished=i == 0)
        for i in range(2)
    )
    job = RestoredJob(CheckpointId(1), RoundKind.PERIODIC, "checkpoint 1", chains)
    parts, dealer = components(a=(3,), b=(1,), c=(1,)), SplitDealer()
    found = [
        dealer.deal(deploy(i, 2, 1, restored_chains(job)[ChainId(f"in-{i}")]), parts).restored
        for i in range(2)
    ]
    assert [each.assigned for each in found] == [("a",), ("b", "c")]


class Alone:
    """Cannot be shared."""


def test_a_source_that_cannot_be_shared_says_what_to_do() -> None:
    parts = ScriptedComponents({"in": Alone()})  # type: ignore[dict-item]
    with pytest.raises(SourceError, match="'in' can only be read by one subtask: set its para"):
        SplitDealer().deal(deploy(0, 2), parts)


def test_what_a_source_raises_when_it_lists_is_its_failure() -> None:
    class Broken(ScriptedSource):
        def list_splits(self, restored: object) -> list[Split]:
            raise PermissionError(13, "Permission denied")

    parts = ScriptedComponents({"in": Broken({})})
    with pytest.raises(SourceError, match=r"'in' cannot list its splits: PermissionError"):
        SplitDealer().deal(deploy(0, 2), parts)
