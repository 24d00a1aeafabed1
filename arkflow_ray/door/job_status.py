"""A job's status as JSON values, for whoever asks at its door."""

import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from arkflow_kernel.errors import ArkflowError
from arkflow_kernel.ids import WallMs
from arkflow_kernel.plan import ChainPlan, CheckpointPlan
from arkflow_kernel.protocol import CheckpointStatus, JobStatus, RescaleStatus
from arkflow_ray.observability.autoscale_story import autoscale_values
from arkflow_ray.observability.figures import figures
from arkflow_ray.observability.rescale_story import rescale_text, total_ms
from arkflow_ray.observability.subtasks import OperatorFigures, operator_figures
from arkflow_ray.observability.time_figures import TimeFigures
from arkflow_ray.runtime.rescaling import under_way
from arkflow_ray.runtime.running import RunningJob

CHAINS_SHOWN_MAX = 3
"""So many chains are named where some are waited for."""


def status_values(running: RunningJob, started_at: str, now_ms: WallMs) -> dict[str, Any]:
    """What a job says of itself. `started_at` is when the run began (ISO 8601), `now_ms` now.

    Ages are by the clocks of both machines, if the coordinator runs on another one.
    """
    status = running.status()
    plan = running.plan_of(status)
    shown = figures(plan, status)
    outcome = running.outcome
    return {
        "job": running.job,
        "version": plan.version,
        "pid": os.getpid(),
        "started_at": started_at,
        "mode": plan.mode.value,
        "state": status.state.value,
        "cause": status.cause,
        "outcome": None if outcome is None else outcome.kind.value,
        "error": _error(status.error),
        "attempt": int(status.generation),
        "restarts": status.restarts,
        "chains": shown.chains,
        "ready": shown.ready,
        "rows_read": shown.read,
        "rows_written": dict(shown.written),
        "bad_rows": shown.bad,
        "skipped_rows": shown.skipped,
        "late_rows": shown.late,
        "untimed_rows": shown.untimed,
        "evicted_rows": shown.evicted,
        "event_time": [_time(each, now_ms) for each in shown.times],
        "waits": [
            {"chain": chain, "on": wait.on, "detail": wait.detail, "waited_ms": wait.waited_ms}
            for chain, waits in status.waits.items()
            for wait in waits
        ],
        "operators": [_operator(each) for each in operator_figures(plan, status)],
        "rescale": None if status.rescale is None else _rescale(status.rescale, now_ms),
        "work": [_work(each, status) for each in plan.chains if each.chain in status.usage],
        "autoscale": autoscale_values(running.autoscale(), now_ms),
        "checkpoints": _checkpoints(plan.checkpoint, status, now_ms),
    }


def _time(told: TimeFigures, now_ms: WallMs) -> dict[str, Any]:
    """Where a chain is in event time; its lag is behind the wall clock, negative if it is ahead."""
    lag_ms = None if told.watermark is None else now_ms - told.watermark
    return asdict(told) | {"lag_ms": lag_ms}


def _operator(told: OperatorFigures) -> dict[str, Any]:
    """An operator by its subtasks. `skew`: rows of the fullest one per mean of all; 1 is even.

    `fullest_key_group`: that with the most rows, and its share of all.
    """
    skew = None if told.skew is None else round(told.skew, 3)
    fullest = None
    if told.fullest is not None:
        group, share = told.fullest
        fullest = {"key_group": group, "share": round(share, 4)}
    return asdict(told) | {
        "parallelism": told.parallelism,
        "skew": skew,
        "fullest_key_group": fullest,
    }


def _work(plan: ChainPlan, status: JobStatus) -> dict[str, Any]:
    """How long a chain has worked in this attempt, and how long rows waited for room: what it has
    read, and what leaves it (R4).
    """
    told = status.chains[plan.chain]
    return {
        "chain": plan.chain,
        "rows_in": told.rows_in,
        "busy_ms": status.usage[plan.chain].busy_ms,
        "held_ms": told.held_ms,
        "backpressured_ms": told.blocked_ms,
    }


def _rescale(told: RescaleStatus, now_ms: WallMs) -> dict[str, Any]:
    """The last rescale that was asked for."""
    return {
        "number": told.number,
        "parallelism": dict(told.parallelism),
        "phase": told.phase,
        "age_ms": max(0, now_ms - told.began.wall_ms),
        "phases": asdict(told.phases),
        "duration_ms": total_ms(told.phases),
        "error": told.error,
        "text": rescale_text(told),
    }


def _checkpoints(
    plan: CheckpointPlan | None, status: JobStatus, now_ms: WallMs
) -> dict[str, Any] | None:
    if plan is None:
        return None
    told = status.checkpoints or CheckpointStatus()
    return {
        "root": plan.root,
        "interval_ms": plan.interval_ms,
        "last": int(told.last) or None,
        "age_ms": None if told.at is None else max(0, now_ms - told.at.wall_ms),
        "duration_ms": told.phases.acknowledged_ms if told.last else None,
        "new_bytes": told.phases.new_bytes if told.last else None,
        "phases": asdict(told.phases) if told.last else None,
        "restored": told.restored,
        "under_way": int(told.under_way) or None,
        "missing": [str(chain) for chain in told.missing],
        "failures": told.failures,
        "error": told.error,
        "savepoints": _savepoints(told.savepoints),
    }


def _savepoints(found: Mapping[str, str | ArkflowError]) -> dict[str, dict[str, Any]]:
    return {
        name: {"error": told.message} if isinstance(told, ArkflowError) else {"url": told}
        for name, told in found.items()
    }


def _error(error: ArkflowError | None) -> dict[str, str] | None:
    return None if error is None else {"type": type(error).__name__, "message": error.message}


def progress_text(status: JobStatus) -> str | None:
    """What a job is waiting for while somebody waits for it, in one line; None for nothing."""
    told = status.checkpoints
    for chain, waits in status.waits.items():
        for wait in waits:
            return f"chain '{chain}' waits for {wait.on}: {wait.detail}"
    rescale = under_way(status.rescale)
    if rescale is not None:
        return rescale_text(rescale)
    if told is not None and told.under_way:
        text = f"checkpoint {told.under_way} is under way"
        return f"{text}; waiting for {chains_text(told.missing)}" if told.missing else text
    if told is not None and told.failures and told.error:
        return f"a checkpoint failed, and is tried again: {told.error}"
    return f"the job is {status.state.value}" + (f": {status.cause}" if status.cause else "")


def chains_text(chains: tuple[str, ...]) -> str:
    """Some chains by name, and how many more there are."""
    named = ", ".join(f"'{chain}'" for chain in chains[:CHAINS_SHOWN_MAX])
    more = len(chains) - CHAINS_SHOWN_MAX
    word = "chain" if len(chains) == 1 else "chains"
    return f"{word} {named}" + (f" and {more} more" if more > 0 else "")


__all__ = ["CHAINS_SHOWN_MAX", "chains_text", "progress_text", "status_values"]
