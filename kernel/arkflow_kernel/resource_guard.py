"""Opens a chain's resources in order and closes them in reverse (R1, T4).

It knows nothing of what they are. A failure half-way closes what was opened and raises the first
error; closing goes on after an error, so nothing leaks, and the first error is returned.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resource:
    """Something to open and close. `close` is called once if `open` was, even if that failed."""

    name: str
    open: Callable[[], None]
    close: Callable[[], None]


class ResourceGuard:
    """Opens in the order given: state, temporaries, sources, operators, sinks."""

    def __init__(self) -> None:
        self._opened: list[Resource] = []

    @property
    def opened(self) -> tuple[str, ...]:
        """Names of what is open, in order of opening."""
        return tuple(resource.name for resource in self._opened)

    def open(self, resources: list[Resource]) -> None:
        """Open all or none. Raises the first error after closing what was opened."""
        for resource in resources:
            self._opened.append(resource)
            try:
                resource.open()
            except BaseException as error:
                for later in self.close():
                    error.add_note(f"and while closing: {later}")
                raise

    def close(self) -> list[Exception]:
        """Close everything in reverse order of opening; a second call does nothing.

        Returns the errors of closing, first one first; none of them stops the rest.
        """
        errors: list[Exception] = []
        while self._opened:
            resource = self._opened.pop()
            try:
                resource.close()
            except Exception as error:  # noqa: BLE001 - collected: the others must close too
                error.add_note(f"while closing {resource.name}")
                errors.append(error)
        return errors


__all__ = ["Resource", "ResourceGuard"]
