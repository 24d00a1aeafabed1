"""The claims of one run of a job: which plan each is of, and what its attempt begins from (M1, M2).

A part of `job_rounds.py`. A user's choice holds for the first claim only; what chains could not
restore is told to the next one.
"""

from dataclasses import replace

from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.errors import CorruptObjectError
from arkflow_kernel.ids import ChainId, CheckpointId, RequestToken
from arkflow_kernel.plan import ChainPlan, ExecutionGraph
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import ClaimGeneration
from arkflow_kernel.snapshot import (
    NEWEST,
    NOTHING_RESTORED,
    Claim,
    RestoreChoice,
    RestoredChain,
    RestoredJob,
)


class JobClaims:
    """`graph`: the plan that the log was opened with."""

    def __init__(self, graph: ExecutionGraph, choice: RestoreChoice) -> None:
        self._choice = choice
        self._unusable: dict[CheckpointId, str] = {}
        self._claim: Claim | None = None
        self._restored: dict[ChainId, RestoredChain] = {}
        self._asked = graph
        self._logged: ExecutionGraph | None = graph

    def claim(self, token: RequestToken, graph: ExecutionGraph) -> ClaimGeneration:
        """The request that begins an attempt with this plan."""
        choice = self._choice if self._claim is None else NEWEST
        told = None if graph is self._logged else graph
        if told is not None:
            self._logged = None  # it is not known whether the log has taken it, until it answers
        self._asked = graph
        return ClaimGeneration(token, choice, dict(self._unusable), told)

    def claimed(self, claim: Claim) -> None:
        """The log has answered."""
        self._claim, self._logged = claim, self._asked
        self._restored = {} if claim.restored is None else restored_chains(claim.restored)

    @property
    def restored(self) -> RestoredJob | None:
        """What the attempt begins from."""
        return None if self._claim is None else self._claim.restored

    @property
    def source(self) -> str | None:
        """What that is, as users know it."""
        return None if self.restored is None else self.restored.source

    @property
    def finished(self) -> bool:
        """The data had ended, and everything is published: there is nothing left to do (T3)."""
        restored = self.restored
        return restored is not None and restored.kind is RoundKind.FINAL and not restored.tokens

    def restored_chain(self, plan: ChainPlan) -> RestoredChain:
        """What a chain begins from."""
        restored = self.restored
        unknown = NOTHING_RESTORED if restored is None else RestoredChain(restored.checkpoint)
        chain = self._restored.get(plan.chain, unknown)
        upto = None if self._claim is None else self._claim.last_checkpoint
        return replace(chain, logged_upto=upto)

    def sentence(self, at: Moment) -> str:
        """For the log: where the attempt begins, and what the claim found."""
        restored = self.restored
        begins = "starts from the beginning"
        if restored is not None:
            begins = f"continues from {restored.told(at.wall_ms)}"
        notes = () if self._claim is None else self._claim.notes
        return "; ".join((begins, *notes))

    def broken(self, error: CorruptObjectError) -> None:
        """A chain could not restore what the record lists: the next claim hears of it (M2)."""
        if self.restored is not None:
            self._unusable[self.restored.checkpoint] = error.message


def restored_chains(restored: RestoredJob) -> dict[ChainId, RestoredChain]:
    """What each chain of a record restores, with the finished ones of all subtasks beside it.

    A chain is named `<head>-<subtask>` (G6).
    """
    finished: dict[str, set[int]] = {}
    for each in restored.chains:
        head, _, subtask = each.chain.rpartition("-")
        if each.finished and subtask.isdigit():
            finished.setdefault(head, set()).add(int(subtask))
    beside = {head: frozenset(subtasks) for head, subtasks in finished.items()}
    return {
        each.chain: RestoredChain(
            restored.checkpoint,
            each,
            finished_subtasks=beside.get(each.chain.rpartition("-")[0], frozenset()),
        )
        for each in restored.chains
    }


__all__ = ["JobClaims", "restored_chains"]
