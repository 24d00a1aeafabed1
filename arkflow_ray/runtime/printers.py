"""Prints the rows of `stdout` sinks in the driver: a thread per chain actor (P9).

An actor that takes the place of others gets a thread of its own, which begins when everything that
those before handed over is printed. An actor may host another chain in the next generation (K2),
so threads belong to actors, not to chains.
"""

import threading
from collections.abc import Iterable, Iterator
from typing import Any, Final

import ray
from ray.exceptions import RayError

from arkflow_kernel.errors import SinkError
from arkflow_kernel.ids import Generation
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.ports import LineOutput
from arkflow_ray.runtime.job_settings import StdoutActors
from arkflow_ray.runtime.lines import Lines

STDOUT_TYPE: Final = "stdout"


def prints(plan: ChainPlan) -> bool:
    """Whether a chain has rows for the driver's stdout."""
    return any(sink.component.type == STDOUT_TYPE for sink in plan.sinks)


class Printers:
    """The printers of one job, over all of its attempts and coordinators."""

    def __init__(self, lines: LineOutput) -> None:
        self._lines = lines
        self._printers: dict[Any, _Printer] = {}
        self._stand_at: Generation | None = None

    def stand_at(self, generation: Generation) -> bool:
        """Whether every chain that prints has a printer since that generation."""
        return self._stand_at == generation

    def print_for(self, found: StdoutActors) -> None:
        """Print for actors that came up or took the place of others."""
        gone = [each for actor, each in self._printers.items() if actor not in found.living]
        staying = [each for actor, each in self._printers.items() if actor in found.living]
        for actor in found.actors.values():
            if actor not in self._printers:
                printer = self._printers[actor] = _Printer(actor, self._lines)
                printer.start(gone, staying)
        self._stand_at = found.generation if found.complete else None

    def actors(self) -> Iterator[Any]:
        """The actors that are printed for."""
        yield from self._printers

    def join(self) -> None:
        """Wait until everything that was handed over is printed; the actors are gone."""
        for printer in self._printers.values():
            printer.join()


class _Printer:
    """Prints what the `stdout` sinks of one actor hand over, until it is gone."""

    def __init__(self, actor: Any, output: LineOutput) -> None:
        self._actor, self._output = actor, output
        self._at_work = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self, gone: "Iterable[_Printer]", staying: "Iterable[_Printer]") -> None:
        """Begin once those of actors that are `gone` have finished, and those of others have
        printed what they hold.
        """
        gone, staying = tuple(gone), tuple(staying)

        def run() -> None:
            for printer in gone:
                printer.join()
            for printer in staying:
                with printer._at_work:
                    pass
            _print_lines(self._actor, self._output, self._at_work)

        self._thread = threading.Thread(target=run, name="print", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for its end."""
        if self._thread is not None:
            self._thread.join()


def _print_lines(actor: Any, output: LineOutput, at_work: threading.Lock) -> None:
    generation, printed = Generation(0), 0
    try:
        while True:
            lines: Lines = ray.get(actor.take_lines.remote(generation, printed))
            if lines.closed:
                return
            if lines.number and (lines.generation, lines.number) > (generation, printed):
                with at_work:
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


__all__ = ["Printers", "prints"]
