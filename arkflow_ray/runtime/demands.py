"""What a chain's actor asks of Ray, and what a cluster lacks for it (K7, P6). Pure.

A chain runs in one process, so what its operators ask for is asked for once: they ask for the same
(G1), and share it. Amounts stand under Ray's names, `memory` in bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from arkflow_kernel.chain_slots import Amounts, has_room
from arkflow_kernel.limits import MIB
from arkflow_kernel.placement_plan import PlacementPlan, Placing

CPU, GPU, MEMORY = "CPU", "GPU", "memory"

CPUS_LEAST: Final = 0.001
"""A bundle of a placement group that asks for nothing is refused."""

_OWN_LABELS: Final = "ray.io/"
"""Prefix of the labels that Ray gives every node."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node that is up: what it has, used or not, and its labels."""

    resources: Amounts
    labels: Mapping[str, str] = field(default_factory=dict)

    def labelled(self, wanted: Mapping[str, str]) -> bool:
        """Whether it has all of these labels."""
        return all(self.labels.get(key) == value for key, value in wanted.items())


def demand(resources: Amounts, default_cpus: float) -> dict[str, float]:
    """What a chain with these `resources` asks of Ray (K7).

    CPUs are `num_cpus`, else what `cpu_millicores` comes to, else the default.
    """
    rest = dict(resources)
    millicores = rest.pop("cpu_millicores", None)
    cpus = default_cpus if millicores is None else millicores / 1000
    found = {CPU: max(rest.pop("num_cpus", cpus), CPUS_LEAST)}
    for name, key in ((GPU, "num_gpus"), (MEMORY, "memory_bytes")):
        amount = rest.pop(key, 0.0)
        if amount:
            found[name] = amount
    return found | {name: amount for name, amount in rest.items() if amount}


def actor_options(asked: Amounts) -> dict[str, Any]:
    """The options of an actor that asks for this."""
    rest = dict(asked)
    options: dict[str, Any] = {"num_cpus": rest.pop(CPU)}
    if GPU in rest:
        options["num_gpus"] = rest.pop(GPU)
    if MEMORY in rest:
        options["memory"] = int(rest.pop(MEMORY))
    if rest:
        options["resources"] = rest
    return options


def lacking(
    slots: Sequence[Amounts], nodes: Sequence[Node], free: Amounts, wanted: PlacementPlan
) -> str | None:
    """What a cluster lacks for these slots, each of which goes to one node; None if nothing.

    `free` is what all nodes together have left.
    """
    fit = [node for node in nodes if node.labelled(wanted.labels)]
    if not fit:
        return _no_labels(nodes, wanted.labels)
    if wanted.placing is Placing.STRICT_SPREAD and len(slots) > len(fit):
        return (
            f"`strict_spread` asks for {len(slots)} nodes, one for each of as many parallel "
            f"subtasks, and {_that_many(len(fit), wanted.labels)}"
        )
    found = [text for name in _names(slots) if (text := _too_few(name, slots, fit, free))]
    if not found:
        found = [text for slot in slots if (text := _too_big(slot, fit))][:1]
    return "; ".join(found) or None


def _names(slots: Sequence[Amounts]) -> list[str]:
    return list(dict.fromkeys(name for slot in slots for name in slot))


def _too_few(name: str, slots: Sequence[Amounts], fit: Sequence[Node], free: Amounts) -> str | None:
    """A resource of which all nodes together have too little left."""
    asked = sum(slot.get(name, 0.0) for slot in slots)
    has = sum(node.resources.get(name, 0.0) for node in fit)
    left = min(has, free.get(name, 0.0))
    if asked <= left:
        return None
    needs = f"it needs {_amount(name, asked)}"
    if has == 0:
        return f"{needs}, and the cluster has none"
    return (
        f"{needs}, and of the {_amount(name, has)} of the cluster {_number(name, left)} "
        f"{'is' if left == 1 else 'are'} free"
    )


def _too_big(slot: Amounts, fit: Sequence[Node]) -> str | None:
    """What goes to one node, and no node has it."""
    if any(has_room(node.resources, slot) for node in fit):
        return None
    asked = " and ".join(_amount(name, amount) for name, amount in slot.items())
    most = [_amount(name, max(node.resources.get(name, 0.0) for node in fit)) for name in slot]
    return f"it needs {asked} on one node, and no node has more than {' and '.join(most)}"


def _no_labels(nodes: Sequence[Node], wanted: Mapping[str, str]) -> str:
    told = sorted({_labels(node.labels) for node in nodes} - {""})
    have = f"the nodes have {', or '.join(told)}" if told else "the nodes have no labels"
    return f"it needs a node with the labels {_labels(wanted)}, and {have}"


def _that_many(count: int, labels: Mapping[str, str]) -> str:
    such = f" with the labels {_labels(labels)}" if labels else ""
    return f"the cluster has {count}{such}"


def _labels(labels: Mapping[str, str]) -> str:
    own = {key: value for key, value in labels.items() if not key.startswith(_OWN_LABELS)}
    return ", ".join(f"{key}={value}" for key, value in sorted(own.items()))


def _amount(name: str, amount: float) -> str:
    return f"{_number(name, amount)} {'of memory' if name == MEMORY else name}"


def _number(name: str, amount: float) -> str:
    return f"{amount / MIB:,.0f} MiB" if name == MEMORY else f"{round(amount, 3):g}"


__all__ = ["CPU", "CPUS_LEAST", "GPU", "MEMORY", "Node", "actor_options", "demand", "lacking"]
