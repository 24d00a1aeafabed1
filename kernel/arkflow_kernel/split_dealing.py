"""Deals the splits of sources with several subtasks to the chains of an attempt, for drivers (K5).

Before the first subtask of such a source is deployed, a fresh reader lists the source's splits,
once an attempt; each subtask gets its share of them. A source with one subtask lists nothing: it
reads all that it finds. Listing blocks and may fail; the failure is that of the chain.
"""

from dataclasses import replace

from arkflow_kernel.component_factory import ComponentFactory
from arkflow_kernel.errors import ArkflowError, SourceError
from arkflow_kernel.ids import Generation, OperatorId
from arkflow_kernel.plan import ChainPlan, SourcePlan
from arkflow_kernel.ports import SourceReader, Split, SplitPosition
from arkflow_kernel.protocol import DeployChain
from arkflow_kernel.snapshot import RestoredChain
from arkflow_kernel.split_assignment import SplitShare, assigned, paced_share, restored_share


def needs_splits(plan: ChainPlan) -> bool:
    """Whether the chain is one of several subtasks of a source."""
    return plan.source is not None and plan.parallelism > 1


def listed_splits(
    reader: SourceReader, operator: str, restored: tuple[SplitPosition, ...]
) -> tuple[Split, ...]:
    """All splits of a source. Raises `SourceError` if it cannot be read by several subtasks."""
    lister = getattr(reader, "list_splits", None)
    if lister is None:
        raise SourceError(
            f"source '{operator}' can only be read by one subtask: set its parallelism to 1"
        )
    return tuple(lister(restored))


def dealt_shares(
    plan: ChainPlan, restored: RestoredChain, components: ComponentFactory
) -> tuple[SplitShare, ...]:
    """The shares of all subtasks of the chain's source. Blocks. Raises `ArkflowError`.

    `restored` holds the positions of the whole source. Of one that is finished nothing is read any
    more, so nothing is listed.
    """
    source, finished = plan.source, restored.finished_subtasks
    assert source is not None
    over = len(finished) == plan.parallelism
    found = () if over else _listed(source, restored, components)
    return assigned(found, restored.sources, plan.parallelism, finished)


def with_share(command: DeployChain, shares: tuple[SplitShare, ...]) -> DeployChain:
    """The deployment of one subtask, with its share of splits, positions, times and rate."""
    plan, share = command.plan, shares[command.plan.subtask]
    assert plan.source is not None
    source = paced_share(plan.source, share)
    plan = plan if source is plan.source else replace(plan, source=source)
    return replace(command, plan=plan, restored=restored_share(command.restored, share))


class SplitDealer:
    """Deals for one attempt after the other, for drivers in which listing may block."""

    def __init__(self) -> None:
        self._generation = Generation(0)
        self._shares: dict[OperatorId, tuple[SplitShare, ...]] = {}

    def deal(self, command: DeployChain, components: ComponentFactory) -> DeployChain:
        """The command with the chain's own splits; itself if there are none to be dealt."""
        plan = command.plan
        if plan.source is None or not needs_splits(plan):
            return command
        if command.generation != self._generation:
            self._generation, self._shares = command.generation, {}
        operator = plan.source.operator
        if operator not in self._shares:
            self._shares[operator] = dealt_shares(plan, command.restored, components)
        return with_share(command, self._shares[operator])


def _listed(
    plan: SourcePlan, restored: RestoredChain, components: ComponentFactory
) -> tuple[Split, ...]:
    try:
        return listed_splits(components.source(plan), plan.operator, restored.sources)
    except ArkflowError:
        raise
    except Exception as error:  # whatever a source raises is its failure, as in `chain_work`
        told = f"{type(error).__name__}: {error}"
        raise SourceError(f"source '{plan.operator}' cannot list its splits: {told}") from error


__all__ = ["SplitDealer", "dealt_shares", "listed_splits", "needs_splits", "with_share"]
