"""Profiles of clusters: what `--cluster NAME` means, from `clusters.yaml`.

The file is `$ARKFLOW_RAY_CLUSTERS`, else `~/.config/arkflow-ray/clusters.yaml` (or `.yml`,
`.toml`, `.json`). It holds no secrets: a token is named by the file that it stands in.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from arkflow_kernel.errors import ConfigError, Issue
from arkflow_ray.components.config_path import render_path
from arkflow_ray.components.model_issues import FindingKind, did_you_mean
from arkflow_ray.config.issues import LoadError, LocatedIssue
from arkflow_ray.config.repair import parse_entry
from arkflow_ray.config.tree import locate, plain, read_tree

FILE_VARIABLE: Final = "ARKFLOW_RAY_CLUSTERS"
DEFAULT_NAMESPACE: Final = "arkflow"
_FOLDER: Final = "~/.config/arkflow-ray"
_NAMES: Final = ("clusters.yaml", "clusters.yml", "clusters.toml", "clusters.json")


RUNTIME_ENV_KEYS: Final = (
    "working_dir", "py_modules", "pip", "uv", "conda", "env_vars", "excludes", "config",
    "py_executable", "image_uri", "container", "worker_process_setup_hook", "java_jars",
)  # fmt: skip
"""What Ray knows in a `runtime_env`. It would ignore any other key without a word."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class AuthProfile(_Part):
    """How this machine proves itself to a cluster: Ray's own token."""

    mode: Literal["token", "disabled"] | None = None
    token_file: Annotated[str, Field(min_length=1)] | None = None

    def variables(self) -> dict[str, str]:
        """What Ray reads from the environment."""
        found: dict[str, str] = {}
        mode = self.mode or ("token" if self.token_file is not None else None)
        if mode is not None:
            found["RAY_AUTH_MODE"] = mode
        if self.token_file is not None:
            found["RAY_AUTH_TOKEN_PATH"] = os.path.expanduser(self.token_file)
        return found


class Profile(_Part):
    """One cluster. `checkpoint`, `restart`, `resources` and `transport` are for jobs without them.

    `runtime_env` is Ray's: `working_dir`, `py_modules`, `pip`, `env_vars` and so on.
    """

    address: Annotated[str, Field(min_length=1)] = "auto"
    namespace: Annotated[str, Field(min_length=1)] = DEFAULT_NAMESPACE
    runtime_env: dict[str, Any] = Field(default_factory=dict)
    checkpoint_root: Annotated[str, Field(min_length=1)] | None = None
    resources: dict[str, Any] | None = None
    transport: Literal["auto", "ray"] | None = None
    auth: AuthProfile = AuthProfile()

    @field_validator("runtime_env")
    @classmethod
    def _known_keys(cls, given: dict[str, Any]) -> dict[str, Any]:
        for key in given:
            if key not in RUNTIME_ENV_KEYS:
                raise ValueError(f"unknown key '{key}'{did_you_mean(key, RUNTIME_ENV_KEYS)}")
        return given

    def defaults(self) -> dict[str, dict[str, Any]]:
        """What jobs get that do not say it themselves, by `streams` and `jobs`."""
        both: dict[str, Any] = {}
        if self.checkpoint_root is not None:
            both["checkpoint"] = {"object_store_uri": self.checkpoint_root}
        jobs = dict(both)
        if self.resources is not None:
            jobs["resources"] = dict(self.resources)
        if self.transport is not None:
            jobs["transport"] = self.transport
        return {"streams": both, "jobs": jobs}


class _Profiles(_Part):
    clusters: dict[str, Profile]


def profiles_file(environment: Mapping[str, str]) -> Path | None:
    """The file of profiles; None if there is none in the usual place."""
    named = environment.get(FILE_VARIABLE)
    if named:
        return Path(named).expanduser()
    folder = Path(_FOLDER).expanduser()
    return next((folder / name for name in _NAMES if (folder / name).is_file()), None)


def load_profiles(path: Path) -> dict[str, Profile]:
    """All profiles of a file. Raises `LoadError` with every mistake and its place."""
    root, duplicates = read_tree(path)
    issues = list(duplicates)
    parsed = parse_entry(_Profiles, plain(root))
    for finding in parsed.findings:
        at = locate(root, finding.path, key=finding.kind is FindingKind.UNKNOWN_KEY)
        text = render_path(finding.path)
        issues.append(LocatedIssue(str(path), at.line, at.column, text, finding.message))
    if issues or parsed.spec is None:
        raise LoadError(issues)
    return dict(parsed.spec.clusters)


def load_profile(name: str, environment: Mapping[str, str] = os.environ) -> Profile:
    """The profile of a cluster. Raises `ConfigError` if there is none, `LoadError` for mistakes."""
    path = profiles_file(environment)
    if path is None:
        text = f"there is no file of clusters: write {_FOLDER}/{_NAMES[0]} or name one in"
        raise ConfigError([Issue("", f"{text} {FILE_VARIABLE}")])
    profiles = load_profiles(path)
    if name not in profiles:
        known = ", ".join(profiles) or "none"
        raise ConfigError([Issue("", f"{path} has no cluster '{name}'; there are: {known}")])
    return profiles[name]


__all__ = [
    "DEFAULT_NAMESPACE",
    "FILE_VARIABLE",
    "RUNTIME_ENV_KEYS",
    "AuthProfile",
    "Profile",
    "load_profile",
    "load_profiles",
    "profiles_file",
]
