"""What a whole job must hold (C6): the rules of the reference, all mistakes at once.

`validate_job` gives what is wrong whatever the release; `unavailable` gives what is right and
does not run in this release. Components' own configurations are checked by building them dry,
which is not done here: the kernel knows no component.
"""

from collections.abc import Iterator
from typing import Any

from arkflow_kernel.autoscale_rules import autoscale_issues
from arkflow_kernel.delivery import (
    Replays,
    StagesEpochs,
    any_position,
    delivery_issues,
    no_sink,
)
from arkflow_kernel.durability_rules import durability_issues
from arkflow_kernel.edge_rules import edge_issues
from arkflow_kernel.errors import Issue
from arkflow_kernel.job import (
    ChannelSpec,
    JobSpec,
    OperatorSpec,
    RestartSpec,
)
from arkflow_kernel.job_availability import UNAVAILABLE, Unavailable, unavailable
from arkflow_kernel.join_rules import join_issues
from arkflow_kernel.keyed_config import keyed_model
from arkflow_kernel.limits import WORKERS_MAX
from arkflow_kernel.operator_calls import call_issues
from arkflow_kernel.operator_config import (
    STATE_OUTPUT_DEFAULT,
    STATE_OUTPUT_KEY,
    config_issues,
)
from arkflow_kernel.resource_rules import resource_issues
from arkflow_kernel.stream_compiler import ERROR_SINK_KEY, JOB_ID, WORKERS_KEY
from arkflow_kernel.time_rules import time_issues
from arkflow_kernel.topology import Topology, counts_keys, is_keyed


def validate_job(
    job: JobSpec, stages_epochs: StagesEpochs = no_sink, replays: Replays = any_position
) -> list[Issue]:
    """Every mistake of a job, errors and warnings, at job-relative paths, in the file's order.

    The callables say what the components can that the kernel does not know.
    """
    topology = Topology(job)
    return [
        *_job(job),
        *_settings(job),
        *resource_issues(topology),
        *durability_issues(job),
        *delivery_issues(job, stages_epochs, replays),
        *_operators(topology),
        *_unused_keys(topology),
        *_components(topology),
        *call_issues(topology),
        *edge_issues(topology),
        *time_issues(topology),
        *join_issues(topology),
        *autoscale_issues(topology),
    ]


def _job(job: JobSpec) -> Iterator[Issue]:
    if not JOB_ID.fullmatch(job.id):
        yield Issue("id", f"invalid Job id '{job.id}'; use 1-128 letters, numbers, '-' or '_'")
    kinds = {operator.kind for operator in job.operators}
    for kind, specs in (("source", job.sources), ("sink", job.sinks)):
        if not specs or kind not in kinds:
            text = f"Job requires at least one executable {kind}"
            advice = f"add an operator of kind `{kind}` and its entry under `{kind}s`"
            yield Issue(f"{kind}s", f"{text}: {advice}")
    if job.max_parallelism < 1:
        yield Issue("max_parallelism", "max_parallelism must be positive; 128 is the default")
    elif not 1 <= job.parallelism <= job.max_parallelism:
        text = f"Job '{job.id}' parallelism must be between 1 and max_parallelism"
        yield Issue("parallelism", f"{text} ({job.max_parallelism})")


def _settings(job: JobSpec) -> Iterator[Issue]:
    """Keys of the job that no other rule looks at."""
    if job.restart is not None:
        yield from _restart(job.restart)
    if job.channel is not None:
        yield from _channel(job.channel)
    if job.node_ids is not None and job.rebalance is not None and job.rebalance.mode == "auto":
        text = "`node_ids` pins the tasks, `rebalance: {mode: auto}` moves them; keep one"
        yield Issue("node_ids", text)


def _restart(restart: RestartSpec) -> Iterator[Issue]:
    if not 1 <= restart.multiplier < float("inf"):
        text = "restart.multiplier must be a number of at least 1"
        yield Issue("restart.multiplier", f"{text}; 2 doubles the wait after each restart")
    if restart.strategy == "exponential" and restart.max_ms < restart.initial_ms:
        text = f"restart.max_ms ({restart.max_ms}) must not be below restart.initial_ms"
        yield Issue(
            "restart.max_ms", f"{text} ({restart.initial_ms}); raise it, or lower the other"
        )


def _channel(channel: ChannelSpec) -> Iterator[Issue]:
    if channel.capacity_bytes is not None and channel.chain_bytes is not None:
        text = "`chain_bytes` has no effect: `capacity_bytes` says what each channel gets"
        yield Issue("channel.chain_bytes", f"{text}; keep one of them", warning=True)


def _operators(topology: Topology) -> Iterator[Issue]:
    """Rules 6 and 7, and what a per-operator value must hold."""
    seen: dict[str, int] = {}
    for i, operator in enumerate(topology.job.operators):
        path = f"operators[{i}]"
        if not operator.id:
            yield Issue(f"{path}.id", "operator id must not be empty; give it a name of its own")
        elif operator.id in seen:
            text = f"duplicate operator id '{operator.id}', also of operators[{seen[operator.id]}]"
            yield Issue(f"{path}.id", f"{text}; rename one")
        seen.setdefault(operator.id, i)
        limit = topology.job.max_parallelism
        if operator.parallelism is not None and operator.parallelism > max(limit, 1):
            text = f"operator '{operator.id}' parallelism must be between 1 and max_parallelism"
            yield Issue(f"{path}.parallelism", f"{text} ({limit})")
        yield from _keys(operator, path)
        yield from _type(operator, path)
        state = topology.job.state
        for issue in config_issues(operator, None if state is None else state.ttl_ms):
            yield Issue(f"{path}.{issue.path}", issue.message, issue.warning)


def _keys(operator: OperatorSpec, path: str) -> Iterator[Issue]:
    if operator.kind in ("source", "sink"):
        if operator.stateful:
            text = f"operator '{operator.id}' is a {operator.kind} and cannot be stateful"
            yield Issue(f"{path}.stateful", f"{text}; put a stateful `map` beside it")
        return
    in_config = operator.kind in ("window", "join") or keyed_model(operator) is not None
    if operator.stateful and not operator.key_field and not in_config:
        text = f"stateful operator '{operator.id}' requires key_field"
        yield Issue(f"{path}.key_field", f"{text}: the column whose values have a state each")
    if counts_keys(operator):
        yield from _count_field(operator, path)
    own = operator.config.get("key_field")
    if operator.kind == "window" and operator.key_field and own and own != operator.key_field:
        text = f"window '{operator.id}' has key_field '{operator.key_field}' and, in its config,"
        yield Issue(f"{path}.config.key_field", f"{text} '{own}'; give the same or only the latter")
    several = operator.config.get("key_fields")
    if (
        operator.kind == "window"
        and operator.key_field
        and several
        not in (
            None,
            [operator.key_field],
        )
    ):
        text = f"window '{operator.id}' has key_field '{operator.key_field}' and, in its config,"
        yield Issue(f"{path}.key_field", f"{text} `key_fields`; remove the former")


def _count_field(operator: OperatorSpec, path: str) -> Iterator[Issue]:
    """The column that a stateful processor's rows get: the running count of their key (C.2)."""
    name = operator.config.get(STATE_OUTPUT_KEY, STATE_OUTPUT_DEFAULT)
    where = f"{path}.config.{STATE_OUTPUT_KEY}"
    if not isinstance(name, str) or not name:
        text = f"{STATE_OUTPUT_KEY} is the name of a column, as text"
        yield Issue(where, f"{text}; leave it out for {STATE_OUTPUT_DEFAULT}")
    elif name == operator.key_field:
        text = f"{STATE_OUTPUT_KEY} '{name}' would replace the key of '{operator.id}'"
        yield Issue(where, f"{text}; name another column")


def _unused_keys(topology: Topology) -> Iterator[Issue]:
    """A key that neither state nor a partitioned edge asks for."""
    routed = {edge.to for edge in topology.edges if edge.partitioned}
    for i, operator in enumerate(topology.job.operators):
        if operator.key_field and not is_keyed(operator) and operator.id not in routed:
            text = f"key_field of '{operator.id}' has no effect: it keeps no state, and no"
            advice = "partitioned edge leads to it; set `partitioned: true` on one, or remove it"
            yield Issue(f"operators[{i}].key_field", f"{text} {advice}", warning=True)


def _type(operator: OperatorSpec, path: str) -> Iterator[Issue]:
    """A map, filter or udf is a processor, chosen by `config.type`; an aggregate with it, too."""
    if operator.kind not in ("map", "filter", "udf", "aggregate"):
        return
    if keyed_model(operator) is not None:
        return
    if "type" not in operator.config:
        text = f"operator '{operator.id}' requires config.type, the processor that it runs"
        yield Issue(f"{path}.config.type", text)
    elif not isinstance(operator.config["type"], str) or not operator.config["type"]:
        yield Issue(f"{path}.config.type", "config.type is the name of a processor, as text")


def _components(topology: Topology) -> Iterator[Issue]:
    """Rule 11 for sources and sinks, and the keys of theirs that the planner takes out."""
    job = topology.job
    yield from _targets(topology, "source", [spec.operator_id for spec in job.sources])
    yield from _targets(topology, "sink", [spec.operator_id for spec in job.sinks])
    for i, source in enumerate(job.sources):
        path = f"sources[{i}]"
        yield from _component(source.input_type, "input_type", source.config, source.codec, path)
        yield from _source_keys(source.config, path)
    for i, sink in enumerate(job.sinks):
        path = f"sinks[{i}]"
        yield from _component(sink.output_type, "output_type", sink.config, sink.codec, path)


def _targets(topology: Topology, kind: str, names: list[str]) -> Iterator[Issue]:
    """Entries of `sources` and `sinks` against the operators that they belong to, both ways."""
    for i, name in enumerate(names):
        path, found = f"{kind}s[{i}].operator_id", topology.operators.get(name)
        if found is None or found.kind != kind:
            what = f"an operator of kind {found.kind}" if found else "no operator of the job"
            yield Issue(path, f"'{name}' is {what}; name a {kind} operator")
        if name in names[:i]:
            yield Issue(path, f"a second entry for '{name}'; remove one")
    for i, operator in enumerate(topology.job.operators):
        if operator.kind != kind:
            continue
        path = f"operators[{i}]"
        if operator.id not in names:
            text = f"{kind} operator '{operator.id}' has no entry under `{kind}s`; add one"
            yield Issue(path, text)
        for key in operator.config:
            if key not in (WORKERS_KEY, ERROR_SINK_KEY):
                text = f"the config of {kind} '{operator.id}' stands in its entry under `{kind}s`"
                yield Issue(f"{path}.config.{key}", f"{text}; move '{key}' there")
        yield from _workers(operator.config, f"{path}.config")


def _component(
    chosen: str, key: str, config: dict[str, Any], codec: Any, path: str
) -> Iterator[Issue]:
    if not chosen:
        yield Issue(f"{path}.{key}", f"{key} must not be empty; `components list` names them")
    if "type" in config and config["type"] != chosen:
        text = f"config.type '{config['type']}' differs from {key} '{chosen}'; remove one"
        yield Issue(f"{path}.config.type", text)
    inner = config.get("codec")
    if codec is not None and inner is not None and codec != inner:
        text = "codec stands here and, with another value, in the entry itself; keep one"
        yield Issue(f"{path}.config.codec", text)
    for value, where in ((codec, f"{path}.codec"), (inner, f"{path}.config.codec")):
        name = value.get("type") if isinstance(value, dict) else value
        if value is not None and (not isinstance(name, str) or not name):
            yield Issue(where, "a codec is a name, or an object with `type` and its settings")


def _source_keys(config: dict[str, Any], path: str) -> Iterator[Issue]:
    rate = config.get("rows_per_second")
    numeric = _is_int(rate) or isinstance(rate, float)
    if rate is not None and not (numeric and 0 < rate < float("inf")):
        text = "rows_per_second must be a positive number; leave it out for no limit"
        yield Issue(f"{path}.config.rows_per_second", text)
    yield from _workers(config, f"{path}.config")


def _workers(config: dict[str, Any], path: str) -> Iterator[Issue]:
    workers = config.get(WORKERS_KEY, 1)
    if not _is_int(workers) or not 1 <= workers <= WORKERS_MAX:
        text = f"{WORKERS_KEY} must be an integer from 1 to {WORKERS_MAX}"
        yield Issue(f"{path}.{WORKERS_KEY}", text)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


__all__ = ["UNAVAILABLE", "Unavailable", "unavailable", "validate_job"]
