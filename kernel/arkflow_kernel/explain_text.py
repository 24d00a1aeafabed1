"""An explanation as text of at most 80 columns: what a person reads before they run a job."""

import textwrap
from typing import Any, Final

from arkflow_kernel.explain_join import join_texts
from arkflow_kernel.explain_keyed import keyed_texts
from arkflow_kernel.explain_time import time_text, window_texts
from arkflow_kernel.limits import MIB, SLICE_ROWS_MAX

WIDTH: Final = 80
_LABEL: Final = 13


def render(told: dict[str, Any]) -> str:
    """The text of an `Explanation` that was made a dict. Long names wrap, nothing is cut."""
    blocks = [
        [
            f"job {told['job']}, version {told['version']}",
            *_labelled("mode", f"{told['mode']}: {told['mode_reason']}"),
            *_labelled("state", told["state"]),
            *_labelled("checkpoints", told["checkpoints"]),
            *_labelled("restart", told["restart"]),
            *_labelled("placement", told["placement"]),
            *[line for text in told["lateness"] for line in _labelled("lateness", text)],
        ],
        ["operators", *_operators(told)],
        [f"chains (key groups: {told['max_parallelism']})", *_chains(told["chains"])],
        ["edges", *_edges(told["edges"])],
    ]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _labelled(label: str, text: str) -> list[str]:
    return _wrap(text, f"  {label:<{_LABEL}}", " " * (_LABEL + 2))


def _wrap(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _operators(told: dict[str, Any]) -> list[str]:
    lines, operators = [], told["operators"]
    for operator in operators:
        what = operator["kind"]
        if operator["component"] != what:
            what += f" {operator['component']}"
        if operator["parallelism"] != 1:
            what += f" x{operator['parallelism']}"
        lines += _row(operator["id"], what, [o["id"] for o in operators])
        told_of = [] if operator["time"] is None else [time_text(operator["time"])]
        if operator["window"] is not None:
            told_of += window_texts(operator["window"])
        if operator["join"] is not None:
            told_of += join_texts(operator["join"])
        if operator["keyed"] is not None:
            told_of += keyed_texts(operator["keyed"])
        if operator["keeps"] and (limits := _kept(operator)):
            told_of.append(limits)
        for text in told_of:
            lines += _wrap(text, "      ", "      ")
        if operator["exactly_once"] is not None and told["checkpoint"] is not None:
            lines += _wrap(operator["guarantee"], "      ", "      ")
        if operator["references"]:
            lines += _wrap(f"uses {', '.join(operator['references'])}", "      ", "      ")
    return lines


def _kept(operator: dict[str, Any]) -> str:
    """What an operator keeps, and its limits; nothing for a window without any."""
    state = operator["state"]
    if state is None:
        return str(operator["keeps"])
    told = []
    if state["count_field"] is not None:
        told.append(f"counts rows by {', '.join(state['key_fields'])} into {state['count_field']}")
    if state["max_bytes"] is not None:
        told.append(f"at most {_bytes(state['max_bytes'])}")
    if state["ttl_ms"] is not None:
        told.append(f"a key forgotten after {state['ttl_ms']:,} ms")
    return ", ".join(told)


def _row(name: str, what: str, names: list[str]) -> list[str]:
    column = min(max((len(n) for n in names), default=0), 32) + 2
    return _wrap(what, f"  {name:<{column}}", " " * (column + 2))


def _chains(chains: list[dict[str, Any]]) -> list[str]:
    lines = []
    for chain in chains:
        told = []
        if chain["workers"] > 1:
            told.append(f"{chain['workers']} workers, order kept")
        if chain["key_groups"] is not None:
            told.append("key groups {}-{}".format(*chain["key_groups"]))
        told += [_resource(key, value) for key, value in chain["resources"].items()]
        errors = chain["error_output"]
        told.append(f"errors to {errors}" if errors else "an error fails the job")
        if chain["late_output"]:
            told.append(f"late rows to {chain['late_output']}")
        told.append(f"holds at most {_bytes(chain['held_bytes_max'])}")
        lines += _wrap(f"{chain['id']}: {', '.join(told)}", "  ", "      ")
        lines += _wrap(", ".join(chain["tasks"]), "      ", "      ")
    return lines


def _resource(name: str, amount: float) -> str:
    return f"{name} {_bytes(int(amount)) if name == 'memory_bytes' else f'{amount:g}'}"


def _edges(edges: list[dict[str, Any]]) -> list[str]:
    lines = []
    for edge in edges:
        key = f" by {', '.join(edge['key_fields'])}" if edge["key_fields"] else ""
        text = f"{edge['source']} -> {edge['target']}: {edge['kind']}{key}, {_way(edge)}"
        lines += _wrap(text, "  ", "      ")
    return lines or ["  none"]


def _way(edge: dict[str, Any]) -> str:
    """What the rows of an edge travel in."""
    if not edge["crosses"]:
        return "inside the chain"
    if edge["outlet"] != edge["id"]:
        return f"in the channels of {edge['outlet']}"
    count, each = edge["channels"], "each with" if edge["channels"] > 1 else "with"
    bound = f"at most {edge['capacity']:,} batches and {_bytes(edge['capacity_bytes'])}"
    return f"in {count:,} channel{'' if count == 1 else 's'}, {each} {bound}{_batching(edge)}"


def _batching(edge: dict[str, Any]) -> str:
    """The batches that the operator behind an edge asks for (E9); nothing where it does not."""
    rows, wait_ms = edge["batch_rows"], edge["batch_wait_ms"]
    waits = "" if wait_ms is None else f", filled for up to {wait_ms:,} ms"
    if not waits and rows == SLICE_ROWS_MAX:
        return ""
    return f", in batches of at most {rows:,} row{'' if rows == 1 else 's'}{waits}"


def _bytes(count: int) -> str:
    return f"{count // MIB:,} MiB" if count % MIB == 0 else f"{count:,} bytes"


__all__ = ["WIDTH", "render"]
