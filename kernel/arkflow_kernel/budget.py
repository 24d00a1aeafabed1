"""How many bytes of batches a chain may hold at most, by its plan (E3, T1, T1b, T1c).

What `ChainStatistics.held_bytes` counts never passes this: batches in input queues and in the
lane, slices that wait for room, outboxes, writes. A source batch and a slice count with their own
maximum; what an operator keeps for itself, and results of an item that are not yet asked for, are
the operator's memory.
"""

from arkflow_kernel.limits import (
    COALESCING_BYTES_MAX,
    LANE_ITEMS_QUEUED_MAX,
    OUTBOX_QUEUED_MAX,
    READ_AHEAD_BATCHES_MAX,
    SLICE_BYTES_MAX,
    WRITES_QUEUED_MAX,
)
from arkflow_kernel.plan import ChainPlan


def held_bytes_max(plan: ChainPlan) -> int:
    """The budget of a chain in bytes."""
    items = plan.workers + LANE_ITEMS_QUEUED_MAX
    slices = items * SLICE_BYTES_MAX
    outboxes = len(plan.channels) * (OUTBOX_QUEUED_MAX + 1) * SLICE_BYTES_MAX
    coalescing = COALESCING_BYTES_MAX if plan.channels else 0
    writes = len(plan.sinks) * (WRITES_QUEUED_MAX + 1) * SLICE_BYTES_MAX
    return _input_bytes(plan, items) + slices + outboxes + coalescing + writes


def _input_bytes(plan: ChainPlan, items: int) -> int:
    """Credit covers a batch of a channel until its results have left the lane."""
    if plan.source is not None:
        return (READ_AHEAD_BATCHES_MAX + items) * SLICE_BYTES_MAX
    return sum(max(channel.capacity_bytes, SLICE_BYTES_MAX) for channel in plan.inputs)


__all__ = ["held_bytes_max"]
