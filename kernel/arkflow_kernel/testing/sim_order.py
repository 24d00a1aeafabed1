"""Where in a job the rows of one key and one split arrive in the order in which they were read.

Found from the plan alone. Two facts are kept for each chain and each source before it: `ordered`,
rows of a split with the same key come to each of its subtasks in order; `single`, all of them come
to the same subtask. An edge keeps the order if it is the only way from the source to the chain and
either comes from that one subtask or leads from subtask i to subtask i.
"""

from dataclasses import dataclass

from arkflow_kernel.ids import ChainId, EdgeId, OutputId
from arkflow_kernel.plan import ChainPlan, EdgeKind, ExecutionGraph


@dataclass(frozen=True)
class Path:
    """What is known of a source's rows at a chain."""

    ordered: bool
    single: bool


Head = str
"""A chain without the number of its subtask."""


def head_of(chain: ChainId) -> Head:
    """The name that all subtasks of a chain share."""
    return chain.rpartition("-")[0]


def paths(graph: ExecutionGraph) -> dict[Head, dict[Head, Path]]:
    """By chain and by the chain of the source. Chains stand in the order of the rows."""
    first = {head_of(plan.chain): plan for plan in reversed(graph.chains)}
    kinds = {o.output: o.kind for plan in graph.chains for o in plan.outlets}
    found: dict[Head, dict[Head, Path]] = {}
    for plan in graph.chains:
        head = head_of(plan.chain)
        if head in found:
            continue
        if plan.source is not None:
            found[head] = {head: Path(ordered=True, single=True)}
            continue
        edges = {channel.edge: head_of(channel.source) for channel in plan.inputs}
        ways: dict[Head, list[Path]] = {}
        for edge, above in edges.items():
            kind = kinds[_output(edge)]
            for source, path in found[above].items():
                ways.setdefault(source, []).append(_over(path, kind, first[above], plan))
        found[head] = {
            source: many[0] if len(many) == 1 else Path(ordered=False, single=False)
            for source, many in ways.items()
        }
    return found


def _output(edge: EdgeId) -> OutputId:
    return OutputId(edge)


def _over(path: Path, kind: EdgeKind, above: ChainPlan, below: ChainPlan) -> Path:
    if kind is EdgeKind.ERROR:
        return Path(ordered=False, single=False)
    one_to_one = kind is EdgeKind.FORWARD and above.parallelism == below.parallelism
    if one_to_one:
        return path
    if not path.single:
        return Path(ordered=False, single=False)
    gathered = kind in (EdgeKind.FORWARD, EdgeKind.PARTITIONED) or below.parallelism == 1
    return Path(path.ordered, gathered)


__all__ = ["Path", "head_of", "paths"]
