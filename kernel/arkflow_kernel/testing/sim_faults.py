"""What may go wrong in a simulated job: one of these at a step that the dice choose."""

from collections.abc import Callable
from typing import Final

from arkflow_kernel.errors import ArkflowError, ChannelError, ProcessingError, SourceError
from arkflow_kernel.ids import OperatorId
from arkflow_kernel.protocol import NextSlice, Request, Submit
from arkflow_kernel.testing.dice import Dice
from arkflow_kernel.testing.sim_chain import SimChain
from arkflow_kernel.testing.sim_job import SimJob

Fault = Callable[[SimJob], bool]
"""Does it, if that is possible now."""


def draw_fault(dice: Dice, faults: "list[tuple[str, Fault]] | None" = None) -> tuple[str, Fault]:
    """The next fault of a job; it strikes as soon as it can."""
    return dice.pick(FAULTS if faults is None else faults)


def strike(job: SimJob, name: str, fault: Fault) -> bool:
    """Try a fault. False if it cannot happen now."""
    if not fault(job):
        return False
    job.world.probes[f"fault {name}"] += 1
    job.world.probes["fault"] += 1
    job.faulty = True
    return True


def _alive(job: SimJob) -> list[SimChain]:
    return [chain for chain in job.chains.values() if chain.alive and not chain.hung]


def _request_fails(job: SimJob) -> bool:
    chains = [chain for chain in _alive(job) if chain.outcome is None]
    if not chains:
        return False
    chain = job.world.dice.pick(chains)
    chain.fail_next = _injected(chain)
    return True


def _injected(chain: SimChain) -> Callable[[Request], ArkflowError]:
    operators = [op.operator for op in chain.plan.operators] or [OperatorId(chain.plan.chain)]

    def error(request: Request) -> ArkflowError:
        if isinstance(request, Submit | NextSlice):
            return ProcessingError(operators[0], "injected", error_class="Injected")
        return SourceError("injected")

    return error


def _crash(job: SimJob) -> bool:
    """A process dies. Somebody hears of it, sooner or later or by its silence only (D2)."""
    chains = _alive(job)
    if not chains:
        return False
    chain = job.world.dice.pick(chains)
    silent = chain.told and chain.outcome is None and job.world.dice.one_in(4)
    job.vanish(chain, noticed=not silent)
    job.world.probes["crash unnoticed"] += silent
    return True


def _break(job: SimJob) -> bool:
    """A connection breaks between two chains that live on."""
    channels = [
        channel
        for channel in job.channels.values()
        if (ends := job.ends(channel)) and all(chain.alive for chain in ends)
    ]
    if not channels:
        return False
    channel = job.world.dice.pick(channels)
    for chain in job.ends(channel):
        chain.broken = ChannelError("the connection broke")
    channel.cut(0)
    return True


def _hang(job: SimJob) -> bool:
    """A process neither works nor reports nor ends."""
    chains = [chain for chain in _alive(job) if chain.told]
    if not chains:
        return False
    job.world.dice.pick(chains).hung = True
    return True


def _deployment(job: SimJob) -> bool:
    if not job.deploys:
        return False
    job.fail_deployment = True
    return True


def _connect(job: SimJob) -> bool:
    if not job.connects:
        return False
    job.fail_connect = True
    return True


def _coordinator(job: SimJob) -> bool:
    """The coordinator's process dies, and every chain with it: the end of the run."""
    if not job.world.dice.one_in(100):
        return False
    job.lost = True
    return True


def _lost(job: SimJob) -> bool:
    return any(channel.lose() for channel in job.channels.values())


def _repeated(job: SimJob) -> bool:
    return any(channel.repeat() for channel in job.channels.values())


def _stray(job: SimJob) -> bool:
    return any(channel.stray() for channel in job.channels.values() if channel.wire)


FAULTS: Final[list[tuple[str, Fault]]] = [
    ("crash", _crash),
    ("crash", _crash),
    ("crash", _crash),
    ("break", _break),
    ("break", _break),
    ("hang", _hang),
    ("request failed", _request_fails),
    ("request failed", _request_fails),
    ("deployment failed", _deployment),
    ("connect failed", _connect),
    ("coordinator lost", _coordinator),
    ("envelope lost", _lost),
    ("envelope repeated", _repeated),
    ("old generation", _stray),
]

AT_START: Final[list[tuple[str, Fault]]] = [
    ("deployment failed", _deployment),
    ("connect failed", _connect),
    ("crash", _crash),
]
"""What may go wrong from the first step on."""

__all__ = ["AT_START", "FAULTS", "Fault", "draw_fault", "strike"]
