"""Lists the splits of sources with several subtasks for the coordinator, off its loop (K5).

Once an attempt and source: the first subtask that is deployed has them listed, the others wait for
the same answer. What goes wrong is the failure of each of these chains, with the text of the
source; secrets do not show in it (M8).
"""

import asyncio
import copy
from collections.abc import Mapping
from typing import Final

from arkflow_kernel.errors import ArkflowError, SinkError, SourceError
from arkflow_kernel.ids import Generation, JobId, OperatorId
from arkflow_kernel.protocol import DeployChain
from arkflow_kernel.split_assignment import SplitShare
from arkflow_kernel.split_dealing import dealt_shares, needs_splits, with_share
from arkflow_ray.runtime.components import RegistryComponents

LISTING_TIMEOUT_S: Final = 120.0
"""How long a source may take to list its splits, as long as a chain may take to open."""


class _NoLines:
    """Nothing is printed where splits are listed."""

    def put(self, lines: bytes) -> None:
        """Called by sinks alone."""
        raise SinkError(f"{len(lines)} bytes have nowhere to go: only splits are listed here")


class SplitListing:
    """The splits of one job's sources, attempt by attempt. Used on one loop."""

    def __init__(self, job: JobId) -> None:
        self._job = job
        self._generation = Generation(0)
        self._shares: dict[OperatorId, asyncio.Task[tuple[SplitShare, ...]]] = {}

    async def dealt(self, command: DeployChain, secrets: Mapping[str, str]) -> DeployChain:
        """The command with the chain's own splits; itself for a chain that has none to share.

        Raises `ArkflowError` if they cannot be listed.
        """
        source = command.plan.source
        if source is None or not needs_splits(command.plan):
            return command
        if command.generation > self._generation:
            self._generation, self._shares = command.generation, {}
        listing = self._shares.get(source.operator)
        if listing is None:
            listing = asyncio.create_task(self._list(command, secrets))
            self._shares[source.operator] = listing
        try:
            # Shielded: one chain that is given up does not take the others' answer away.
            shares = await asyncio.wait_for(asyncio.shield(listing), LISTING_TIMEOUT_S)
        except ArkflowError as error:
            raise copy.copy(error) from None  # each chain adds its own notes to it
        except TimeoutError:
            raise SourceError(
                f"source '{source.operator}' did not list its splits within "
                f"{LISTING_TIMEOUT_S:.0f} s: its store does not answer"
            ) from None
        return with_share(command, shares)

    async def _list(
        self, command: DeployChain, secrets: Mapping[str, str]
    ) -> tuple[SplitShare, ...]:
        components = RegistryComponents(secrets, _NoLines(), self._job)
        return await asyncio.to_thread(dealt_shares, command.plan, command.restored, components)


__all__ = ["LISTING_TIMEOUT_S", "SplitListing"]
