"""The driver's side of one job on Ray: its coordinator actor, and the printers of its rows.

A `KernelHandle`. `wait` polls: the completion of the coordinator's `run` call ends it, and its
status is fetched in between. Rows of `stdout` sinks are taken from the chain actors by a thread
each (P9); an actor that takes the place of another gets a thread of its own, which begins when
everything that the one before handed over is printed.
"""

import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError

from arkflow_kernel.errors import ActorLostError, ArkflowError, ResourceError, SinkError
from arkflow_kernel.ids import FIRST_GENERATION, ChainId, Generation, JobId
from arkflow_kernel.job_runner_adapter import JobRunner
from arkflow_kernel.kernel_handle import KernelHandle
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.ports import LineOutput
from arkflow_kernel.protocol import JobOutcome, JobStatus, OutcomeKind
from arkflow_ray.runtime.channel_folder import remove_channel_folder
from arkflow_ray.runtime.coordinator_actor import CoordinatorActor, JobSettings
from arkflow_ray.runtime.lines import Lines
from arkflow_ray.runtime.ray_errors import first_line

POLL_S = 0.2
ANSWER_TIMEOUT_S = 30.0
"""How long the coordinator may take to answer before it counts as lost."""

START_TIMEOUT_S = 120.0
"""How long the coordinator's process may take to come up."""

STDOUT_TYPE = "stdout"


@dataclass(frozen=True, slots=True)
class _Printer:
    """Who prints a chain's rows: which actor, since which generation."""

    generation: Generation
    actor: Any
    thread: threading.Thread


class RayJob(KernelHandle):
    """A job on Ray, attached: it ends with this process."""

    def __init__(self, graph: ExecutionGraph, settings: JobSettings, lines: LineOutput) -> None:
        self._graph = graph
        self._lines = lines
        self._settings = settings
        self._printing = [chain.chain for chain in graph.chains if _prints(chain.sinks)]
        self._printers: dict[ChainId, _Printer] = {}
        remote: Any = ray.remote(num_cpus=0, max_restarts=0)(CoordinatorActor)
        self._coordinator = remote.remote(graph, FIRST_GENERATION)
        self._status = self._first_status()
        self._run = self._coordinator.run.remote(settings)

    def wait(self) -> JobOutcome:
        """See `KernelHandle.wait`."""
        try:
            while not ray.wait([self._run], timeout=POLL_S)[0]:
                self._poll()
            outcome: JobOutcome = ray.get(self._run)
            with suppress(RayError):  # the end is known; only its figures would be older
                self._poll()
        except RayError as error:
            outcome = JobOutcome(OutcomeKind.FAILED, coordinator_lost(self._graph.job, error))
        ray.kill(self._coordinator, no_restart=True)
        for printer in self._printers.values():
            printer.thread.join()
        remove_channel_folder(self._settings.channel_folder)
        return outcome

    def stop(self) -> None:
        """See `KernelHandle.stop`."""
        self._coordinator.stop.remote()

    def cancel(self) -> None:
        """See `KernelHandle.cancel`."""
        self._coordinator.cancel.remote()

    def status(self) -> JobStatus:
        """See `KernelHandle.status`."""
        return self._status

    def _poll(self) -> None:
        """Fetch the status, and print for chains that came up or got another actor."""
        status: JobStatus = self._ask(self._coordinator.status.remote())
        self._status = status
        if all(self._prints_since(chain) == status.generation for chain in self._printing):
            return
        actors = self._ask(self._coordinator.chain_actors.remote())
        for chain in self._printing:
            if chain in actors:
                self._print(chain, *actors[chain])

    def _prints_since(self, chain: ChainId) -> Generation | None:
        printer = self._printers.get(chain)
        return None if printer is None else printer.generation

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

    def _first_status(self) -> JobStatus:
        try:
            status: JobStatus = ray.get(self._coordinator.status.remote(), timeout=START_TIMEOUT_S)
        except RayError as error:
            raise not_started(self._graph.job, error) from error
        return status

    def _ask(self, answer: Any) -> Any:
        return ray.get(answer, timeout=ANSWER_TIMEOUT_S)


def not_started(job: JobId, error: RayError) -> ArkflowError:
    """Why a coordinator never answered: it is waited for too long, or it is gone."""
    coordinator = f"the coordinator of job '{job}'"
    if isinstance(error, GetTimeoutError):
        return ResourceError(
            f"{coordinator} did not start within {START_TIMEOUT_S:.0f} s; "
            "`ray status` shows what the cluster lacks"
        )
    return ActorLostError(f"{coordinator} died while it started: {first_line(error)}")


def coordinator_lost(job: JobId, error: RayError) -> ActorLostError:
    """Why a coordinator is given up: it is there and says nothing, or it is gone."""
    coordinator = f"the coordinator of job '{job}'"
    if isinstance(error, GetTimeoutError):
        return ActorLostError(f"{coordinator} did not answer for {ANSWER_TIMEOUT_S:.0f} s")
    return ActorLostError(f"{coordinator} died: {first_line(error)}")


class RayRunner(JobRunner):
    """Runs jobs on the Ray that this process is connected to."""

    def __init__(self, settings: JobSettings, lines: LineOutput) -> None:
        self._settings = settings
        self._lines = lines

    def run_job(self, graph: ExecutionGraph) -> RayJob:
        """See `JobRunner.run_job`."""
        return RayJob(graph, self._settings, self._lines)


def _prints(sinks: Any) -> bool:
    return any(sink.component.type == STDOUT_TYPE for sink in sinks)


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


__all__ = ["RayJob", "RayRunner", "coordinator_lost", "not_started"]
