"""The driver's side of one job on Ray: its coordinator actor, and the printers of its rows.

A `KernelHandle`. `wait` polls: the completion of the coordinator's `run` call ends it, and its
status is fetched in between. Rows of `stdout` sinks are taken from the chain actors by a thread
each (P9).
"""

import threading
from typing import Any

import ray
from ray.exceptions import RayError

from arkflow_kernel.errors import ActorLostError, ResourceError, SinkError
from arkflow_kernel.ids import ChainId, Generation
from arkflow_kernel.job_runner_adapter import JobRunner
from arkflow_kernel.kernel_handle import KernelHandle
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.ports import LineOutput
from arkflow_kernel.protocol import JobOutcome, JobStatus, OutcomeKind
from arkflow_ray.runtime.coordinator_actor import CoordinatorActor, JobSettings
from arkflow_ray.runtime.ray_errors import first_line

POLL_S = 0.2
ANSWER_TIMEOUT_S = 30.0
"""How long the coordinator may take to answer before it counts as lost."""

START_TIMEOUT_S = 120.0
"""How long the coordinator's process may take to come up."""

FIRST_GENERATION = Generation(1)
STDOUT_TYPE = "stdout"


class RayJob(KernelHandle):
    """A job on Ray, attached: it ends with this process."""

    def __init__(self, graph: ExecutionGraph, settings: JobSettings, lines: LineOutput) -> None:
        self._graph = graph
        self._lines = lines
        self._printers: dict[ChainId, threading.Thread] = {}
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
            self._poll()
        except RayError as error:
            told = f"the coordinator of job '{self._graph.job}' died: {first_line(error)}"
            lost = ActorLostError(told)
            outcome = JobOutcome(OutcomeKind.FAILED, lost)
        ray.kill(self._coordinator, no_restart=True)
        for printer in self._printers.values():
            printer.join()
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
        """Fetch the status, and print for chains that have come up."""
        self._status = self._ask(self._coordinator.status.remote())
        printing = [c.chain for c in self._graph.chains if _prints(c.sinks)]
        if all(chain in self._printers for chain in printing):
            return
        actors = self._ask(self._coordinator.chain_actors.remote())
        for chain in printing:
            if chain in actors and chain not in self._printers:
                self._printers[chain] = _printer(chain, actors[chain], self._lines)

    def _first_status(self) -> JobStatus:
        try:
            status: JobStatus = ray.get(self._coordinator.status.remote(), timeout=START_TIMEOUT_S)
        except RayError as error:
            raise ResourceError(
                f"the coordinator of job '{self._graph.job}' did not start within "
                f"{START_TIMEOUT_S:.0f} s: {first_line(error)}; "
                "`ray status` shows what the cluster lacks"
            ) from error
        return status

    def _ask(self, answer: Any) -> Any:
        return ray.get(answer, timeout=ANSWER_TIMEOUT_S)


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


def _printer(chain: ChainId, actor: Any, lines: LineOutput) -> threading.Thread:
    thread = threading.Thread(
        target=_print_lines, args=(actor, lines), name=f"print-{chain}", daemon=True
    )
    thread.start()
    return thread


def _print_lines(actor: Any, output: LineOutput) -> None:
    """Print what the chain's `stdout` sinks hand over, until its actor is gone."""
    printed = 0
    try:
        while True:
            lines = ray.get(actor.take_lines.remote(printed))
            if lines.closed:
                return
            if lines.number > printed:
                output.put(lines.data)
                printed = lines.number
    except RayError:
        return  # the chain has ended; its rows were confirmed before
    except SinkError:
        actor.close_lines.remote()
    except BaseException:
        # Nobody would ever confirm the lines that the sink waits for.
        actor.close_lines.remote()
        raise


__all__ = ["RayJob", "RayRunner"]
