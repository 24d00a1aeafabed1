"""Rules of a job's edges and of the graph that they make (C.6 rules 8-10 and 13, G1, G2, G4).

Each rule yields every mistake it finds, at job-relative paths; none relies on another having
passed.
"""

import re
from collections.abc import Iterator
from typing import Final

from arkflow_kernel.errors import Issue
from arkflow_kernel.fusion import fusable, fuse
from arkflow_kernel.job import EdgeSpec
from arkflow_kernel.topology import Topology, is_keyed

_CHANNEL: Final = re.compile(r"(.*)\[\d+-\d+\]", re.DOTALL)
"""The name of a channel, and in it that of its edge."""


def edge_issues(topology: Topology) -> Iterator[Issue]:
    """Every mistake of the edges."""
    for i, edge in enumerate(topology.job.edges):
        yield from _ends(topology, edge, f"edges[{i}]")
        yield from _types(topology, edge, f"edges[{i}]")
    yield from _released(topology)
    yield from _repeats(topology)
    yield from _late_routes(topology)
    yield from _cycles(topology)
    yield from _reachability(topology)
    yield from _error_targets(topology)
    yield from _output_names(topology)


def _ends(topology: Topology, edge: EdgeSpec, path: str) -> Iterator[Issue]:
    if not edge.id:
        yield Issue(f"{path}.id", "edge id must not be empty; give the edge a name of its own")
    known = topology.operators
    for key, name in (("from", edge.from_), ("to", edge.to)):
        if name not in known:
            text = f"edge '{edge.id}' names operator '{name}', which the job does not have"
            yield Issue(f"{path}.{key}", f"{text}; operators: {', '.join(known) or 'none'}")
    if edge.from_ == edge.to:
        text = f"edge '{edge.id}' leads from '{edge.from_}' back to itself; remove it"
        yield Issue(f"{path}.to", text)
    if edge.from_ in known and known[edge.from_].kind == "sink":
        text = f"edge '{edge.id}' leaves sink '{edge.from_}'; a sink is where rows end"
        yield Issue(f"{path}.from", f"{text}: start the edge at the operator in front of it")
    if edge.to in known and known[edge.to].kind == "source":
        text = f"edge '{edge.id}' leads into source '{edge.to}'; a source takes no rows"
        yield Issue(f"{path}.to", f"{text}: end the edge at another operator")


def _types(topology: Topology, edge: EdgeSpec, path: str) -> Iterator[Issue]:
    """The type of an edge against `partitioned`, keys, and both ends' subtasks (G2, G4)."""
    if edge.partitioned and edge.type is not None:
        text = f"edge '{edge.id}' is `partitioned` and has `type: {edge.type}`; keep one of them"
        yield Issue(f"{path}.type", text)
        return
    if edge.from_ not in topology.operators or edge.to not in topology.operators:
        return
    above, below = topology.parallelism(edge.from_), topology.parallelism(edge.to)
    target = topology.operators[edge.to]
    if below <= 1:
        return
    keyed = f"operator '{edge.to}' keeps state per key and has parallelism {below}"
    if edge.type == "error" and is_keyed(target):
        text = f"{keyed}, and error edge '{edge.id}' cannot be partitioned by key"
        advice = f"lead it to another operator, or set the parallelism of '{edge.to}' to 1"
        yield Issue(f"{path}.to", f"{text}; {advice}")
    elif is_keyed(target) and not edge.partitioned:
        advice = f"set `partitioned: true` on edge '{edge.id}', so that each key has one owner"
        yield Issue(f"{path}.partitioned", f"{keyed}; {advice}")
    elif edge.partitioned and not topology.key_fields(edge):
        text = f"operator '{edge.to}' has no key: every row of edge '{edge.id}' goes to its"
        advice = "set its `key_field`, or its parallelism to 1"
        yield Issue(f"{path}.partitioned", f"{text} subtask 0; {advice}", warning=True)
    elif not edge.partitioned and edge.type in (None, "forward", "error") and above != below:
        yield Issue(f"{path}.type", _mismatch(edge, above, below))


def _mismatch(edge: EdgeSpec, above: int, below: int) -> str:
    text = (
        f"edge '{edge.id}' joins operators of different parallelism ({edge.from_}: {above}, "
        f"{edge.to}: {below})"
    )
    if edge.type == "error":
        return f"{text}; {_one_or(edge.to, above)}"
    return (
        f"{text}, and ArkFlow would copy every row to every subtask; say what you want: "
        "`partitioned: true` (by key), `type: rebalance` (in turn) or `type: broadcast` (copies)"
    )


def _one_or(operator: str, subtasks: int) -> str:
    also = f" or {subtasks}" if subtasks != 1 else ""
    return f"give '{operator}' parallelism 1{also}"


def _released(topology: Topology) -> Iterator[Issue]:
    """Rows that a window releases together stay together only inside of its chain (B.4)."""
    for i, edge in enumerate(topology.job.edges):
        window, target = topology.operators.get(edge.from_), topology.operators.get(edge.to)
        if window is None or target is None or edge not in topology.main:
            continue
        releases = window.kind == "window" and window.config.get("legacy_payload") is True
        if releases and target.kind != "sink" and not fusable(topology, edge):
            text = f"edge '{edge.id}' leads into another chain: the rows that window"
            advice = (
                "releases together reach it in pieces. Let it be the window's one edge, forward, "
                "to an operator with as many subtasks"
            )
            yield Issue(f"edges[{i}]", f"{text} '{window.id}' {advice}", warning=True)


def _repeats(topology: Topology) -> Iterator[Issue]:
    ids: dict[str, int] = {}
    pairs: dict[tuple[str, str], str] = {}
    for i, edge in enumerate(topology.job.edges):
        if edge.id in ids and edge.id:
            text = f"duplicate edge id '{edge.id}', also of edges[{ids[edge.id]}]; rename one"
            yield Issue(f"edges[{i}].id", text)
        ids.setdefault(edge.id, i)
        pair = (edge.from_, edge.to)
        if pair in pairs:
            text = f"a second edge from '{edge.from_}' to '{edge.to}', after '{pairs[pair]}'"
            yield Issue(f"edges[{i}]", f"{text}; remove one of them")
        pairs.setdefault(pair, edge.id)


def _late_routes(topology: Topology) -> Iterator[Issue]:
    pairs = {(edge.from_, edge.to) for edge in topology.edges}
    for i, spec in enumerate(topology.job.sources):
        route, path = spec.time.late_event_route, f"sources[{i}].time.late_event_route"
        if route is None:
            if spec.time.late_event_policy == "route":
                text = "`late_event_policy: route` needs `late_event_route`, an operator that"
                yield Issue(path, f"{text} takes the late rows; name one, or choose `drop`")
        elif route == spec.operator_id:
            yield Issue(path, f"late_event_route of source '{route}' is the source itself")
        elif route not in topology.operators:
            text = f"late_event_route names operator '{route}', which the job does not have"
            yield Issue(path, text)
        elif topology.operators[route].kind == "source":
            text = f"late_event_route names '{route}', a source; name a sink or a processor"
            yield Issue(path, text)
        else:
            for start, end in topology.late:
                if end == route and (start, end) in pairs:
                    text = f"late_event_route '{route}' is also the target of an edge from"
                    yield Issue(path, f"{text} '{start}'; remove the edge or route elsewhere")
                above, below = topology.parallelism(start), topology.parallelism(end)
                if end == route and below not in (1, above):
                    text = f"late rows of '{start}' (parallelism {above}) cannot be led to '{end}'"
                    yield Issue(path, f"{text} ({below}); {_one_or(end, above)}")


def _cycles(topology: Topology) -> Iterator[Issue]:
    """Rule 10, late links and error edges included. Names the operators that are in cycles."""
    waiting = dict.fromkeys(topology.operators, 0)
    targets: dict[str, list[str]] = {name: [] for name in topology.operators}
    for start, end in topology.links:
        if start != end:
            waiting[end] += 1
            targets[start].append(end)
    ready = [name for name, count in waiting.items() if count == 0]
    while ready:
        for target in targets[ready.pop()]:
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
    left = [name for name, count in waiting.items() if count > 0]
    circle = [n for n in left if n in topology.reach(targets[n], topology.links)]
    if circle:
        text = f"operator graph must be acyclic; in a circle: {', '.join(circle)}"
        yield Issue("edges", f"{text}. Remove one of the edges between them")


def _reachability(topology: Topology) -> Iterator[Issue]:
    """Rule 13, and operators between that rows never enter or never leave."""
    job, operators = topology.job, topology.operators
    kinds = {name: spec.kind for name, spec in operators.items()}
    forward = topology.reach([n for n, k in kinds.items() if k == "source"], topology.links)
    backward = topology.reach(
        [n for n, k in kinds.items() if k == "sink"], [(b, a) for a, b in topology.links]
    )
    for i, operator in enumerate(job.operators):
        name, path = operator.id, f"operators[{i}]"
        if operator.kind == "source" and name not in backward:
            text = f"source '{name}' does not reach a sink; add the edges that lead to one"
            yield Issue(path, text)
        elif operator.kind == "sink" and name not in forward:
            text = f"sink '{name}' is not reached from any source; add an edge into it"
            yield Issue(path, text)
        elif name not in forward:
            text = f"operator '{name}' gets no rows: no source reaches it; connect or remove it"
            yield Issue(path, text)
        elif operator.kind not in ("source", "sink") and not topology.outputs[name]:
            text = f"no edge leaves operator '{name}', so its rows are discarded"
            advice = "add an edge to a sink, or remove it if that was not the intention"
            yield Issue(path, f"{text}; {advice}", warning=True)


def _error_targets(topology: Topology) -> Iterator[Issue]:
    """A chain fails as a whole (S2), so all of its error edges lead to one place."""
    index = {operator.id: i for i, operator in reversed(list(enumerate(topology.job.operators)))}
    for chain in fuse(topology):
        targets: dict[str, str] = {}
        for name in chain.line:
            for edge in topology.error_edges.get(name, []):
                targets.setdefault(edge.to, name)
        path = f"operators[{index[chain.head]}]"
        if len(targets) > 1:
            text = f"operators of one chain ({', '.join(chain.line)}) have error edges to"
            advice = "lead them to one operator, or set `chain: false` on one of the operators"
            yield Issue(path, f"{text} {', '.join(targets)}; {advice}")
        bare = [
            name
            for name in chain.line
            if name not in topology.error_edges and topology.operators[name].kind != "sink"
        ]
        if len(targets) == 1 and bare:
            text = f"what fails in {', '.join(bare)} goes to '{next(iter(targets))}' too, though"
            advice = "no error edge says so: a chain fails as a whole. Add the edges"
            yield Issue(path, f"{text} {advice}", warning=True)


def _output_names(topology: Topology) -> Iterator[Issue]:
    """Sinks in a chain, edges out of it and their channels share one space of names."""
    index = {edge.id: i for i, edge in reversed(list(enumerate(topology.job.edges)))}
    for chain in fuse(topology):
        inside = set(chain.operators)
        sinks = [name for name in chain.operators if topology.operators[name].kind == "sink"]
        edges = [e.id for e in topology.edges if e.from_ in inside and e.to not in inside]
        for edge in edges:
            taken = [name for name in sinks if name == edge]
            taken += [name for name in (*sinks, *edges) if _edge_of_channel(name) == edge]
            for name in taken:
                text = f"edge '{edge}' or a channel of it is called '{name}', as is another output"
                advice = f"of the chain of '{chain.head}'; rename the edge"
                yield Issue(f"edges[{index[edge]}].id", f"{text} {advice}")


def _edge_of_channel(name: str) -> str | None:
    found = _CHANNEL.fullmatch(name)
    return None if found is None else found[1]


__all__ = ["edge_issues"]
