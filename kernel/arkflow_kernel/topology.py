"""A job's operators and links as a graph that can be asked questions.

It never raises on a wrong job: links to operators that do not exist are left out, a repeated id
means its first operator, cycles are walked once. So validation can use it before it has passed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from arkflow_kernel.buffer_compiler import ALL_ROWS_KEY
from arkflow_kernel.job import EdgeSpec, JobSpec, OperatorSpec, ResourcesSpec, SourceSpec
from arkflow_kernel.keyed_config import keyed_model

Link = tuple[str, str]


@dataclass(frozen=True)
class Topology:
    """The graph of one job. Main links carry rows; side links carry failed and late ones."""

    job: JobSpec

    @cached_property
    def operators(self) -> dict[str, OperatorSpec]:
        """Operators by id, in the order of the job."""
        found: dict[str, OperatorSpec] = {}
        for operator in self.job.operators:
            found.setdefault(operator.id, operator)
        return found

    @cached_property
    def edges(self) -> list[EdgeSpec]:
        """Edges whose both ends exist."""
        known = self.operators
        return [edge for edge in self.job.edges if edge.from_ in known and edge.to in known]

    @cached_property
    def main(self) -> list[EdgeSpec]:
        """Edges that carry rows."""
        return [edge for edge in self.edges if edge.type != "error"]

    @cached_property
    def errors(self) -> list[EdgeSpec]:
        """Edges that carry what failed."""
        return [edge for edge in self.edges if edge.type == "error"]

    @cached_property
    def error_edges(self) -> dict[str, list[EdgeSpec]]:
        """Error edges by the operator whose failures they carry; only operators that have some."""
        found: dict[str, list[EdgeSpec]] = {}
        for edge in self.errors:
            found.setdefault(edge.from_, []).append(edge)
        return found

    @cached_property
    def inputs(self) -> dict[str, list[EdgeSpec]]:
        """Main edges by the operator that they feed."""
        found: dict[str, list[EdgeSpec]] = {name: [] for name in self.operators}
        for edge in self.main:
            found[edge.to].append(edge)
        return found

    @cached_property
    def outputs(self) -> dict[str, list[EdgeSpec]]:
        """Main edges by the operator that they leave."""
        found: dict[str, list[EdgeSpec]] = {name: [] for name in self.operators}
        for edge in self.main:
            found[edge.from_].append(edge)
        return found

    @cached_property
    def sources(self) -> dict[str, SourceSpec]:
        """Source specs by their operator."""
        found: dict[str, SourceSpec] = {}
        for spec in self.job.sources:
            if spec.operator_id in self.operators:
                found.setdefault(spec.operator_id, spec)
        return found

    @cached_property
    def late(self) -> list[Link]:
        """Late links: from each source and each operator that judges its rows, to the route."""
        links: dict[Link, None] = {}
        for name, spec in self.sources.items():
            route = spec.time.late_event_route
            if route not in self.operators or spec.time.late_event_route is None:
                continue
            for judge in (name, *self.judges(name)):
                if judge != route:
                    links.setdefault((judge, route))
        return list(links)

    @cached_property
    def taking_aside(self) -> set[str]:
        """Operators that a side link leads to."""
        return {edge.to for edge in self.errors} | {end for _, end in self.late}

    @cached_property
    def links(self) -> list[Link]:
        """All links, side links included, as pairs of operators."""
        return [*((edge.from_, edge.to) for edge in self.edges), *self.late]

    def judges(self, source: str) -> list[str]:
        """Windows on event time and joins that rows of a source reach first (W6, J3).

        They judge lateness. In a window on processing time nothing is late, and the search ends.
        """
        found, seen, queue = [], {source}, [source]
        while queue:
            for edge in self.outputs[queue.pop(0)]:
                if edge.to in seen:
                    continue
                seen.add(edge.to)
                operator = self.operators[edge.to]
                if operator.kind == "join" or on_event_time(operator):
                    found.append(edge.to)
                elif operator.kind != "window":
                    queue.append(edge.to)
        return found

    def judged_by(self, operator: str) -> list[str]:
        """Sources whose rows a window or join judges first."""
        return [name for name in self.sources if operator in self.judges(name)]

    def reach(self, starts: Iterable[str], links: Iterable[Link]) -> set[str]:
        """All operators that can be reached from the starts, which are included."""
        targets: dict[str, list[str]] = {}
        for start, end in links:
            targets.setdefault(start, []).append(end)
        seen = set(starts)
        queue = list(seen)
        while queue:
            for target in targets.get(queue.pop(), []):
                if target not in seen:
                    seen.add(target)
                    queue.append(target)
        return seen

    def parallelism(self, operator: str) -> int:
        """Number of subtasks: the operator's own value, else the job's."""
        own = self.operators[operator].parallelism
        return self.job.parallelism if own is None else own

    def resources(self, operator: str) -> ResourcesSpec | None:
        """What each task of an operator asks for: its own value, else the job's; None: nothing."""
        own = self.operators[operator].resources
        asked = self.job.resources if own is None else own
        return None if asked == ResourcesSpec() else asked

    def key_fields(self, edge: EdgeSpec) -> tuple[str, ...]:
        """Columns by which the rows of an edge are partitioned: the key of its target (G2)."""
        target = self.operators[edge.to]
        if target.kind == "join":
            config = target.config
            side = "left_key" if config.get("left_from") == edge.from_ else "right_key"
            return _texts(config.get(side))
        return self.keys(edge.to)

    def keys(self, operator: str) -> tuple[str, ...]:
        """Key columns of an operator that has one input, () if it has none."""
        spec = self.operators[operator]
        own = spec.kind == "window" or keyed_model(spec) is not None
        several = spec.config.get("key_fields") if own else None
        if several:
            return _texts(several)
        single = spec.config.get("key_field") if own else None
        return tuple(k for k in _texts(single or spec.key_field) if k != ALL_ROWS_KEY)


def is_keyed(operator: OperatorSpec) -> bool:
    """Whether the operator keeps state per key (G4)."""
    by_itself = operator.kind in ("window", "join") or keyed_model(operator) is not None
    return by_itself or operator.stateful


def on_event_time(operator: OperatorSpec) -> bool:
    """Whether the operator is a window that fires by watermark (D.8)."""
    return operator.kind == "window" and operator.config.get("trigger") in (None, "watermark")


def counts_keys(operator: OperatorSpec) -> bool:
    """Whether a processor is wrapped in the running row count of each key (C.2)."""
    return (
        operator.stateful
        and operator.kind in ("map", "filter", "udf", "aggregate")
        and not is_aggregate(operator)
    )


def is_aggregate(operator: OperatorSpec) -> bool:
    """A continuous aggregate; with `config.type` the kind is a label of a processor (C.2)."""
    return operator.kind == "aggregate" and "type" not in operator.config


def _texts(value: Any) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    return tuple(v for v in values if isinstance(v, str) and v)


__all__ = ["Link", "Topology", "counts_keys", "is_aggregate", "is_keyed", "on_event_time"]
