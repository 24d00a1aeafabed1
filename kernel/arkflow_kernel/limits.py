"""Named maxima of the kernel, each with its reason. Relations between them are asserted below."""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

SLICE_ROWS_MAX: Final = 32_768
"""Rows in one slice of a lane item's results (T1c). Each costs about a millisecond of events."""

KEY_GROUPS_COUNTED_MAX: Final = 1_024
"""Rows are counted by key group up to so many groups (R4): each report of a chain has them all."""

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

CHANNEL_ENVELOPES_DEFAULT: Final = 1_024
"""Data envelopes that a sender may have outstanding on one channel (E3)."""

CHANNEL_BYTES_MAX: Final = 32 * MIB
"""Bytes that a sender may have outstanding on one channel; more only costs CPU (E3)."""

CHANNEL_BYTES_MIN: Final = MIB
"""The least share of a chain's input budget that one channel gets (E3)."""

CHAIN_INPUT_BYTES_DEFAULT: Final = 256 * MIB
"""Input budget of a chain, shared by its channels (E3)."""

COALESCING_BYTES_MAX: Final = 16 * MIB
"""Bytes of small pieces that all outboxes of a chain may keep back together (E3)."""

FRAME_BYTES_TARGET: Final = MIB
"""Small pieces are joined up to this size before they are sent (H8a)."""

FRAME_BYTES_MAX: Final = 64 * MIB
"""A frame that claims more is refused before anything is allocated (E3, H3)."""

WATERMARK_INTERVAL_MS: Final = 200
"""An edge without rows is told of a new watermark at most this often (W13)."""

LINGER_MS: Final = 10
"""How long a small piece waits for company while its channel is busy."""

OUTBOX_QUEUED_MAX: Final = 2
"""Data envelopes of one channel that wait for credit, beyond those that the peer holds."""

STALL_TIMEOUT_MS: Final = 30_000
"""A wait without progress that is reported (E5)."""

DETERMINISTIC_ATTEMPTS: Final = 3
"""Attempts in a row that the same error of one operator may end before the job does (D3)."""

TRIAL_FAILURES_MAX: Final = 2
"""Failures of a new plan, before its first completed checkpoint, that take it back (K2)."""

TRIAL_MS: Final = 10_000
"""How long a new plan runs in ack mode before it counts as one that works (K3)."""

TRANSITIONS_KEPT_MAX: Final = 32
"""Changes of a job's state that its status shows, newest last."""

HEARTBEAT_TIMEOUT_MS: Final = 10_000
"""A chain that is not heard of for so long counts as hung, and is killed (D2)."""

SETTLEMENT_ENTRIES_MAX: Final = 4_096
"""Entries of a settlement queue before every second one merges into its successor (F3)."""

STORY_ENTRIES_MAX: Final = 32
"""Last transitions of a machine that travel in its errors."""

STAGED_BYTES_MAX: Final = 64 * MIB
"""Keys and values that one lane item may change in the state of its chain (S3)."""

STATE_MEMORY_BYTES: Final = 1_024 * MIB
"""Memory that one state takes before entries go to local files (S5)."""

WORKERS_MAX: Final = 256
"""Upper bound of `thread_num`: each worker is a thread and may hold a batch of 8 MiB."""

TEARDOWN_TIMEOUT_MS: Final = 10_000
"""How long a cancelled chain may take to close before it is killed (D4)."""

CHECKPOINT_INTERVAL_EPHEMERAL_MS: Final = 10_000
"""Between two rounds of a job that keeps state and has no `checkpoint:` block (F0)."""

ROUND_TIMEOUT_MS: Final = 600_000
"""How long a checkpoint round may take before it fails and names who is missing (B5)."""

PUBLISH_TIMEOUT_MS: Final = 600_000
"""How long a token's publication may fail before the attempt does (X2)."""

PUBLISH_RETRY_MS: Final = 1_000
"""Between two tries to publish a token."""

CLOSING_RETRY_MS: Final = 1_000
"""Between two tries of the round that ends a job."""

LEASE_MS: Final = 10_000
"""A chain without a word of its coordinator for so long stops writing (D6)."""

REPORT_INTERVAL_MS: Final = 1_000
"""How often a chain tells the coordinator how it is (D2)."""

EXACT_FLOAT_INT_MAX: Final = 2**53
"""Integers above this magnitude change when they become a Float64."""

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

AUTOSCALE_TARGET_BUSY: Final = 0.7
"""Share of the time that a subtask is to work: the rest is for a load that rises (K6)."""

AUTOSCALE_COOLDOWN_MS: Final = 60_000
"""Between two changes of a job's parallelism: each stops it for some seconds (K6)."""

MAX_PARALLELISM_DEFAULT: Final = 128
"""Key groups of a job (C.1 of the reference)."""

DURATION_MS_MAX: Final = 10**15
"""The longest bound, window or lateness, over 30,000 years: sums of some stay inside Int64."""

# A slice must fit a frame, and a row that is let through must fit a frame of its own.
assert SLICE_BYTES_MAX <= ROW_BYTES_MAX <= FRAME_BYTES_MAX
assert FRAME_BYTES_TARGET <= SLICE_BYTES_MAX
assert CHANNEL_BYTES_MIN <= CHANNEL_BYTES_MAX <= CHAIN_INPUT_BYTES_DEFAULT
# Halving a full queue must leave room, or every entry would merge.
assert FRONTIER_PAIRS_MAX >= 4
assert SETTLEMENT_ENTRIES_MAX >= 4

__all__ = [
    "AUTOSCALE_COOLDOWN_MS",
    "AUTOSCALE_TARGET_BUSY",
    "BATCH_ROWS_DEFAULT",
    "CHAIN_INPUT_BYTES_DEFAULT",
    "CHANNEL_BYTES_MAX",
    "CHANNEL_BYTES_MIN",
    "CHANNEL_ENVELOPES_DEFAULT",
    "CHECKPOINT_INTERVAL_EPHEMERAL_MS",
    "CLOSING_RETRY_MS",
    "COALESCING_BYTES_MAX",
    "DETERMINISTIC_ATTEMPTS",
    "DURATION_MS_MAX",
    "EXACT_FLOAT_INT_MAX",
    "FRAME_BYTES_MAX",
    "FRAME_BYTES_TARGET",
    "FRONTIER_PAIRS_MAX",
    "HEARTBEAT_TIMEOUT_MS",
    "INT64_MAX",
    "INT64_MIN",
    "KEY_GROUPS_COUNTED_MAX",
    "KIB",
    "LANE_ITEMS_QUEUED_MAX",
    "LEASE_MS",
    "LINGER_MS",
    "MAX_PARALLELISM_DEFAULT",
    "MIB",
    "OUTBOX_QUEUED_MAX",
    "PUBLISH_RETRY_MS",
    "PUBLISH_TIMEOUT_MS",
    "READ_AHEAD_BATCHES_MAX",
    "REPORT_INTERVAL_MS",
    "ROUND_TIMEOUT_MS",
    "ROW_BYTES_MAX",
    "SETTLEMENT_ENTRIES_MAX",
    "SLICE_BYTES_MAX",
    "SLICE_ROWS_MAX",
    "STAGED_BYTES_MAX",
    "STALL_TIMEOUT_MS",
    "STATE_MEMORY_BYTES",
    "STORY_ENTRIES_MAX",
    "TEARDOWN_TIMEOUT_MS",
    "TRANSITIONS_KEPT_MAX",
    "TRIAL_FAILURES_MAX",
    "TRIAL_MS",
    "WORKERS_MAX",
    "WRITES_QUEUED_MAX",
]
