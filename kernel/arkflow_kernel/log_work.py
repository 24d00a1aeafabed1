"""The driver's half of a job's log: does the work of one command, and answers it.

Not a machine: it blocks. A driver calls it from one thread, command by command.
"""

from arkflow_kernel.checkpoint_ports import CheckpointLog
from arkflow_kernel.errors import ArkflowError
from arkflow_kernel.ports import Clock
from arkflow_kernel.protocol import (
    AppendRecord,
    Claimed,
    ClaimGeneration,
    CollectGarbage,
    CoordinatorEvent,
    LogFailed,
    RecordAppended,
    SavepointSaved,
    SaveSavepoint,
)

LogCommand = ClaimGeneration | AppendRecord | SaveSavepoint | CollectGarbage
"""What a coordinator asks of its log."""


def perform_log(log: CheckpointLog, command: LogCommand, clock: Clock) -> CoordinatorEvent | None:
    """Do what a command of the coordinator asks of the log; None for a notification.

    What a request meets is its answer. `CollectGarbage` has none: it raises what the log raises,
    and the driver decides who hears of it. It is no reason to disturb the job: what cannot be
    collected now is collected later, and the next round meets the same trouble (M5).
    """
    if isinstance(command, CollectGarbage):
        log.collect()
        return None
    try:
        match command:
            case ClaimGeneration():
                claim = log.claim(command.choice, command.unusable, command.graph)
                return Claimed(clock.moment(), command.token, claim)
            case AppendRecord():
                log.append(command.record)
                return RecordAppended(clock.moment(), command.token)
            case SaveSavepoint():
                url = log.save(command.record)
                return SavepointSaved(clock.moment(), command.token, url)
    except ArkflowError as error:
        return LogFailed(clock.moment(), command.token, error)


__all__ = ["LogCommand", "perform_log"]
