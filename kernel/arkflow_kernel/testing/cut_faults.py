"""What may go wrong in a job in checkpoint mode: processes, channels, the store, clocks."""

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from arkflow_kernel.testing.cut_process import CutProcess
from arkflow_kernel.testing.dice import Dice
from arkflow_kernel.testing.sim_faults import FAULTS as JOB_FAULTS
from arkflow_kernel.testing.sim_store import Trouble

if TYPE_CHECKING:
    from arkflow_kernel.testing.cut_job import CutJob
    from arkflow_kernel.testing.cut_run import CutRun

KILL_POINTS: Final = tuple(
    f"{call}: {side}"
    for call, sides in (
        ("seal", ("begin", "end")),
        ("upload", ("begin", "before put", "after put", "end")),
        ("acknowledge", ("begin", "end")),
        ("append", ("begin", "before create", "after create", "end")),
        ("publish", ("begin", "before get", "after get", "end")),
        ("claim", ("begin", "before create", "after create", "end")),
        ("restore", ("begin", "before get", "after get", "end")),
        ("collect", ("begin", "before delete", "after delete", "end")),
        ("save", ("begin", "before copy", "after copy", "end")),
    )
    for side in sides
)
"""Where a process may be killed: before and after each part of what it does with the store."""

_READS: Final = ("list", "read", "get")
_ANSWERS: Final = (*Trouble, Trouble.LATE)[1:]
_CALLS: Final = ("claim", "append", "save", "collect", "upload", "publish", "restore")
_STUMBLES: Final = ("stage", "publish before", "publish after")

Fault = Callable[["CutFaults"], bool]


class CutFaults:
    """The faults of one job: one is drawn now and then, and strikes as soon as it can."""

    def __init__(self, job: "CutJob", dice: Dice, probes: "Counter[str]") -> None:
        self._job, self._dice, self._probes = job, dice, probes
        self._kill_at: set[str] = set()
        self._trouble: tuple[str, Trouble] | None = None
        self._outage = 0
        self._stumble: str | None = None
        self._thaw_at = 0
        self._armed: tuple[str, Fault] | None = None

    # --- from outside --------------------------------------------------------------------------

    def draw(self, faults: "list[tuple[str, Fault]] | None" = None) -> None:
        """Another fault is to happen."""
        self._armed = self._dice.pick(FAULTS if faults is None else faults)

    def arm(self, point: str) -> None:
        """The next process that comes to this point dies there."""
        self._kill_at.add(point)

    def strikes_at(self, point: str) -> bool:
        """Whether somebody dies now that a step of the protocol is reached; once."""
        self._probes[f"at {point}"] += 1
        armed = point in self._kill_at
        self._kill_at.discard(point)
        return armed

    def strike(self) -> None:
        """Let the drawn fault happen, if it can now."""
        self._thaw()
        if self._armed is not None:
            name, fault = self._armed
            if fault(self):
                self._armed = None
                self._probes[f"fault {name}"] += 1
                self._probes["fault"] += 1

    def clear(self) -> None:
        """Nothing more goes wrong."""
        self._armed = self._trouble = self._stumble = None
        self._kill_at.clear()
        self._outage = 0
        for run in self._job.runs:
            run.frozen = False

    @property
    def run(self) -> "CutRun":
        """The run that its driver follows."""
        return self._job.current

    # --- asked by processes --------------------------------------------------------------------

    def passed(self, process: CutProcess, point: str) -> None:
        """A process comes to a point; perhaps it is killed there, or all are."""
        self._probes[f"at {point}"] += 1
        if point in self._kill_at and not process.dead:
            self._kill_at.discard(point)
            self._probes[f"killed {point}"] += 1
            if self._dice.one_in(5):
                self._probes["power failure"] += 1
                for run in self._job.runs:
                    run.crash_all()
            process.kill()

    def trouble(self, process: CutProcess, verb: str) -> Trouble:
        """What becomes of a request to the store."""
        if self._outage > 0:
            self._outage -= 1
            return self._happens("outage", Trouble.REFUSED)
        if self._trouble is None or self._trouble[0] != process.doing:
            return Trouble.NONE
        call, trouble = self._trouble
        if verb in _READS and trouble is not Trouble.REFUSED:
            return Trouble.NONE
        self._trouble = None
        if trouble is Trouble.TORN and verb != "put":
            trouble = Trouble.UNANSWERED
        return self._happens(f"{trouble.value} in {call}", trouble)

    def _happens(self, name: str, trouble: Trouble) -> Trouble:
        self._probes[f"store {name}"] += 1
        self._all_faulty()
        return trouble

    def stumbles(self, what: str) -> bool:
        """Whether an exactly-once sink fails at this moment."""
        if self._stumble != what:
            return False
        self._stumble = None
        self._probes[f"stumbled {what}"] += 1
        self._all_faulty()
        return True

    def _all_faulty(self) -> None:
        for run in self._job.runs:
            run.faulty = True

    # --- the faults ----------------------------------------------------------------------------

    def kill_at_a_point(self) -> bool:
        """The next process that comes to a point dies there."""
        self.arm(self._dice.pick(KILL_POINTS))
        return True

    def trouble_once(self) -> bool:
        """One request of some call comes to grief."""
        self._trouble = self._dice.pick(_CALLS), self._dice.pick(_ANSWERS)
        return True

    def outage(self) -> bool:
        """The store is away for some requests."""
        self._outage = self._dice.pick([1, 3, 10, 25])
        return True

    def stumble(self) -> bool:
        """A sink fails once."""
        self._stumble = self._dice.pick(_STUMBLES)
        return True

    def crash_coordinator(self) -> bool:
        """The coordinator's process dies; its chains live on for a while."""
        if self.run.headless or self.run.outcome is not None:
            return False
        self.run.crash()
        return True

    def crash_all(self) -> bool:
        """Coordinator and chains die together."""
        if self.run.outcome is not None:
            return False
        self.run.crash_all()
        return True

    def give_up(self) -> bool:
        """The driver takes its run for dead, which it is not, and begins another."""
        run = self.run
        if run.outcome is not None or len(self._job.runs) > 2:
            return False
        self._job.succeed(run)
        return True

    def freeze(self) -> bool:
        """A coordinator stands still for a while; its driver may lose patience."""
        run = self.run
        if run.outcome is not None or run.headless or run.frozen:
            return False
        run.frozen = run.faulty = True
        self._thaw_at = self._job.steps + self._dice.pick([20, 100, 400])
        if self._dice.one_in(2) and len(self._job.runs) < 3:
            self._job.succeed(run)
        return True

    def _thaw(self) -> None:
        if self._thaw_at and self._job.steps >= self._thaw_at:
            self._thaw_at = 0
            for run in self._job.runs:
                self._probes["thawed"] += run.frozen
                run.frozen = False

    def shift_clock(self) -> bool:
        """The wall clock jumps, also backwards."""
        self._job.shift_wall(self._dice.pick([-3_600_000, -10, 10, 3_600_000]))
        return True


def _on_run(fault: Callable[..., bool]) -> Fault:
    def happens(faults: CutFaults) -> bool:
        run = faults.run
        happened = not run.headless and fault(run)
        run.faulty |= happened
        return happened

    return happens


FAULTS: Final[list[tuple[str, Fault]]] = [
    *((name, _on_run(fault)) for name, fault in JOB_FAULTS if name != "coordinator lost"),
    *[("kill at a point", CutFaults.kill_at_a_point)] * 12,
    *[("store trouble", CutFaults.trouble_once)] * 6,
    *[("outage", CutFaults.outage)] * 2,
    *[("stumble", CutFaults.stumble)] * 3,
    *[("coordinator crash", CutFaults.crash_coordinator)] * 2,
    ("everything crashes", CutFaults.crash_all),
    *[("given up", CutFaults.give_up)] * 2,
    *[("frozen", CutFaults.freeze)] * 2,
    ("clock jump", CutFaults.shift_clock),
]

__all__ = ["FAULTS", "KILL_POINTS", "CutFaults"]
