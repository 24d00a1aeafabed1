"""Diagrams of jobs (C7), read back by small parsers of the two languages' syntax."""

import html
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given

from arkflow_kernel.explain import Explanation, explain
from arkflow_kernel.explain_diagram import dot, mermaid
from arkflow_kernel.graph import build_graph
from arkflow_kernel.job import JobSpec
from arkflow_kernel.testing.job_changes import add_edge, add_sink, all_of, set_at
from arkflow_kernel.testing.random_jobs import valid_jobs

Jobs = Callable[..., JobSpec]


@dataclass
class Diagram:
    """What a diagram says: labels of frames and nodes as lists of lines, edges with style."""

    frames: dict[str, list[str]] = field(default_factory=dict)
    nodes: dict[str, list[str]] = field(default_factory=dict)
    inside: dict[str, tuple[str, ...]] = field(default_factory=dict)
    edges: list[tuple[str, str, str, list[str]]] = field(default_factory=list)


MERMAID_LABEL = r'"((?:[\w .,:+/()=-]|#\d+;|<br/>)*)"'
MERMAID = {
    "frame": re.compile(rf" *subgraph (\w+)\[{MERMAID_LABEL}\]"),
    "end": re.compile(r" *end"),
    "node": re.compile(rf" *(\w+)\[{MERMAID_LABEL}\]"),
    "edge": re.compile(rf" *(\w+) (-->|==>|-\.->)\|{MERMAID_LABEL}\| (\w+)"),
}
DOT_LABEL = r'("(?:[^"\\\n&]|\\[n"\\]|&amp;)*")'
DOT = {
    "frame": re.compile(r" *subgraph cluster_(\w+) \{"),
    "label": re.compile(rf" *label={DOT_LABEL};"),
    "end": re.compile(r" *\}"),
    "edge": re.compile(rf" *(\w+) -> (\w+) \[label={DOT_LABEL}, style=(\w+)\];"),
    "node": re.compile(rf" *(\w+) \[label={DOT_LABEL}\];"),
}
STYLES = {"-->": "solid", "==>": "bold", "-.->": "dashed"}


def _lines(text: str, syntax: dict[str, re.Pattern[str]]) -> list[tuple[str, re.Match[str]]]:
    """The statement of each line; a line that is none fails the test."""
    found = []
    for line in text.splitlines():
        matches = [(kind, match) for kind, p in syntax.items() if (match := p.fullmatch(line))]
        assert matches, line
        found.append(matches[0])
    return found


def _read_mermaid(text: str) -> Diagram:
    assert text.startswith("flowchart LR\n")
    diagram, stack = Diagram(), list[str]()

    def label(escaped: str) -> list[str]:
        return [html.unescape(part.replace("#", "&#")) for part in escaped.split("<br/>")]

    for kind, match in _lines(text.removeprefix("flowchart LR\n"), MERMAID):
        if kind == "frame":
            stack.append(match[1])
            diagram.frames[match[1]] = label(match[2])
        elif kind == "end":
            stack.pop()
        elif kind == "node":
            diagram.nodes[match[1]] = label(match[2])
            diagram.inside[match[1]] = tuple(stack)
        else:
            diagram.edges.append((match[1], match[4], STYLES[match[2]], label(match[3])))
    assert stack == []
    return diagram


def _read_dot(text: str) -> Diagram:
    head = "digraph jobs {\n  rankdir=LR;\n  node [shape=box];\n"
    assert text.startswith(head)
    assert text.endswith("\n}\n")
    diagram, stack = Diagram(), list[str]()

    def label(quoted: str) -> list[str]:
        parts = re.split(r"(?<!\\)((?:\\\\)*)\\n", quoted[1:-1])
        joined = [a + b for a, b in zip(parts[::2], [*parts[1::2], ""], strict=True)]
        return [html.unescape(re.sub(r"\\(.)", r"\1", part)) for part in joined]

    for kind, match in _lines(text.removeprefix(head).removesuffix("}\n"), DOT):
        if kind == "frame":
            stack.append(match[1])
        elif kind == "label":
            diagram.frames[stack[-1]] = label(match[1])
        elif kind == "end":
            stack.pop()
        elif kind == "node":
            diagram.nodes[match[1]] = label(match[2])
            diagram.inside[match[1]] = tuple(stack)
        else:
            diagram.edges.append((match[1], match[2], match[4], label(match[3])))
    assert stack == []
    return diagram


def _both(*jobs: JobSpec) -> list[Diagram]:
    told = [explain(job, build_graph(job)) for job in jobs]
    return [_read_mermaid(mermaid(told)), _read_dot(dot(told))]


def _keyed() -> Callable[[dict[str, Any]], Any]:
    """Two subtasks by key, with an error sink of its own beside the source's chain."""
    return all_of(
        set_at("operators", 1, "parallelism", to=2),
        set_at("operators", 1, "key_field", to="gate"),
        set_at("edges", 0, "partitioned", to=True),
        add_sink("bad"),
        add_edge("gates", "bad", type="error"),
    )


def test_a_diagram_shows_chains_subtasks_key_groups_and_edges(job: Jobs) -> None:
    for diagram in _both(job(_keyed())):
        assert list(diagram.frames.values()) == [
            ["job turnstiles, ack mode"],
            ["chain gates"],
            ["chain text"],
            ["chain totals"],
        ]
        assert diagram.nodes == {
            "j0n0": ["gates", "source memory", "gates-0"],
            "j0n1": ["text", "map arrow_to_json", "2 subtasks: 0 to 1", "key groups 0-63, 64-127"],
            "j0n2": ["totals", "sink stdout", "totals-0"],
            "j0n3": ["bad", "sink drop", "bad-0"],
        }
        assert diagram.inside["j0n0"] == diagram.inside["j0n3"] == ("j0", "j0c0")
        assert diagram.edges == [
            ("j0n0", "j0n1", "bold", ["partitioned by gate", "2 channels"]),
            ("j0n1", "j0n2", "bold", ["forward", "2 channels"]),
            ("j0n0", "j0n3", "dashed", ["error"]),
        ]


def test_each_job_of_a_file_has_a_frame_of_its_own(job: Jobs) -> None:
    for diagram in _both(job(), job(set_at("id", to="more"))):
        assert diagram.frames["j0"] == ["job turnstiles, ack mode"]
        assert diagram.frames["j1"] == ["job more, ack mode"]
        assert diagram.inside["j1n0"] == ("j1", "j1c0")


def test_many_subtasks_show_the_first_and_the_last_key_groups(job: Jobs) -> None:
    wide = job(all_of(_keyed(), set_at("operators", 1, "parallelism", to=64)))
    for diagram in _both(wide):
        assert diagram.nodes["j0n1"][2:] == ["64 subtasks: 0 to 63", "key groups 0-1, …, 126-127"]


@pytest.mark.parametrize(
    "name",
    [
        '"]; a --> b',
        "\\",
        'x\\"',
        "#34;",
        "&lt;",
        "\\N",
        "`md`",
        "a<br/>b",
        "end",
        "|x|",
        "%% no",
        "é 日本",
    ],
)
def test_an_id_may_hold_whatever_is_syntax_elsewhere(job: Jobs, name: str) -> None:
    def change(entry: dict[str, Any]) -> None:
        entry["operators"][0]["id"] = entry["edges"][0]["from"] = name
        entry["sources"][0]["operator_id"] = name

    for diagram in _both(job(change)):
        assert diagram.nodes["j0n0"] == [name, "source memory", f"{name}-0"]
        assert diagram.frames["j0c0"] == [f"chain {name}"]


def test_a_frame_shows_checkpoints_and_a_sink_that_it_is_exactly_once(job: Jobs) -> None:
    spec = job(set_at("checkpoint", to={"object_store_uri": "s3://key:x@b/c", "interval_ms": 9}))
    told = [explain(spec, build_graph(spec, lambda _: True))]
    for diagram in (_read_mermaid(mermaid(told)), _read_dot(dot(told))):
        assert diagram.frames["j0"] == [
            "job turnstiles, checkpoint mode",
            "checkpoints every 9 ms to s3://b/c",
        ]
        assert diagram.nodes["j0n2"] == ["totals", "sink stdout", "totals-0", "exactly once"]


def test_line_breaks_in_an_id_become_spaces(job: Jobs) -> None:
    def change(entry: dict[str, Any]) -> None:
        entry["operators"][0]["id"] = entry["edges"][0]["from"] = "a\nb\u2028c\x00"
        entry["sources"][0]["operator_id"] = "a\nb\u2028c\x00"

    for diagram in _both(job(change)):
        assert diagram.nodes["j0n0"][0] == "a b c "


@given(valid_jobs(odd_names=True))
def test_any_job_is_drawn_with_every_operator_in_its_chain_and_every_edge(job: JobSpec) -> None:
    told = explain(job, build_graph(job))
    for diagram in _both(job):
        assert len(diagram.nodes) == len(told.operators)
        assert len(diagram.edges) == len(told.edges)
        assert len(diagram.frames) == 1 + len({o.chain for o in told.operators})
        assert _grouped(diagram) == _chains(told)


def _grouped(diagram: Diagram) -> set[tuple[int, ...]]:
    """Which nodes share a frame, by their numbers."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for name, frames in diagram.inside.items():
        groups.setdefault(frames, []).append(int(name.removeprefix("j0n")))
    return {tuple(sorted(group)) for group in groups.values()}


def _chains(told: Explanation) -> set[tuple[int, ...]]:
    groups: dict[str, list[int]] = {}
    for i, operator in enumerate(told.operators):
        groups.setdefault(operator.chain, []).append(i)
    return {tuple(group) for group in groups.values()}
