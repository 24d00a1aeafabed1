"""Hypothesis settings of the kernel's tests, and their golden transcripts.

No deadlines on shared machines, few examples each.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("kernel", deadline=None, max_examples=50)
settings.load_profile("kernel")

TRANSCRIPTS = Path(__file__).parent / "transcripts"


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compares a text with the transcript of that name; `ARKFLOW_REWRITE=1` writes it anew."""

    def compare(name: str, text: str) -> None:
        path = TRANSCRIPTS / f"{name}.txt"
        if os.environ.get("ARKFLOW_REWRITE"):
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return compare
