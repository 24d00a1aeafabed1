"""The jobs of a cluster as a client sees them: submit one, list them, ask one, read its log.

Every job has a runner, a detached actor named like the job. A runner that is being made again
after a loss is waited for.
"""

import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from arkflow_kernel.errors import ActorLostError, ArkflowError, ConfigError, Issue
from arkflow_ray.cluster.job_runner import OVER, STARTING, JobRunner
from arkflow_ray.cluster.submission import Submission
from arkflow_ray.config.issues import LoadError, LocatedIssue
from arkflow_ray.door.messages import (
    BadRequestError,
    NotReachableError,
    Request,
    WaitedTooLongError,
    refusal,
    request_line,
)
from arkflow_ray.runtime.detached_actors import (
    DetachedActor,
    NameTakenError,
    SilentActorError,
    actor_names,
    find_actor,
    make_actor,
)

LOOK_S: Final = 0.2
"""Between two looks at what is waited for."""

SILENCE_S: Final = 60.0
"""A runner that is lost with its node is somewhere else before that."""

NAME_FREE_S: Final = 20.0
"""How long the name of a runner that was ended may stay taken."""


class ClusterJobs:
    """The jobs in one namespace of the cluster that this process is connected to."""

    def __init__(self, where: str, namespace: str) -> None:
        self.where = where
        self.place = f"is on {where}"
        self._namespace = namespace

    def submit(
        self,
        submission: Submission,
        runtime_env: Mapping[str, Any] | None = None,
        on_progress: Callable[[str], None] = lambda _: None,
    ) -> dict[str, Any]:
        """Start a job and wait until it has begun; what its runner says of it.

        Raises `LoadError` with what the cluster finds in the file, `BadRequestError` if the job is
        there already, `ClusterError` or `ResourceError` if no runner starts, and the error of a
        job that could not be started.
        """
        self._make_room(submission.job)
        on_progress(f"starting the runner of job '{submission.job}'")
        try:
            actor = make_actor(
                JobRunner, submission.job, self._namespace, [submission.values()], runtime_env
            )
        except NameTakenError:
            raise self._taken(submission.job, "was submitted at the same time") from None
        told = self._begun(submission.job, actor)
        if told["phase"] == OVER and told["end"]["result"] is None:
            self.forget(submission.job)
            raise _not_started(told["end"])
        return told

    def _begun(self, job: str, actor: DetachedActor) -> dict[str, Any]:
        """What a new runner says as soon as its job has begun, or could not.

        A busy machine may make it late with an answer; it is given up only when it is gone, or has
        said nothing for `SILENCE_S`.
        """
        heard_s = time.monotonic()
        while True:
            try:
                told: dict[str, Any] = actor.call("about")
                heard_s = time.monotonic()
                if told["phase"] != STARTING:
                    return told
            except SilentActorError as silent:
                if silent.gone or time.monotonic() - heard_s > SILENCE_S:
                    text = f"the runner of job '{job}' died while it started: {silent.reason}"
                    raise ActorLostError(text) from silent
            time.sleep(LOOK_S)

    def list(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """What every runner says of itself, and those that do not answer, by name."""
        found, silent = [], []
        for name in actor_names(self._namespace):
            actor = find_actor(name, self._namespace)
            if actor is None:
                continue  # it has ended meanwhile
            try:
                found.append(actor.call("about"))
            except SilentActorError as error:
                silent.append({"job": name, "error": f"job '{name}': {error.reason}"})
        return found, silent

    def about(self, job: str) -> dict[str, Any]:
        """What the runner of a job says of itself. Raises `NotReachableError`."""
        told: dict[str, Any] = self._call(job, None, lambda _: None, "about")
        return told

    def ask(
        self,
        job: str,
        request: Request,
        timeout_s: float | None,
        on_progress: Callable[[str], None] = lambda _: None,
    ) -> dict[str, Any]:
        """Ask a job for something and wait until it is done; the result. See `door.client.ask`."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        key, line, told = secrets.token_hex(8), request_line(request), None
        while True:
            stand = self._call(job, deadline_s, on_progress, "ask", key, line)
            if "error" in stand:
                raise refusal(stand["error"])
            if "result" in stand:
                result: dict[str, Any] = stand["result"]
                return result
            if stand["progress"] is not None and stand["progress"] != told:
                told = stand["progress"]
                on_progress(told)
            _check_time(deadline_s)
            time.sleep(LOOK_S)

    def logs(self, job: str, after: int = 0, tail: int | None = None) -> dict[str, Any]:
        """A page of its log: `lines`, the number of the `first`, and of the `last` there is."""
        page: dict[str, Any] = self._call(job, None, lambda _: None, "logs", after, tail)
        return page

    def forget(self, job: str) -> None:
        """End the runner of a job that is over. Raises `BadRequestError` if it is not."""
        actor = self._find(job)
        if not self._call(job, None, lambda _: None, "release"):
            raise BadRequestError(f"job '{job}' is not over; `stop` or `cancel` it first")
        self._end(job, actor)

    def _make_room(self, job: str) -> None:
        """Let the runner of an earlier submission go if its job is over."""
        if find_actor(job, self._namespace) is None:
            return
        told = self.about(job)
        if told["phase"] != OVER:
            raise self._taken(job, f"runs since {told['started_at']}")
        self.forget(job)

    def _end(self, job: str, actor: DetachedActor) -> None:
        """End this runner; never one that has the name after it, by somebody else's `submit`."""
        actor.kill()
        deadline_s = time.monotonic() + NAME_FREE_S
        while (found := find_actor(job, self._namespace)) is not None:
            if found.identity != actor.identity:
                return
            if time.monotonic() > deadline_s:
                raise NotReachableError(f"the runner of job '{job}' does not end")
            time.sleep(LOOK_S)
            actor.kill()

    def _taken(self, job: str, how: str) -> BadRequestError:
        return BadRequestError(
            f"job '{job}' {how} on {self.where}; `arkflow-ray stop {job}` there stops it"
        )

    def _call(
        self,
        job: str,
        deadline_s: float | None,
        on_progress: Callable[[str], None],
        method: str,
        *args: Any,
    ) -> Any:
        """One call, as often as needed while the runner is made again."""
        patience_s, said = time.monotonic() + SILENCE_S, False
        while True:
            actor = self._find(job)
            try:
                return actor.call(method, *args)
            except SilentActorError as silent:
                if silent.gone or time.monotonic() > patience_s:
                    text = f"the runner of job '{job}' does not answer: {silent.reason}"
                    raise NotReachableError(text) from silent
                if not said:
                    on_progress(f"the runner of job '{job}' does not answer; it may be restarting")
                    said = True
            _check_time(deadline_s)
            time.sleep(LOOK_S)

    def _find(self, job: str) -> DetachedActor:
        actor = find_actor(job, self._namespace)
        if actor is None:
            listed = ", ".join(actor_names(self._namespace)) or "none"
            raise NotReachableError(f"there is no job '{job}' on {self.where}; there: {listed}")
        return actor


def _check_time(deadline_s: float | None) -> None:
    if deadline_s is not None and time.monotonic() >= deadline_s:
        raise WaitedTooLongError("not done in the time given")


def _not_started(end: Mapping[str, Any]) -> ArkflowError:
    """Why a job was not started: mistakes that only the cluster sees, or an error."""
    issues = [LocatedIssue(**issue) for issue in end.get("issues", [])]
    if issues:
        return LoadError(issues)
    error = end["error"]
    if error["type"] == ConfigError.__name__:
        return ConfigError([Issue("", error["message"])])
    return NotStartedError(error["message"], error["type"])


class NotStartedError(ArkflowError):
    """The cluster could not start a job; `kind` is the type of the error there."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


__all__ = ["ClusterJobs", "NotStartedError"]
