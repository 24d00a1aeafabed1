"""Events on their way to a simulated coordinator: who says them, and which tell an end."""

from arkflow_kernel.ids import ChainId, Generation
from arkflow_kernel.protocol import ChainEnded, CoordinatorEvent


def sender_of(event: CoordinatorEvent) -> object:
    """Who says it. Whoever watches a chain's process tells its end, and may be faster than it."""
    return getattr(event, "chain", None), isinstance(event, ChainEnded)


def tells_end(event: CoordinatorEvent, chain: ChainId, generation: Generation) -> bool:
    """Whether it tells that a chain of this generation has ended."""
    same = isinstance(event, ChainEnded) and event.chain == chain
    return same and getattr(event, "generation", None) == generation


__all__ = ["sender_of", "tells_end"]
