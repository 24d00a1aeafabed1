"""A `streams:` entry becomes the JobSpec that a `jobs:` entry would declare (C1-C3).

Pure and deterministic: the same entry gives the same operator ids and edges, byte for byte when
serialised, and references to secrets stay references (M8). It builds no component and looks at
no component's own keys, except those of the buffer, which becomes an operator.
"""

import itertools
import re
from dataclasses import dataclass
from typing import Any, Final

from arkflow_kernel.buffer_compiler import WINDOW_ID, compile_buffer
from arkflow_kernel.errors import ConfigError, Issue
from arkflow_kernel.ids import OperatorId
from arkflow_kernel.job import (
    ComponentSpec,
    EdgeSpec,
    JobSpec,
    OperatorSpec,
    SinkSpec,
    SourceSpec,
    StreamSpec,
    TimeSpec,
)

WORKERS_KEY: Final = "__arkflow_processor_parallelism"
"""Key of a source operator's config that carries `thread_num` (B.3)."""

ERROR_SINK_KEY: Final = "__arkflow_error_sink"
"""Key of the config of the sink that takes what failed (B.3)."""

SOURCE_ID: Final = "source"
SINK_ID: Final = "sink"
ERROR_SINK_ID: Final = "error-sink"

JOB_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")

_RESERVED: Final = frozenset({SOURCE_ID, SINK_ID, ERROR_SINK_ID, WINDOW_ID})
_AUTOMATIC: Final = re.compile(r"p[0-9]+-.*")
_INDEXED: Final = re.compile(r"(operators|sources|sinks)\[([0-9]+)\](.*)")


@dataclass(frozen=True, slots=True)
class CompiledStream:
    """The job of a stream, and where each of its operators stands in the stream's entry."""

    job: JobSpec
    paths: dict[OperatorId, str]
    warnings: list[Issue]

    def locate(self, path: str) -> str:
        """The stream-relative path of a job-relative one (`operators[2].config.query`).

        What has no place of its own in a stream (an edge, say) gives the nearest that has.
        """
        found = _INDEXED.fullmatch(path)
        if found is None:
            head = path.split(".")[0].split("[")[0]
            return path if head in ("id", "state", "checkpoint", "restart", "delivery") else ""
        part, index, rest = found[1], int(found[2]), found[3]
        if rest == ".chain":
            return "pipeline.chain"
        if rest.endswith(WORKERS_KEY):
            return "pipeline.thread_num"
        own = self.paths[OperatorId(self._operator(part, index))]
        for wrapper in (".config", ".input_type", ".output_type"):
            if rest == wrapper or rest.startswith((f"{wrapper}.", f"{wrapper}[")):
                kept = rest.removeprefix(wrapper)
                return own + (kept if wrapper == ".config" else f".type{kept}")
        return own + rest if rest.startswith(".codec") else own

    def _operator(self, part: str, index: int) -> str:
        if part == "operators":
            return self.job.operators[index].id
        specs = self.job.sources if part == "sources" else self.job.sinks
        return specs[index].operator_id


def compile_stream(stream: StreamSpec, index: int) -> CompiledStream:
    """Compile entry `index` of `streams:`.

    Raises ConfigError with every mistake found, at paths relative to the entry.
    """
    stream_id = stream.id if stream.id is not None else f"stream-{index}"
    issues = _id_issues(stream, index)
    processors = stream.pipeline.processors or []
    issues += _type_issues(processors)
    window = compile_buffer(stream.buffer, stream_id)
    issues += [*window.issues, *_window_issues(stream, window.operator)]
    names, renamed = _processor_ids(processors)
    issues += renamed
    errors = [issue for issue in issues if not issue.warning]
    if errors:
        raise ConfigError(errors)
    workers = 1 if window.operator is not None else stream.pipeline.thread_num
    operators = _operators(stream, processors, names, window.operator, workers)
    job = JobSpec(
        id=stream_id,
        version=1,
        parallelism=1,
        max_parallelism=1,
        operators=operators,
        edges=_edges(operators),
        sources=[_source(stream.input)],
        sinks=_sinks(stream),
        state=stream.state,
        checkpoint=stream.checkpoint,
        restart=stream.restart,
        delivery=stream.delivery,
    )
    return CompiledStream(job, _paths(operators, names), issues)


def _id_issues(stream: StreamSpec, index: int) -> list[Issue]:
    if stream.id is None:
        text = (
            f"the stream has no `id` and is called 'stream-{index}', after its place in the "
            "list; give it an `id`, so that it keeps its name when the list changes"
        )
        return [Issue("id", text, warning=True)]
    if JOB_ID.fullmatch(stream.id):
        return []
    text = (
        f"Invalid stream id '{stream.id}' at index {index}; "
        "use non-empty letters, numbers, '-' or '_' (at most 128)"
    )
    return [Issue("id", text)]


def _type_issues(processors: list[ComponentSpec]) -> list[Issue]:
    return [
        Issue(f"pipeline.processors[{i}].type", "`type` is empty; name a processor, such as `sql`")
        for i, processor in enumerate(processors)
        if not processor.type
    ]


def _window_issues(stream: StreamSpec, window: OperatorSpec | None) -> list[Issue]:
    """What a pipeline asks for that a window before its processors does not allow."""
    if window is None:
        return []
    issues = []
    pipeline = stream.pipeline
    if pipeline.thread_num != 1:
        text = (
            f"`thread_num: {pipeline.thread_num}` has no effect: a window keeps rows across "
            "batches, so its chain has one worker; set `thread_num: 1` or leave it out"
        )
        issues.append(Issue("pipeline.thread_num", text, warning=True))
    if not pipeline.chain and pipeline.processors:
        text = (
            "`chain: false` has no effect between a window and the processors: rows of one window "
            "would reach them in pieces; input and output have chains of their own"
        )
        issues.append(Issue("pipeline.chain", text, warning=True))
    return issues


def _processor_ids(processors: list[ComponentSpec]) -> tuple[list[str], list[Issue]]:
    """Ids of the processors in order (C2), and a warning for each name that cannot be one."""
    names = [processor.name for processor in processors]
    ids, issues = [], []
    for i, processor in enumerate(processors):
        automatic = f"p{i}-" + re.sub(r"[^A-Za-z0-9_-]", "-", processor.type)
        reason = _unusable(processor.name, names)
        ids.append(automatic if processor.name is None or reason else processor.name)
        if reason:
            text = f"name '{processor.name}' {reason}; the operator is called '{automatic}'"
            issues.append(Issue(f"pipeline.processors[{i}].name", text, warning=True))
    return ids, issues


def _unusable(name: str | None, names: list[str | None]) -> str:
    if name is None:
        return ""
    if not JOB_ID.fullmatch(name):
        return "cannot be an operator id (1 to 128 letters, numbers, '-' or '_')"
    if name in _RESERVED or _AUTOMATIC.fullmatch(name):
        return "is kept for operators that the compiler names itself"
    return "is not unique in the stream" if names.count(name) > 1 else ""


def _operators(
    stream: StreamSpec,
    processors: list[ComponentSpec],
    names: list[str],
    window: OperatorSpec | None,
    workers: int,
) -> list[OperatorSpec]:
    chain = stream.pipeline.chain
    operators = [
        OperatorSpec(id=SOURCE_ID, kind="source", config={WORKERS_KEY: workers}, chain=chain)
    ]
    if window is not None:
        operators.append(window)
    inner = chain or window is not None  # a window reaches the processors as one batch (B.4)
    for name, processor in zip(names, processors, strict=True):
        operators.append(
            OperatorSpec(id=name, kind="map", config=_verbatim(processor), chain=inner)
        )
    operators.append(OperatorSpec(id=SINK_ID, kind="sink", chain=chain))
    if stream.error_output is not None:
        operators.append(
            OperatorSpec(id=ERROR_SINK_ID, kind="sink", config={ERROR_SINK_KEY: True}, chain=chain)
        )
    return operators


def _edges(operators: list[OperatorSpec]) -> list[EdgeSpec]:
    """One line from the source to the sink, then an error edge from all that may fail."""
    main = [operator.id for operator in operators if operator.id != ERROR_SINK_ID]
    edges = [_edge(a, b) for a, b in itertools.pairwise(main)]
    if len(main) < len(operators):
        edges += [_edge(a, ERROR_SINK_ID, type="error") for a in main[:-1]]
    return edges


def _edge(source: str, target: str, **more: Any) -> EdgeSpec:
    fields = {"id": f"edge-{source}-{target}", "from": source, "to": target, **more}
    return EdgeSpec.model_validate(fields)


def _source(component: ComponentSpec) -> SourceSpec:
    named = {} if component.name is None else {"name": component.name}
    return SourceSpec(
        operator_id=SOURCE_ID,
        input_type=component.type,
        config=named | component.config,
        codec=component.codec,
        time=TimeSpec(mode="processing_time"),
    )


def _sinks(stream: StreamSpec) -> list[SinkSpec]:
    named = [(SINK_ID, stream.output), (ERROR_SINK_ID, stream.error_output)]
    return [
        SinkSpec(
            operator_id=name,
            output_type=component.type,
            config=({} if component.name is None else {"name": component.name}) | component.config,
            codec=component.codec,
        )
        for name, component in named
        if component is not None
    ]


def _verbatim(component: ComponentSpec) -> dict[str, Any]:
    """A processor's entry as it stands in the file, `type` and `name` included (B.3)."""
    kept: dict[str, Any] = {"type": component.type}
    if component.name is not None:
        kept["name"] = component.name
    if component.codec is not None:
        kept["codec"] = component.codec
    return kept | component.config


def _paths(operators: list[OperatorSpec], names: list[str]) -> dict[OperatorId, str]:
    fixed = {
        SOURCE_ID: "input",
        WINDOW_ID: "buffer",
        SINK_ID: "output",
        ERROR_SINK_ID: "error_output",
    }
    processors = {name: f"pipeline.processors[{i}]" for i, name in enumerate(names)}
    return {OperatorId(op.id): (fixed | processors)[op.id] for op in operators}


__all__ = [
    "ERROR_SINK_ID",
    "ERROR_SINK_KEY",
    "JOB_ID",
    "SINK_ID",
    "SOURCE_ID",
    "WINDOW_ID",
    "WORKERS_KEY",
    "CompiledStream",
    "compile_stream",
]
