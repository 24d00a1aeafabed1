"""The acceptance cases: where they are, and what their outputs are compared with."""

import pathlib
import subprocess
import sys
from typing import Final

CASES: Final = pathlib.Path(__file__).parent / "cases"


def compare(case: str, out: pathlib.Path, *, ordered: bool = False) -> None:
    """Fail with what differs between the rows that a case wrote and those that it must write."""
    options = ["--ordered"] if ordered else []
    compared = subprocess.run(
        [sys.executable, str(CASES / "compare.py"), *options, str(CASES / case), str(out)],
        capture_output=True,
        text=True,
    )
    assert compared.returncode == 0, compared.stdout + compared.stderr


__all__ = ["CASES", "compare"]
