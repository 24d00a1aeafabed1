"""Explanations as diagrams: Mermaid for documents, DOT for Graphviz (C7).

Both show each job as a frame, in it each chain as a frame, in it the operators with their subtasks
and key groups. Edges carry their kind and key: plain inside a chain, thick between chains, dashed
for what failed or came late. Ids may hold any character, so nodes are numbered and names stand in
labels only, escaped.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Final

from arkflow_kernel.explain import ExplainedEdge, ExplainedOperator, Explanation
from arkflow_kernel.explain_join import join_text
from arkflow_kernel.explain_time import shape_text
from arkflow_kernel.plan import EdgeKind

RANGES_SHOWN_MAX: Final = 4
"""More subtasks than this show the key groups of the first and the last only."""

_SIDE: Final = frozenset({EdgeKind.ERROR.value, EdgeKind.LATE.value})
_MERMAID_PLAIN: Final = re.compile(r"[^\w .,:+/()=-]")
_DOT_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "&": "&amp;"})
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def mermaid(explanations: Sequence[Explanation]) -> str:
    """All jobs as one Mermaid flowchart."""
    lines = ["flowchart LR"]
    for frame in _frames(explanations):
        lines.append(f'  subgraph {frame.name}["{_in_mermaid(frame.label)}"]')
        for number, (chain, operators) in enumerate(frame.chains.items()):
            label = _in_mermaid([f"chain {chain}"])
            lines.append(f'    subgraph {frame.name}c{number}["{label}"]')
            for operator in operators:
                text = _in_mermaid(_label(operator))
                lines.append(f'      {frame.nodes[operator.id]}["{text}"]')
            lines.append("    end")
        for edge in frame.explanation.edges:
            arrow = _of_edge(edge, inside="-->", between="==>", side="-.->")
            start, end = frame.nodes[edge.source], frame.nodes[edge.target]
            lines.append(f'    {start} {arrow}|"{_in_mermaid(_edge_label(edge))}"| {end}')
        lines.append("  end")
    return "\n".join(lines) + "\n"


def dot(explanations: Sequence[Explanation]) -> str:
    """All jobs as one directed graph for `dot`."""
    lines = ["digraph jobs {", "  rankdir=LR;", "  node [shape=box];"]
    for frame in _frames(explanations):
        lines.append(f"  subgraph cluster_{frame.name} {{")
        lines.append(f"    label={_in_dot(frame.label)};")
        for number, (chain, operators) in enumerate(frame.chains.items()):
            lines.append(f"    subgraph cluster_{frame.name}c{number} {{")
            lines.append(f"      label={_in_dot([f'chain {chain}'])};")
            for operator in operators:
                label = _in_dot(_label(operator))
                lines.append(f"      {frame.nodes[operator.id]} [label={label}];")
            lines.append("    }")
        lines.append("  }")
        for edge in frame.explanation.edges:
            style = _of_edge(edge, inside="solid", between="bold", side="dashed")
            start, end = frame.nodes[edge.source], frame.nodes[edge.target]
            label = _in_dot(_edge_label(edge))
            lines.append(f"  {start} -> {end} [label={label}, style={style}];")
    lines.append("}")
    return "\n".join(lines) + "\n"


class _Frame:
    """One job of a diagram: its operators by chain, and a short name for each."""

    def __init__(self, number: int, explanation: Explanation) -> None:
        self.name = f"j{number}"
        self.label = _of_job(explanation)
        self.explanation = explanation
        self.chains: dict[str, list[ExplainedOperator]] = {}
        self.nodes: dict[str, str] = {}
        for index, operator in enumerate(explanation.operators):
            self.chains.setdefault(operator.chain, []).append(operator)
            self.nodes[operator.id] = f"{self.name}n{index}"


def _frames(explanations: Sequence[Explanation]) -> Iterator[_Frame]:
    for number, explanation in enumerate(explanations):
        yield _Frame(number, explanation)


def _of_job(explanation: Explanation) -> list[str]:
    """The lines of a job's frame: its mode, and in checkpoint mode how often and where."""
    lines = [f"job {explanation.job}, {explanation.mode} mode"]
    if explanation.checkpoint is not None:
        root = explanation.checkpoint.root or "a folder of the run"
        lines.append(f"checkpoints every {explanation.checkpoint.interval_ms:,} ms to {root}")
    return lines


def _label(operator: ExplainedOperator) -> list[str]:
    """The lines of a node."""
    what = operator.kind
    if operator.component != what:
        what += f" {operator.component}"
    last = operator.parallelism - 1
    tasks = f"{operator.id}-0" if last == 0 else f"{last + 1} subtasks: 0 to {last}"
    lines = [operator.id, what, tasks]
    if operator.time is not None:
        lines.append(f"event time {operator.time.timestamp_field}")
    if operator.window is not None:
        lines.append(shape_text(asdict(operator.window)))
        if operator.window.late_policy is not None:
            lines.append(f"late rows: {operator.window.late_policy}")
    if operator.join is not None:
        lines.append(join_text(asdict(operator.join)))
        lines.append(f"late rows: {operator.join.late_policy}")
    if operator.exactly_once:
        lines.append("exactly once")
    if operator.key_groups is not None:
        ranges = [f"{first}-{end}" for first, end in operator.key_groups]
        if len(ranges) > RANGES_SHOWN_MAX:
            ranges = [ranges[0], "…", ranges[-1]]
        lines.append(f"key groups {', '.join(ranges)}")
    return lines


def _edge_label(edge: ExplainedEdge) -> list[str]:
    lines = [edge.kind]
    if edge.key_fields:
        lines[0] += f" by {', '.join(edge.key_fields)}"
    if edge.channels and edge.outlet == edge.id:
        lines.append(f"{edge.channels} channel{'' if edge.channels == 1 else 's'}")
    return lines


def _of_edge(edge: ExplainedEdge, *, inside: str, between: str, side: str) -> str:
    if edge.kind in _SIDE:
        return side
    return between if edge.crosses else inside


def _in_mermaid(lines: list[str]) -> str:
    """Text for a quoted label: whatever could be syntax as an entity, lines kept apart."""
    return "<br/>".join(_MERMAID_PLAIN.sub(_entity, _one_line(line)) for line in lines)


def _entity(found: re.Match[str]) -> str:
    return f"#{ord(found[0])};"


def _in_dot(lines: list[str]) -> str:
    """A quoted string: quotes, backslashes and entities would mean something in it."""
    return '"' + "\\n".join(_one_line(line).translate(_DOT_ESCAPES) for line in lines) + '"'


def _one_line(text: str) -> str:
    """A label has no line breaks of its own and no control characters: spaces in their place."""
    return _CONTROL.sub(" ", text)


__all__ = ["RANGES_SHOWN_MAX", "dot", "mermaid"]
