"""Which subtask of a source reads which of its splits, and what that subtask restores (K5).

Pure functions of what the source lists, of what a record or the frontiers know, and of the number
of subtasks. The driver calls them once before each attempt; the machine of the job knows no split.

Rules
- K5: every split is in exactly one share: those that are listed, and those that only a record
  knows. The latter are ended and gone; forgotten, they would be read again if they came back.
- What is left to be read is balanced by size, the largest splits first; what is ended weighs
  nothing and is dealt in turn. Equal splits are dealt in turn, too, so that subtasks read
  neighbours, which are often of one time.
- B8: a subtask that was finished reads nothing any more. The others share what is left.
- A share keeps the reading order. The same arguments give the same shares.
- The shares of one source keep its `rows_per_second` together: each has the part of it that it has
  of what is left, so that all of them come to their end at about the same time.
"""

import heapq
from collections.abc import Collection, Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

from arkflow_kernel.ids import SplitId
from arkflow_kernel.plan import SourcePlan
from arkflow_kernel.ports import Split, SplitPosition
from arkflow_kernel.snapshot import RestoredChain


@dataclass(frozen=True, slots=True)
class SplitShare:
    """What one subtask reads: splits in reading order, ended ones too, and its part of all that is
    left to be read: 0 to 1, over all subtasks 1, or 0 everywhere if nothing is left.
    """

    splits: tuple[SplitId, ...] = ()
    portion: float = 0.0


def assigned(
    splits: Seq[Split],
    restored: Iterable[SplitPosition],
    parallelism: int,
    finished: Collection[int] = (),
) -> tuple[SplitShare, ...]:
    """The share of each subtask. `splits`: all that the source lists, in reading order.

    `finished`: subtasks that were finished; with all of them finished nothing is left.
    """
    sizes = {split.split: max(1, split.size) for split in splits}
    assert len(sizes) == len(splits), "a source listed a split twice"
    known = {position.split: position.ended for position in restored}
    order = [*sizes, *sorted(known.keys() - sizes.keys())]
    loads = [(0, subtask) for subtask in range(parallelism) if subtask not in finished]
    left = [split for split in order if loads and not known.get(split, False)]
    owners: dict[SplitId, int] = {}
    for split in sorted(left, key=lambda split: -sizes.get(split, 1)):
        load, subtask = loads[0]
        owners[split] = subtask
        heapq.heapreplace(loads, (load + sizes.get(split, 1), subtask))
    ended = [split for split in order if split not in owners]
    owners |= {split: place % parallelism for place, split in enumerate(ended)}
    shares: list[list[SplitId]] = [[] for _ in range(parallelism)]
    for split in order:
        shares[owners[split]].append(split)
    whole = sum(load for load, _ in loads) or 1
    portions = {subtask: load / whole for load, subtask in loads}
    return tuple(SplitShare(tuple(own), portions.get(i, 0.0)) for i, own in enumerate(shares))


def restored_share(restored: RestoredChain, share: SplitShare) -> RestoredChain:
    """What one subtask restores of the positions and times of its whole source."""
    snapshot, own = restored.snapshot, set(share.splits)
    if snapshot is not None:
        snapshot = replace(
            snapshot,
            sources=tuple(each for each in snapshot.sources if each.split in own),
            times=tuple(each for each in snapshot.times if each.split in own),
        )
    return replace(restored, snapshot=snapshot, assigned=share.splits)


def paced_share(plan: SourcePlan, share: SplitShare) -> SourcePlan:
    """The plan with the share's part of the source's rate; as it is for one that reads nothing."""
    if plan.rows_per_second is None or not share.portion:
        return plan
    return replace(plan, rows_per_second=plan.rows_per_second * share.portion)


__all__ = ["SplitShare", "assigned", "paced_share", "restored_share"]
