"""What a restore refuses, as the states of windows say it (S9)."""

from arkflow_kernel.errors import RestoreError
from arkflow_kernel.ids import OperatorId


def check_version(
    version: object, known: int, what: str, operator: OperatorId | None = None
) -> None:
    """Raise `RestoreError` if runs of a version cannot be read. `what`: rows in the plural."""
    if version != known:
        whose = "" if operator is None else f"operator '{operator}': "
        raise RestoreError(
            f"{whose}{what} of format version {version} cannot be read: this release knows "
            f"{known}; use the release that wrote them, or start without its state "
            "(`--from-scratch`)"
        )


def other_state(operator: OperatorId, what: str) -> RestoreError:
    """A state that is not of the operator as it is now; `what` goes on after `its state`."""
    return RestoreError(
        f"operator '{operator}': its state {what}; give the operator another id to start without it"
    )


__all__ = ["check_version", "other_state"]
