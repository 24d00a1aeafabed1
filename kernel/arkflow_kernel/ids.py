"""Names and numbers of the kernel, each a type of its own.

`mypy` refuses a `CheckpointId` where a `Generation` is due; at run time they are plain `str` and
`int`. Nothing here has behaviour: an id is made by the planner or by a machine and only compared.
"""

from typing import NewType

JobId = NewType("JobId", str)
"""Name of a job: 1 to 128 of `[A-Za-z0-9_-]`."""

OperatorId = NewType("OperatorId", str)
"""Name of an operator, unique inside its job."""

TaskId = NewType("TaskId", str)
"""One parallel instance of an operator: `<operator>-<index>`."""

ChainId = NewType("ChainId", str)
"""One parallel instance of a chain: `<head operator>-<index>`. Stable over plans (G6)."""

EdgeId = NewType("EdgeId", str)
"""Name of an edge of the operator graph, unique inside its job."""

ChannelId = NewType("ChannelId", str)
"""One channel of an edge, from a subtask to a subtask: `<edge>[<from>-<to>]`."""

OutputId = NewType("OutputId", str)
"""Where rows leave a chain: the id of a fused sink, of an edge, or of one channel of an edge."""

SplitId = NewType("SplitId", str)
"""Physical partition of a source: a file, a byte range, a Kafka partition. Stable over restarts."""

SubtaskIndex = NewType("SubtaskIndex", int)
"""Index of a parallel instance, from 0."""

Generation = NewType("Generation", int)
"""Attempt number of a job, from 1. Everything older is refused."""

CheckpointId = NewType("CheckpointId", int)
"""Number of a checkpoint round, from 1; 0 is "none yet"."""

Sequence = NewType("Sequence", int)
"""Number of a batch on one edge or of one split, from 1, without gaps; 0 is "none yet"."""

FIRST_SUBTASK = SubtaskIndex(0)
"""The only subtask of an operator that is not parallel."""

FIRST_GENERATION = Generation(1)
"""The first attempt of a job."""

RequestToken = NewType("RequestToken", int)
"""Names one request of a machine; its one answer carries the same token."""

MonotonicMs = NewType("MonotonicMs", int)
"""Milliseconds of a clock that never goes back. For deadlines only (T7)."""

WallMs = NewType("WallMs", int)
"""Milliseconds since 1970-01-01 UTC. For TTL and processing-time windows only (T7)."""

NO_CHECKPOINT = CheckpointId(0)
"""Before the first round."""

EventTimeMs = NewType("EventTimeMs", int)
"""Event time in milliseconds since 1970-01-01 UTC; may be negative."""

EARLIEST = EventTimeMs(-(2**63))
"""Before every event time: a watermark that says nothing but "not idle"."""

LATEST = EventTimeMs(2**63 - 1)
"""After every event time: the watermark of data that have ended (E1)."""

KeyGroup = NewType("KeyGroup", int)
"""`hash(key) mod max_parallelism`: the unit of state ownership and of rescaling (G3)."""

__all__ = [
    "EARLIEST",
    "FIRST_GENERATION",
    "FIRST_SUBTASK",
    "LATEST",
    "NO_CHECKPOINT",
    "ChainId",
    "ChannelId",
    "CheckpointId",
    "EdgeId",
    "EventTimeMs",
    "Generation",
    "JobId",
    "KeyGroup",
    "MonotonicMs",
    "OperatorId",
    "OutputId",
    "RequestToken",
    "Sequence",
    "SplitId",
    "SubtaskIndex",
    "TaskId",
    "WallMs",
]
