"""Planted bugs of the coordinator, and the list of all planted bugs."""

from collections.abc import Iterator
from typing import Any

from arkflow_kernel.attempt import Attempt
from arkflow_kernel.coordinator import JobCoordinator
from arkflow_kernel.errors import ActorLostError, ArkflowError
from arkflow_kernel.ids import ChainId, MonotonicMs
from arkflow_kernel.ports import SplitPosition
from arkflow_kernel.protocol import (
    ChainEnded,
    ChainReport,
    CoordinatorCommand,
    CoordinatorEvent,
    KillChain,
    SendControl,
)
from arkflow_kernel.restart import GiveUp, Restart, RestartStrategy
from arkflow_kernel.restart_positions import RestartPositions
from arkflow_kernel.testing.planted import CHAIN_BUGS, swap
from arkflow_kernel.testing.planted_channels import CHANNEL_BUGS
from arkflow_kernel.testing.sim_world import Machines


class PlantedCoordinator(JobCoordinator):
    """A coordinator, one of whose parts is of another class; see `PlantedTask`."""

    part: tuple[str, type[Any]]

    def handle(self, event: CoordinatorEvent) -> list[CoordinatorCommand]:
        swap(self, *self.part)
        return super().handle(event)


# --- control and ends --------------------------------------------------------------------------


class SaysItOnce(JobCoordinator):
    """Control is sent once and not repeated with the reports: a lost message never heals."""

    def _on_chain_report(self, event: ChainReport) -> None:
        super()._on_chain_report(event)
        self._commands = [c for c in self._commands if not isinstance(c, SendControl)]


class _HastyAttempt(Attempt):
    @property
    def over(self) -> bool:
        return any(not chain.alive for chain in self.chains.values())


class EndsWithTheFirst(PlantedCoordinator):
    """An attempt is over when one chain has ended."""

    part = ("_attempt", _HastyAttempt)


class _ImpatientAttempt(Attempt):
    @property
    def over(self) -> bool:
        alive = sum(chain.alive for chain in self.chains.values())
        return alive == 0 or (self.given_up and alive == 1)


class DeploysBesideTheLast(PlantedCoordinator):
    """The next attempt is deployed while a chain of the last is still there (D4)."""

    part = ("_attempt", _ImpatientAttempt)


class _PatientAttempt(Attempt):
    def kills(self, now_ms: MonotonicMs, timeout_ms: int) -> Iterator[KillChain]:
        for kill in super().kills(now_ms, timeout_ms):
            if kill.generation < 0:
                yield kill


class NeverKills(PlantedCoordinator):
    """A chain that hangs is waited for, for ever."""

    part = ("_attempt", _PatientAttempt)


class _ForgivingAttempt(Attempt):
    def _consequence(self, error: ArkflowError, *, expected: bool) -> bool:
        lost = isinstance(error, ActorLostError)
        return lost or super()._consequence(error, expected=expected)


class LostProcessIsNoFailure(PlantedCoordinator):
    """A process that is killed or lost ends its attempt, but no other attempt follows."""

    part = ("_attempt", _ForgivingAttempt)


# --- positions ---------------------------------------------------------------------------------


class ForgetsEndedChains(JobCoordinator):
    """What a chain said at its end is not kept: its source repeats more than it must."""

    def _on_chain_ended(self, event: ChainEnded) -> None:
        source = self._positions._sources.get(event.chain)
        known = None if source is None else dict(source.frontier)
        super()._on_chain_ended(event)
        if source is not None and known is not None:
            source.frontier = known


class HearsOldGenerations(JobCoordinator):
    """A report of an attempt before takes a frontier back."""

    def _on_chain_report(self, event: ChainReport) -> None:
        self._positions.heard(event.chain, event.frontier, event.at.now_ms)
        super()._on_chain_report(event)


class _Amnesia(RestartPositions):
    def restored(self, chain: ChainId) -> tuple[SplitPosition, ...]:
        found = super().restored(chain)
        return found if chain == min(self._sources) else ()


class RestartsOneSourceAnew(PlantedCoordinator):
    """One source continues where it was, the others begin anew."""

    part = ("_positions", _Amnesia)


# --- restart strategy --------------------------------------------------------------------------


class _Eager(RestartStrategy):
    def _delay_ms(self) -> int:
        return 0


class RestartsAtOnce(PlantedCoordinator):
    """No restart waits."""

    part = ("_failures._strategy", _Eager)


class _Stubborn(RestartStrategy):
    def _hopeless(self, error: ArkflowError, *, started: bool) -> str | None:
        del error, started
        return None


class RestartsForEver(PlantedCoordinator):
    """Neither state nor strategy nor the number of attempts ends a job."""

    part = ("_failures._strategy", _Stubborn)


class _Faint(RestartStrategy):
    def failed(self, *rest: Any, **named: Any) -> Restart | GiveUp:
        verdict = super().failed(*rest, **named)
        return GiveUp("it failed twice") if self._in_a_row > 1 else verdict


class GivesUpTooSoon(PlantedCoordinator):
    """Two failures end a job, whatever its strategy says."""

    part = ("_failures._strategy", _Faint)


JOB_BUGS: tuple[type[Any], ...] = (
    SaysItOnce,
    EndsWithTheFirst,
    DeploysBesideTheLast,
    NeverKills,
    LostProcessIsNoFailure,
    ForgetsEndedChains,
    HearsOldGenerations,
    RestartsOneSourceAnew,
    RestartsAtOnce,
    RestartsForEver,
    GivesUpTooSoon,
)


PLANTED: dict[str, Machines] = {
    kind.__name__: Machines.planted(kind) for kind in (*CHAIN_BUGS, *CHANNEL_BUGS, *JOB_BUGS)
}
"""Name of each planted bug, and the machines that have it."""

__all__ = ["PLANTED"]
