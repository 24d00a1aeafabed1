"""An empty store for each test of the job's log."""

import pytest

from arkflow_kernel.testing.log_world import LogWorld


@pytest.fixture
def world() -> LogWorld:
    """An empty store."""
    return LogWorld()
