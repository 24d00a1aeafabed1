"""What of an error of Ray a user reads: its first line; the rest is Ray's own traceback."""


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or its class where it has none.

    A remote call that raised is told by what it raised: Ray's own first line is where it ran.
    """
    cause = getattr(error, "cause", None)  # of a `RayTaskError`
    if isinstance(cause, Exception):
        return f"{type(cause).__name__}: {first_line(cause)}"
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


__all__ = ["first_line"]
