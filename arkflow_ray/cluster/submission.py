"""What goes to the cluster of a job: the text of its checked file and how it shall begin (M8).

Plain JSON values. No secret is in it: `${secret:NAME}` is read where the job runs. What
`${env:NAME}` names is read where the file is submitted and goes along.
"""

import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from arkflow_kernel.ids import CheckpointId
from arkflow_kernel.snapshot import NEWEST, RestoreChoice, RestoreKind
from arkflow_ray.config.secrets import VARIABLE_PREFIX

FORMAT: Final = 1

UNKNOWN_SECRET: Final = "not-known-here"
"""Stands for a secret that only the cluster has, while the file is checked here."""


class ForeignSubmissionError(Exception):
    """A submission of another release."""


@dataclass(frozen=True, slots=True)
class Submission:
    """One job of a file. `token` tells submissions of the same job apart.

    `file` is its name where it was submitted, `folder` where its relative paths begin; None: in
    the working folder of the `runtime_env`. `environment` holds what `${env:…}` names.
    """

    job: str
    file: str
    text: str
    folder: str | None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    lenient: bool = False
    choice: RestoreChoice = NEWEST
    defaults: Mapping[str, Any] = field(default_factory=dict)
    token: str = field(default_factory=lambda: secrets.token_hex(8))

    def values(self) -> dict[str, Any]:
        """As JSON values."""
        found = {name: getattr(self, name) for name in self.__dataclass_fields__}
        choice = asdict(self.choice) | {"kind": self.choice.kind.value}
        return found | {"format": FORMAT, "choice": choice}


def parse_submission(values: Mapping[str, Any]) -> Submission:
    """What `Submission.values` gave. Raises `ForeignSubmissionError`."""
    given = dict(values)
    if given.pop("format", None) != FORMAT:
        raise ForeignSubmissionError(
            "the job was submitted by another release of arkflow-ray than the cluster has; "
            "submit it with the one that is installed there"
        )
    choice = dict(given.pop("choice"))
    kind = RestoreKind(choice.pop("kind"))
    number = CheckpointId(choice.pop("checkpoint"))
    return Submission(**given, choice=RestoreChoice(kind, number, **choice))


class SubmittersEnvironment(Mapping[str, str]):
    """The environment while a file is checked for the cluster.

    Notes which variables it asks for. A secret that is not set here may be set there.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment
        self.used: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        if name.startswith(VARIABLE_PREFIX):
            return self._environment.get(name, UNKNOWN_SECRET)
        value = self._environment[name]
        self.used[name] = value
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._environment)

    def __len__(self) -> int:
        return len(self._environment)


__all__ = [
    "FORMAT",
    "UNKNOWN_SECRET",
    "ForeignSubmissionError",
    "Submission",
    "SubmittersEnvironment",
    "parse_submission",
]
