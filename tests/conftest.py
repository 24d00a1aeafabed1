"""What every test sees: nothing heavy. Ray and servers are fixtures of `tests/integration`."""

import pathlib

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def repository() -> pathlib.Path:
    """The root of the checkout."""
    return REPOSITORY
