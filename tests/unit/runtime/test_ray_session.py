"""Which Ray a run uses, where there is one already (K7). No Ray runs here."""

import pytest
import ray

from arkflow_ray.runtime.ray_session import open_session


@pytest.mark.parametrize("address", [None, "head:6379"])
def test_a_ray_that_the_process_has_is_used_left_alone_and_said_where_another_was_named(
    address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("the user's Ray is the user's")

    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "init", forbidden)
    monkeypatch.setattr(ray, "shutdown", forbidden)
    told: list[str] = []
    session = open_session(address, told.append)
    session.close()
    assert session.num_cpus == 1.0
    assert [address] * len(told) == [line.split("'")[1] for line in told]
    assert len(told) == (address is not None)
