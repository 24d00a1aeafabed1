"""Rules 1 and 14 of C6: `state:`, `checkpoint:`, `recovery:`; warnings for 4, 5 and 15 (F0)."""

from collections.abc import Iterator
from typing import Final

from arkflow_kernel.errors import Issue
from arkflow_kernel.job import CheckpointSpec, JobSpec, OperatorSpec, StateSpec
from arkflow_kernel.job_mode import keeps

_BACKENDS: Final = ("embedded_kv", "redb")


def durability_issues(job: JobSpec) -> Iterator[Issue]:
    """Every mistake in what a job says about keeping its state."""
    keeping = [operator for operator in job.operators if keeps(operator)]
    if job.state is not None:
        yield from _state_block(job.state)
    if job.state is not None and job.state.ttl_ms is not None and keeping:
        yield from _ttl(keeping)
    if job.checkpoint is not None:
        yield from _checkpoint_block(job.checkpoint)
        return
    if keeping and (job.state is None or job.state.durability == "durable"):
        yield Issue("state", _unsaved(keeping[0]), warning=True)
    elif job.state is not None and not keeping:
        yield Issue("state", "`state` has no effect: no operator keeps any", warning=True)
    if job.recovery != "latest_checkpoint":
        text = f"`recovery: {job.recovery}` has no effect without a `checkpoint:` block: a new run"
        yield Issue("recovery", f"{text} finds nothing of the one before", warning=True)


def _unsaved(operator: OperatorSpec) -> str:
    """What becomes of state without a `checkpoint:` block, said once a job."""
    return (
        f"operator '{operator.id}' {keeps(operator)}, and its state ends with the run: without a "
        "`checkpoint:` block checkpoints lie in a folder that ends with it; add the block, or say "
        "`state: {backend: embedded_kv, durability: ephemeral}` if you mean that"
    )


def _ttl(keeping: list[OperatorSpec]) -> Iterator[Issue]:
    """A TTL is for what is kept per key without an end; a window ends by itself (S7, N5)."""
    if all(operator.kind in ("window", "join") for operator in keeping):
        text = "`state.ttl_ms` has no effect: what windows and joins keep goes when its time has"
        yield Issue("state.ttl_ms", f"{text} passed; remove it", warning=True)


def _state_block(state: StateSpec) -> Iterator[Issue]:
    if state.backend not in _BACKENDS:
        text = f"local Job state backend '{state.backend}' is not supported; use embedded_kv"
        yield Issue("state.backend", text)
    if state.root == "":
        yield Issue("state.root", "state.root must not be empty; leave it out for the default")
    elif state.root is not None:
        text = "`state.root` has no effect here: state is kept by the process that works on it,"
        advice = "and what outlives it lies in checkpoints, below `checkpoint.object_store_uri`"
        yield Issue("state.root", f"{text} {advice}", warning=True)
    if state.format_version != 1:
        text = "state.format_version must be 1, the only format of state that there is"
        yield Issue("state.format_version", f"{text}; leave it out")
    if state.max_pending_transactions < 1:
        text = "state.max_pending_transactions must be positive; leave it out: it has no effect"
        yield Issue("state.max_pending_transactions", text)
    elif "max_pending_transactions" in state.model_fields_set:
        text = "`max_pending_transactions` has no effect here: state is cut, not acknowledged"
        yield Issue("state.max_pending_transactions", text, warning=True)
    if state.max_bytes is not None and state.max_bytes < 1:
        yield Issue("state.max_bytes", "state.max_bytes must be positive; leave it out for none")


def _checkpoint_block(checkpoint: CheckpointSpec) -> Iterator[Issue]:
    for key in ("interval_ms", "retention", "timeout_ms"):
        if getattr(checkpoint, key) < 1:
            yield Issue(f"checkpoint.{key}", f"checkpoint.{key} must be positive")
    if not checkpoint.object_store_uri.strip():
        text = "checkpoint.object_store_uri must not be empty; use `file:///…` or `s3://…`"
        yield Issue("checkpoint.object_store_uri", text)


__all__ = ["durability_issues"]
