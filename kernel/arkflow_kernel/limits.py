"""Named maxima of the kernel, each with its reason. Relations between them are asserted below."""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

SLICE_ROWS_MAX: Final = 8_192
"""Rows in one slice of a lane item's results (T1c): the sweet spot of every measured transport."""

SLICE_BYTES_MAX: Final = 8 * MIB
"""Bytes in one slice of a lane item's results (T1c), so no frame comes near 64 MiB (E3)."""

BATCH_ROWS_DEFAULT: Final = 8_192
"""Rows that a source puts in one batch when the user says nothing."""

ROW_BYTES_MAX: Final = 64 * MIB
"""A single row above this is a bad row (E3)."""

LANE_ITEMS_QUEUED_MAX: Final = 2
"""Lane items that wait behind those in work (T1b): enough to hide a hand-over, no more memory."""

WRITES_QUEUED_MAX: Final = 2
"""Writes of one sink that wait behind the one in work (T1)."""

READ_AHEAD_BATCHES_MAX: Final = 1
"""Batches read and not yet submitted to the lane (B3)."""

FRONTIER_PAIRS_MAX: Final = 4_096
"""(sequence, position) pairs that a commit frontier keeps (F1)."""

SETTLEMENT_ENTRIES_MAX: Final = 4_096
"""Entries of a settlement queue before every second one merges into its successor (F3)."""

STORY_ENTRIES_MAX: Final = 32
"""Last transitions of a machine that travel in its errors."""

WORKERS_MAX: Final = 256
"""Upper bound of `thread_num`: each worker is a thread and may hold a batch of 8 MiB."""

TEARDOWN_TIMEOUT_MS: Final = 10_000
"""How long a cancelled chain may take to close before it is killed (D4)."""

REPORT_INTERVAL_MS: Final = 1_000
"""How often a chain tells the coordinator how it is (D2)."""

EXACT_FLOAT_INT_MAX: Final = 2**53
"""Integers above this magnitude change when they become a Float64."""

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

MAX_PARALLELISM_DEFAULT: Final = 128
"""Key groups of a job (C.1 of the reference)."""

# A slice must fit a frame, and a row that is let through must fit a frame of its own.
assert SLICE_BYTES_MAX <= ROW_BYTES_MAX
# Halving a full queue must leave room, or every entry would merge.
assert FRONTIER_PAIRS_MAX >= 4
assert SETTLEMENT_ENTRIES_MAX >= 4

__all__ = [
    "BATCH_ROWS_DEFAULT",
    "EXACT_FLOAT_INT_MAX",
    "FRONTIER_PAIRS_MAX",
    "INT64_MAX",
    "INT64_MIN",
    "KIB",
    "LANE_ITEMS_QUEUED_MAX",
    "MAX_PARALLELISM_DEFAULT",
    "MIB",
    "READ_AHEAD_BATCHES_MAX",
    "REPORT_INTERVAL_MS",
    "ROW_BYTES_MAX",
    "SETTLEMENT_ENTRIES_MAX",
    "SLICE_BYTES_MAX",
    "SLICE_ROWS_MAX",
    "STORY_ENTRIES_MAX",
    "TEARDOWN_TIMEOUT_MS",
    "WORKERS_MAX",
    "WRITES_QUEUED_MAX",
]
