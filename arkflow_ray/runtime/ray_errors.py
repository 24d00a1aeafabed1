"""What of an error of Ray a user reads: its first line; the rest is Ray's own traceback."""


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or its class where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


__all__ = ["first_line"]
