"""Planted bugs of rescales: in a chain, in the job's machine, in the log, and the list of them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from arkflow_kernel.attempt import Attempt
from arkflow_kernel.chain_rounds import ChainRounds
from arkflow_kernel.coordinator import JobCoordinator
from arkflow_kernel.ids import NO_CHECKPOINT, ChainId, CheckpointId
from arkflow_kernel.job_log import JobLog
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.protocol import (
    ClaimGeneration,
    CoordinatorCommand,
    CoordinatorEvent,
    DeployChain,
    Desired,
    ReleaseChains,
)
from arkflow_kernel.snapshot import (
    ChainSnapshot,
    Claim,
    RestoreChoice,
    StateSnapshot,
)
from arkflow_kernel.testing.planted import PlantedTask
from arkflow_kernel.testing.planted_jobs import PlantedCoordinator
from arkflow_kernel.testing.sim_world import Machines

# --- chains ------------------------------------------------------------------------------------


class _LooseRounds(ChainRounds):
    @property
    def holds(self) -> bool:
        return False


class ReadsPastTheBarrier(PlantedTask):
    """A source goes on behind its barrier of a rescale: what it reads is read again (K2)."""

    parts = (("_flow.rounds", _LooseRounds),)


class _GripRounds(ChainRounds):
    @property
    def holds(self) -> bool:
        return self._held > NO_CHECKPOINT and not self._stops


class HoldsAfterAFailure(PlantedTask):
    """A rescale failed before its record, and sources do not go on."""

    parts = (("_flow.rounds", _GripRounds),)


# --- the job -----------------------------------------------------------------------------------


class _Meddling(JobCoordinator):
    """Some of its commands are changed, or left out."""

    def handle(self, event: CoordinatorEvent) -> list[CoordinatorCommand]:
        made = (self._planted_change(command) for command in super().handle(event))
        return [command for command in made if command is not None]

    def _planted_change(self, command: CoordinatorCommand) -> CoordinatorCommand | None:
        return command


class DeploysUnclaimed(_Meddling):
    """The new plan is deployed, and the log holds a claim of the old one (M1)."""

    def _planted_change(self, command: CoordinatorCommand) -> CoordinatorCommand | None:
        return replace(command, graph=None) if isinstance(command, ClaimGeneration) else command


class NeverReleases(_Meddling):
    """Processes that no plan needs any more stay."""

    def _planted_change(self, command: CoordinatorCommand) -> CoordinatorCommand | None:
        return None if isinstance(command, ReleaseChains) else command


class SharesAProcess(_Meddling):
    """Two chains of the new plan are given one process."""

    _planted_last: ChainId | None = None

    def _planted_change(self, command: CoordinatorCommand) -> CoordinatorCommand | None:
        if isinstance(command, DeployChain) and command.host is not None:
            host, self._planted_last = self._planted_last, command.host
            return command if host is None else replace(command, host=host)
        return command


class _HastyEnd(Attempt):
    @property
    def over(self) -> bool:
        alive = sum(chain.alive for chain in self.chains.values())
        return alive == 0 or (self.control.desired is Desired.END and alive == 1)


class DeploysBesideTheOldPlan(PlantedCoordinator):
    """The new plan does not wait for the last chain of the old one (D4)."""

    part = ("_attempt", _HastyEnd)


# --- the log -----------------------------------------------------------------------------------


class _PlantedClaims(JobLog):
    """What another plan restores is changed."""

    def claim(
        self,
        choice: RestoreChoice,
        unusable: Mapping[CheckpointId, str],
        graph: ExecutionGraph | None = None,
    ) -> Claim:
        claim = super().claim(choice, unusable, graph)
        restored = claim.restored
        if graph is None or restored is None:
            return claim
        chains = tuple(self._planted_chain(each, restored.chains) for each in restored.chains)
        return replace(claim, restored=replace(restored, chains=chains))

    def _planted_chain(
        self, chain: ChainSnapshot, chains: tuple[ChainSnapshot, ...]
    ) -> ChainSnapshot:
        del chains
        return chain


class RestoresToTwoOwners(_PlantedClaims):
    """Every subtask gets all runs of its state, and not the key groups that it owns (S6)."""

    def _planted_chain(
        self, chain: ChainSnapshot, chains: tuple[ChainSnapshot, ...]
    ) -> ChainSnapshot:
        def joined(state: StateSnapshot) -> StateSnapshot:
            alike = (s for c in chains for s in c.states if s.operator == state.operator)
            return replace(state, runs=tuple(run for other in alike for run in other.runs))

        refs = {ref.name: ref for each in chains for ref in each.objects}
        states = tuple(joined(state) for state in chain.states)
        return replace(chain, states=states, objects=tuple(refs.values()))


class RestoresToNoOwner(_PlantedClaims):
    """The last key groups of each subtask get lost (S6)."""

    def _planted_chain(
        self, chain: ChainSnapshot, chains: tuple[ChainSnapshot, ...]
    ) -> ChainSnapshot:
        del chains
        states = (replace(state, runs=state.runs[:-1]) for state in chain.states)
        return replace(chain, states=tuple(states))


class DropsTheOldPlansTokens(_PlantedClaims):
    """What the old plan has not published is not restored to the new one (X5)."""

    def _planted_chain(
        self, chain: ChainSnapshot, chains: tuple[ChainSnapshot, ...]
    ) -> ChainSnapshot:
        del chains
        return replace(chain, lanes=tuple(replace(lane, tokens=()) for lane in chain.lanes))


class RecordsTheOldPlan(JobLog):
    """Records after a rescale are taken for ones of the old plan."""

    def _replan(self, graph: ExecutionGraph) -> None:
        plan = self._plan
        super()._replan(graph)
        self._plan = plan


RESCALE_BUGS: tuple[type[Any], ...] = (
    ReadsPastTheBarrier,
    HoldsAfterAFailure,
    DropsTheOldPlansTokens,
    DeploysUnclaimed,
    NeverReleases,
    SharesAProcess,
    DeploysBesideTheOldPlan,
    RestoresToTwoOwners,
    RestoresToNoOwner,
    RecordsTheOldPlan,
)

PLANTED_RESCALES: dict[str, Machines] = {
    kind.__name__: Machines.planted(kind) for kind in RESCALE_BUGS
}
"""Name of each planted bug, and the machines that have it."""

__all__ = ["PLANTED_RESCALES", "RESCALE_BUGS"]
