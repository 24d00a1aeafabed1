"""The driver's side of one job on Ray: its coordinator actor, and the printers of its rows.

A `KernelHandle`. `wait` polls: the completion of the coordinator's `run` call ends it, and its
status is fetched in between.

A coordinator that dies or does not answer ends a job in ack mode. In checkpoint mode the job's
truth is in its log (P8): what is left of the coordinator and its chains is ended, and a successor
claims the next generation and goes on, at once or after the wait of the restart strategy. It runs
the plan that was last seen at work. A stop, a cancel or a savepoint that the user has asked for
meanwhile is asked of it too; a rescale that was under way is not.
"""

import secrets
import threading
from contextlib import suppress
from dataclasses import replace

import ray
from ray.exceptions import RayError, RayTaskError

from arkflow_kernel.chain_hosts import parallelism_of
from arkflow_kernel.errors import ActorLostError, ArkflowError, ConfigError, Issue
from arkflow_kernel.ids import MonotonicMs
from arkflow_kernel.job_runner_adapter import NEWEST, JobRunner
from arkflow_kernel.kernel_handle import KernelHandle
from arkflow_kernel.limits import LEASE_MS
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.ports import LineOutput
from arkflow_kernel.protocol import JobOutcome, JobState, JobStatus, OutcomeKind
from arkflow_kernel.restart import GiveUp, RestartStrategy
from arkflow_kernel.snapshot import RestoreChoice
from arkflow_ray.runtime.channel_folder import remove_channel_folder
from arkflow_ray.runtime.checkpoint_root import CheckpointRoot
from arkflow_ray.runtime.clock import SystemClock
from arkflow_ray.runtime.coordinator_process import CoordinatorProcess, coordinator_lost
from arkflow_ray.runtime.deployments import several_nodes
from arkflow_ray.runtime.job_history import JobHistory
from arkflow_ray.runtime.job_settings import FIRST, JobSettings
from arkflow_ray.runtime.placement import needs_groups
from arkflow_ray.runtime.placement_groups import remove_groups
from arkflow_ray.runtime.printers import Printers

POLL_S = 0.2


class RayJob(KernelHandle):
    """A job on Ray, attached: it ends with this process."""

    def __init__(
        self,
        graph: ExecutionGraph,
        settings: JobSettings,
        lines: LineOutput,
        choice: RestoreChoice = NEWEST,
    ) -> None:
        self._graph = graph
        self._plans = [(parallelism_of(graph), graph)]
        self._choice = choice
        self._before = FIRST
        self._clock = SystemClock()
        self._root = _checkpoint_root(graph)
        run = settings.run or secrets.token_hex(8)
        self._settings = replace(settings, checkpoint_root=self._root.url, run=run)
        self._printers = Printers(lines)
        self._history = JobHistory()
        # Deterministic failures are those of chains; their coordinator counts them.
        self._strategy = RestartStrategy(graph.restart)
        self._lock = threading.Lock()
        self._stop: tuple[bool, str | None] | None = None
        self._savepoints: list[str] = []
        self._cancelled = False
        self._hurry = threading.Event()
        self._coordinator = CoordinatorProcess(graph, choice)
        self._status = self._coordinator.start(self._settings, hold_ms=0)

    @property
    def coordinator_pid(self) -> int | None:
        """The process of the coordinator at work; None if it has not answered yet."""
        place = self._coordinator.place
        return None if place is None else place.process.pid

    def wait(self) -> JobOutcome:
        """See `KernelHandle.wait`."""
        try:
            while True:
                try:
                    outcome = self._to_the_end()
                    break
                except RayError as error:
                    ended = self._lost(error)
                    if ended is not None:
                        outcome = ended
                        break
        finally:
            self._coordinator.kill()
        if needs_groups(self._graph, self._settings):
            remove_groups(self._settings.run)
        self._printers.join()
        remove_channel_folder(self._settings.channel_folder)
        self._root.close()
        return outcome

    def stop(self, *, drain: bool = False, savepoint: str | None = None) -> None:
        """See `KernelHandle.stop`."""
        with self._lock:
            self._stop = (drain, savepoint)
            self._hurry.set()
            self._coordinator.actor.stop.remote(drain, savepoint)

    def savepoint(self, name: str) -> None:
        """See `KernelHandle.savepoint`."""
        with self._lock:
            self._savepoints.append(name)
            self._coordinator.actor.savepoint.remote(name)

    def rescale(self, graph: ExecutionGraph) -> None:
        """See `KernelHandle.rescale`."""
        with self._lock:
            wanted = parallelism_of(graph)
            others = [(known, plan) for known, plan in self._plans if known != wanted]
            self._plans = [*others, (wanted, graph)]
            self._coordinator.actor.rescale.remote(graph)

    def cancel(self) -> None:
        """See `KernelHandle.cancel`."""
        with self._lock:
            self._cancelled = True
            self._hurry.set()
            self._coordinator.actor.cancel.remote()

    def status(self) -> JobStatus:
        """See `KernelHandle.status`."""
        return self._status

    def _to_the_end(self) -> JobOutcome:
        """The end that the coordinator tells. Raises `RayError` if it is lost before."""
        run = self._coordinator.run
        while not ray.wait([run], timeout=POLL_S)[0]:
            self._poll()
        outcome: JobOutcome = ray.get(run)
        with suppress(RayError):  # the end is known; only its figures would be older
            self._poll()
        return outcome

    def _poll(self) -> None:
        """Fetch the status, and print for chains that came up or got another actor."""
        status = self._coordinator.status()
        if status.state is JobState.RUNNING:
            self._before = replace(self._before, started=True)
        self._status = self._history.joined(status)
        self._note_plan(status)
        if not self._printers.stand_at(status.generation):
            self._printers.print_for(self._coordinator.stdout_actors())

    def _note_plan(self, status: JobStatus) -> None:
        """A successor runs the plan that was at work (P8): the newest of this parallelism."""
        with self._lock:
            for parallelism, plan in reversed(self._plans):
                if parallelism == status.parallelism:
                    self._graph = plan
                    return

    # --- a coordinator that is lost ------------------------------------------------------------

    def _lost(self, error: RayError) -> JobOutcome | None:
        """How the job ends because of it; None: a successor is at work."""
        lost: ArkflowError = coordinator_lost(self._graph.job, error)
        hopeless = isinstance(error, RayTaskError) or self._graph.checkpoint is None
        while True:
            since_ms = self._clock.moment().now_ms
            certain = self._end_all()
            if self._cancelled:
                return JobOutcome(OutcomeKind.CANCELLED)
            if hopeless:
                return JobOutcome(OutcomeKind.FAILED, lost)
            delay_ms = self._delay_ms(lost)
            if delay_ms is None:
                return JobOutcome(OutcomeKind.FAILED, lost)
            self._tell(lost, delay_ms, certain=certain)
            self._hurry.wait(delay_ms / 1000)
            self._hurry.clear()  # a stop shortens one wait, or a Ray that is gone would be pressed
            if self._cancelled:
                return JobOutcome(OutcomeKind.CANCELLED)
            free_ms = since_ms if certain else since_ms + LEASE_MS
            try:
                self._succeed(max(0, free_ms - self._clock.moment().now_ms))
            except ArkflowError as failed:
                lost = failed
            else:
                return None

    def _end_all(self) -> bool:
        """End what is left of the coordinator. True if it is certain that nothing is."""
        certain = self._coordinator.end()
        for actor in self._printers.actors():
            with suppress(RayError):  # it is gone
                ray.kill(actor, no_restart=True)
        return certain

    def _delay_ms(self, lost: ArkflowError) -> int | None:
        """How long to wait before a successor is made; None: there shall be none (D3)."""
        checkpoints = self._status.checkpoints
        verdict = self._strategy.failed(
            ActorLostError(lost.message),
            MonotonicMs(self._clock.moment().now_ms),
            started=True,
            progress=None if checkpoints is None else checkpoints.last,
        )
        if isinstance(verdict, GiveUp):
            lost.add_note(f"the job ends: {verdict.reason}")
            return None
        return verdict.delay_ms

    def _tell(self, lost: ArkflowError, delay_ms: int, *, certain: bool) -> None:
        when = f"in {delay_ms / 1000:g} s" if delay_ms else "at once"
        cause = f"{lost}; another one takes its place {when}"
        if not certain:
            cause += f", and deploys after the lease of its processes, {LEASE_MS / 1000:.0f} s"
        self._status = self._history.lost(self._status, cause, self._clock.moment())

    def _succeed(self, hold_ms: int) -> None:
        """Put another coordinator in the place of the one that is lost. Raises `ArkflowError`."""
        # What the user chose counts for the first claim; later ones go on from there (M3).
        continued = self._before.continued or self._coordinator.claimed
        self._before = replace(self._before, continued=continued)
        successor = CoordinatorProcess(self._graph, self._choice, self._before)
        try:
            successor.start(self._settings, hold_ms)
        except ArkflowError:
            successor.kill()
            raise
        with self._lock:
            self._coordinator = successor
            if self._cancelled:
                successor.actor.cancel.remote()
            for name in self._savepoints:
                successor.actor.savepoint.remote(name)
            if self._stop is not None:
                successor.actor.stop.remote(*self._stop)


def _checkpoint_root(graph: ExecutionGraph) -> CheckpointRoot:
    """Where checkpoints lie. Raises `ConfigError` if chains of other nodes would not find them."""
    if graph.checkpoint is not None and graph.checkpoint.ephemeral and several_nodes():
        text = (
            f"job '{graph.job}' takes checkpoints, and without a `checkpoint:` block they would "
            "lie in a folder of one node, where the others do not find them; add one with an "
            "`object_store_uri` that every node of the cluster reaches"
        )
        raise ConfigError([Issue("checkpoint", text)])
    return CheckpointRoot(graph)


class RayRunner(JobRunner):
    """Runs jobs on the Ray that this process is connected to."""

    def __init__(self, settings: JobSettings, lines: LineOutput) -> None:
        self._settings = settings
        self._lines = lines

    def run_job(self, graph: ExecutionGraph, choice: RestoreChoice = NEWEST) -> RayJob:
        """See `JobRunner.run_job`."""
        return RayJob(graph, self._settings, self._lines, choice)


__all__ = ["RayJob", "RayRunner"]
