"""Which cluster is meant: an address, or a profile of `clusters.yaml`."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from arkflow_kernel.errors import ConfigError, Issue

if TYPE_CHECKING:
    from arkflow_ray.config.profiles import Profile

ADDRESS_VARIABLE: Final = "ARKFLOW_RAY_ADDRESS"


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster, and what its profile says if it was named by one."""

    address: str
    profile: "Profile | None" = None


def find_target(
    address: str | None, cluster: str | None, environment: Mapping[str, str] = os.environ
) -> Target | None:
    """The cluster that options and environment name; None: none is named, this machine is meant.

    An option counts more than the environment. Raises `ConfigError` for both options at once and
    for an unknown profile, `LoadError` for mistakes in the file of profiles.
    """
    if address is not None and cluster is not None:
        text = "an address and the name of a cluster exclude each other: say one"
        raise ConfigError([Issue("", text)])
    if cluster is not None:
        from arkflow_ray.config.profiles import load_profile

        profile = load_profile(cluster, environment)
        return Target(profile.address, profile)
    named = address or environment.get(ADDRESS_VARIABLE)
    return Target(named) if named else None


def the_target(
    address: str | None, cluster: str | None, environment: Mapping[str, str] = os.environ
) -> Target:
    """The cluster that is named. Raises as `find_target`, and `ConfigError` if none is."""
    target = find_target(address, cluster, environment)
    if target is None:
        text = f"say which cluster: its address, its name in clusters.yaml, or {ADDRESS_VARIABLE}"
        raise ConfigError([Issue("", text)])
    return target


__all__ = ["ADDRESS_VARIABLE", "Target", "find_target", "the_target"]
