"""Prints the rows of `stdout` sinks in the driver: a thread per chain actor (P9).

An actor that takes the place of another gets a thread of its own, which begins when everything
that the one before handed over is printed.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import ray
from ray.exceptions import RayError

from arkflow_kernel.errors import SinkError
from arkflow_kernel.ids import ChainId, Generation
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.ports import LineOutput
from arkflow_ray.runtime.lines import Lines

STDOUT_TYPE: Final = "stdout"


@dataclass(frozen=True, slots=True)
class _Printer:
    """Who prints a chain's rows: which actor, since which generation."""

    generation: Generation
    actor: Any
    thread: threading.Thread


class Printers:
    """The printers of one job, over all of its attempts and coordinators."""

    def __init__(self, graph: ExecutionGraph, lines: LineOutput) -> None:
        self._lines = lines
        self._chains = [
            plan.chain
            for plan in graph.chains
            if any(sink.component.type == STDOUT_TYPE for sink in plan.sinks)
        ]
        self._printers: dict[ChainId, _Printer] = {}

    def stand_at(self, generation: Generation) -> bool:
        """Whether every chain that prints has a printer since that generation."""
        found = (self._printers.get(chain) for chain in self._chains)
        return all(each is not None and each.generation == generation for each in found)

    def print_for(self, actors: dict[ChainId, tuple[Generation, Any]]) -> None:
        """Print for actors that came up or took the place of others."""
        for chain in self._chains:
            if chain in actors:
                self._print(chain, *actors[chain])

    def actors(self) -> Iterator[Any]:
        """The actors that are printed for."""
        for printer in self._printers.values():
            yield printer.actor

    def join(self) -> None:
        """Wait until everything that was handed over is printed; the actors are gone."""
        for printer in self._printers.values():
            printer.thread.join()

    def _print(self, chain: ChainId, generation: Generation, actor: Any) -> None:
        before = self._printers.get(chain)
        if before is not None and before.actor == actor:
            thread = before.thread
        else:
            thread = threading.Thread(
                target=_print_after,
                args=(None if before is None else before.thread, actor, self._lines),
                name=f"print-{chain}",
                daemon=True,
            )
            thread.start()
        self._printers[chain] = _Printer(generation, actor, thread)


def _print_after(before: threading.Thread | None, actor: Any, output: LineOutput) -> None:
    """Print for an actor once the printer of the one before, which is dead, has finished."""
    if before is not None:
        before.join()
    _print_lines(actor, output)


def _print_lines(actor: Any, output: LineOutput) -> None:
    """Print what the chain's `stdout` sinks hand over, until its actor is gone."""
    generation, printed = Generation(0), 0
    try:
        while True:
            lines: Lines = ray.get(actor.take_lines.remote(generation, printed))
            if lines.closed:
                return
            if lines.number and (lines.generation, lines.number) > (generation, printed):
                output.put(lines.data)
                generation, printed = lines.generation, lines.number
    except RayError:
        return  # the process has ended; what it handed over is printed
    except SinkError:
        actor.close_lines.remote()
    except BaseException:
        # Nobody would ever confirm the lines that the sink waits for.
        actor.close_lines.remote()
        raise


__all__ = ["Printers"]
