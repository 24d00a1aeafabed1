"""Words that no file may hold, and links that lead somewhere."""

import pathlib
import re

import pytest

FORBIDDEN = {
    "unfinished work": r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b",
    "a path of one machine": r"/wor" + r"k/|/ro" + r"ot/\.|\.\./sha" + r"red\b",
    "a package index": r"index" + r"-url|pythonho" + r"sted|py" + r"pi\.org",
}
LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)|!\[[^\]\n]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@pytest.mark.parametrize("kind", FORBIDDEN)
def test_no_file_holds(kind: str, texts: dict[str, str]) -> None:
    pattern = re.compile(FORBIDDEN[kind])
    found = [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1} {match.group()}"
        for name, text in texts.items()
        for match in pattern.finditer(text)
    ]
    assert found == []


def _anchor(heading: str) -> str:
    """The anchor that GitHub makes of a heading."""
    kept = re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", heading).strip().lower())
    return kept.replace(" ", "-")


def _broken(root: pathlib.Path, name: str, target: str, texts: dict[str, str]) -> bool:
    path, _, anchor = target.partition("#")
    file = (root / name).parent / path if path else root / name
    if not file.exists():
        return True
    text = texts.get(file.resolve().relative_to(root).as_posix(), "")
    return bool(anchor) and anchor not in map(_anchor, HEADING.findall(text))


def test_every_link_in_the_documents_leads_somewhere(
    repository: pathlib.Path, texts: dict[str, str]
) -> None:
    broken = [
        f"{name}: {target}"
        for name, text in texts.items()
        if name.endswith(".md")
        for match in LINK.finditer(FENCE.sub("", text))
        if not (target := match.group(1) or match.group(2)).startswith(("http:", "https:"))
        and _broken(repository, name, target, texts)
    ]
    assert broken == []
