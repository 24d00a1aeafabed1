"""The rules of kernel/specs and docs/runtime.md: each stands once, none vanishes."""

import pathlib
import re
from collections import defaultdict

import pytest

FAMILIES = {
    "unified-execution-kernel": {"F": 6, "C": 8, "G": 6, "T": 9, "R": 4},
    "async-checkpoint-barriers": {"B": 8},
    "checkpoint-recovery": {"M": 8, "X": 6},
    "keyed-state-backend": {"S": 11},
    "stream-backpressure": {"E": 9},
    "columnar-window-operators": {"N": 10, "J": 11},
    "event-time": {"W": 13},
    "runtime": {"P": 9, "H": 10, "D": 7, "K": 8},
}
"""Per file and family the highest number. Numbers begin at 1, or at 0 for F and B."""

PROVED = {
    *("F0", "F1", "F2", "F3", "F5", "F6", "C1", "C2", "C3", "C5", "C6", "C7", "C8"),
    *("G1", "G2", "G4", "G5", "G6", "T1", "T1b", "T1c", "T2", "T3", "T4", "T5", "T6", "T8", "T9"),
    *("R1", "R3", "B2", "B3", "S2", "M8", "X3", "P1", "P3", "P4", "P5", "P9", "D1", "D2", "D4"),
    *("R2", "P6"),
    *("B7", "X1", "X5", "K2", "K3", "K5", "K8"),
    *("S4", "S5", "S6", "M7"),
    *("D5", "K7", "P2", "G3", "H5", "E3", "E7", "S1", "S3", "S7", "S8", "S10"),
    *("M1", "M2", "M3", "M4", "M5", "M6", "X4", "S9", "S11"),
    *("D6", "D7", "P8", "F4", "B0", "B1", "B4", "B5", "B6", "B8"),
    *("W1", "W2", "W3", "W4", "W5", "W8", "W11", "W12", "W13"),
    *("W6", "W7", "W9", "W10", "N1", "N2", "N3", "N4", "N5", "N6", "N7", "N8", "N9", "N10"),
    *("E1", "E2", "E4", "E5", "E6", "E8", "E9", "D3", "H1", "H2", "H3", "H4", "H8", "H8a", "H9"),
    "H6",
    *("J1", "J2", "J3", "J4", "J5", "J6", "J7", "J8", "J9", "J10", "J11"),
}
"""Rules that this release follows, in so far as its parts are there. A test names each."""

DEFINITION = re.compile(r"^- ([A-Z]\d+[a-z]?) ", re.MULTILINE)
MENTION = re.compile(r"(?<![\w./-])([A-Z]\d+[a-z]?)(?![\w.])")


def _expected() -> dict[str, set[str]]:
    zero = {"F", "B"}
    expected = {
        file: {
            f"{family}{number}"
            for family, last in families.items()
            for number in range(0 if family in zero else 1, last + 1)
        }
        for file, families in FAMILIES.items()
    }
    expected["unified-execution-kernel"] |= {"T1b", "T1c"}
    expected["runtime"] |= {"H8a"}
    return expected


@pytest.fixture(scope="module")
def rule_files(repository: pathlib.Path) -> dict[str, str]:
    """Text of every file that may define rules, by its stem."""
    paths = [*sorted((repository / "kernel/specs").glob("*.md")), repository / "docs/runtime.md"]
    return {path.stem: path.read_text(encoding="utf-8") for path in paths}


def test_every_rule_id_stands_in_exactly_one_file_and_once(rule_files: dict[str, str]) -> None:
    places = defaultdict(list)
    for file, text in rule_files.items():
        for rule in DEFINITION.findall(text):
            places[rule].append(file)
    assert {rule: files for rule, files in places.items() if len(files) > 1} == {}


def test_no_rule_vanishes_and_each_stands_in_the_file_of_its_capability(
    rule_files: dict[str, str],
) -> None:
    """A new rule raises its family's number above; a withdrawn one keeps its line and says so."""
    found = {file: set(DEFINITION.findall(text)) for file, text in rule_files.items()}
    assert {file: rules for file, rules in found.items() if rules} == _expected()


def test_every_rule_that_a_rule_names_exists(rule_files: dict[str, str]) -> None:
    known = set().union(*_expected().values())
    families = {rule[0] for rule in known}
    unknown = [
        f"{file}: {name}"
        for file, text in rule_files.items()
        for name in MENTION.findall(text)
        if name[0] in families and name not in known
    ]
    assert unknown == []


def test_every_rule_that_is_followed_is_named_by_a_test(texts: dict[str, str]) -> None:
    named: set[str] = set()
    for file, text in texts.items():
        if not file.startswith("tests/") or not file.endswith(".py") or "/tidy/" in file:
            continue
        named.update(MENTION.findall(text))
        for family, low, high in re.findall(r"\b([A-Z])(\d+)-\1(\d+)\b", text):
            named.update(f"{family}{number}" for number in range(int(low), int(high) + 1))
    assert PROVED - named == set()


def test_every_section_of_the_reference_that_is_named_exists(texts: dict[str, str]) -> None:
    known = set(re.findall(r"^### ([A-G]\.\d+) ", texts["docs/arkflow-reference.md"], re.MULTILINE))
    named = re.compile(r"(?:[Rr]eference |section |\()([A-G]\.\d{1,2})(?![\w.])")
    unknown = [
        f"{file}: {name}"
        for file, text in texts.items()
        if file.endswith((".py", ".md"))
        for name in named.findall(text)
        if name not in known
    ]
    assert unknown == []
