"""Configuration of a `window` operator (D.8, N2-N4): what parses, and what its fields must hold."""

import difflib
from collections.abc import Iterable, Iterator
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import Field

from arkflow_kernel.buffer_compiler import ALL_ROWS_KEY
from arkflow_kernel.job import Column, DurationMs, PositiveDurationMs, PositiveInt, Spec
from arkflow_kernel.limits import DURATION_MS_MAX

PANES_PER_ROW_MAX: Final = 10_000
"""Windows that one row may belong to: size / slide (D.8)."""

RESULT_COLUMNS: Final = ("window_start", "window_end", "__arkflow_window_update")
"""Columns of every result of a window (N3)."""

VALUE_FUNCTIONS: Final = ("sum", "min", "max")
"""Aggregates of a window without `aggregates` beside its count (D.8): also their columns' names."""

_A_KEY: Final = "that is a key"
_DAY_MS: Final = 86_400_000
_UNIT_MS: Final = {"day": _DAY_MS, "week": 7 * _DAY_MS, "month": 28 * _DAY_MS}
_WATERMARK_FIELD: Final = "__watermark_ms"
_ZONES_NAMED: Final = 3

_SIZES: Final = {
    "tumbling": ("size_ms",),
    "sliding": ("size_ms", "slide_ms"),
    "session": ("gap_ms",),
}


class Finding(NamedTuple):
    """A mistake at a path that begins with `config`."""

    path: str
    text: str
    warning: bool = False


class AggregateConfig(Spec):
    """An entry of `aggregates:` (N3), an addition. Without `field` only `count` makes sense."""

    function: Literal[
        "count", "sum", "min", "max", "avg", "stddev", "first", "last", "count_distinct"
    ] = Field(description="`count` without a field counts rows.")
    field: Column | None = Field(default=None, description="The column that it is of.")
    as_: Annotated[Column | None, Field(alias="as")] = Field(
        default=None, description="Its column in the result; without it `sum_price`, or `count`."
    )


class WindowConfig(Spec):
    """`config` of a `window` operator (D.8)."""

    kind: Literal["tumbling", "sliding", "session"] = Field(
        description="Windows side by side, overlapping, or of rows close to each other."
    )
    size_ms: PositiveDurationMs | None = Field(
        default=None, description="How long a tumbling or sliding window is."
    )
    slide_ms: PositiveDurationMs | None = Field(
        default=None, description="A sliding window begins every so many milliseconds."
    )
    gap_ms: PositiveDurationMs | None = Field(
        default=None, description="A session ends after so long without a row."
    )
    unit: Literal["day", "week", "month"] | None = Field(
        default=None, description="Tumbling windows of the calendar, instead of `size_ms`."
    )
    timezone: Column | None = Field(
        default=None, description="The calendar's zone, such as `Europe/Berlin`; UTC without it."
    )
    offset_ms: Annotated[int, Field(ge=-DURATION_MS_MAX, le=DURATION_MS_MAX)] = Field(
        default=0, description="Windows begin so much later."
    )
    timestamp_field: Column = Field(description="The column that holds a row's time.")
    key_field: Column | None = Field(
        default=None, description=f"One window per value; `{ALL_ROWS_KEY}`: one of all rows."
    )
    key_fields: Annotated[list[Column] | None, Field(min_length=1)] = Field(
        default=None, description="Several keys, which leave under their own names."
    )
    value_fields: list[Column] = Field(
        default_factory=list, description="The column of sum, min and max; at most one."
    )
    aggregates: Annotated[list[AggregateConfig] | None, Field(min_length=1)] = Field(
        default=None, description="What to compute, instead of `value_fields`."
    )
    trigger: Literal["watermark", "processing_time"] = Field(
        default="watermark", description="Whether windows are of event time or the wall clock."
    )
    trigger_interval_ms: PositiveDurationMs = Field(
        default=5_000, description="No effect: windows fire when they end."
    )
    watermark_field: Column = Field(
        default=_WATERMARK_FIELD, description="No effect: watermarks travel beside the rows."
    )
    allowed_lateness_ms: DurationMs | None = Field(
        default=None, description="How long late rows correct a window (policy `update`)."
    )
    legacy_payload: bool = Field(
        default=False, description="The rows of a window leave together, not aggregated."
    )
    max_buffered_keys: PositiveInt | None = Field(
        default=None, description="The most keys that are kept; none by default."
    )
    on_overflow: Literal["fail", "evict_oldest"] = Field(
        default="fail", description="What becomes of keys beyond `max_buffered_keys`."
    )
    overflow: Literal["error"] | None = Field(
        default="error", description="A sum that leaves its type fails, or is null (`null`)."
    )


def aggregate_name(aggregate: AggregateConfig) -> str:
    """The column of an aggregate: its `as`, else `sum_price`, or `count` of rows."""
    if aggregate.as_ is not None:
        return aggregate.as_
    return "_".join(part for part in (aggregate.function, aggregate.field) if part)


def window_findings(config: WindowConfig, key_field: str | None = None) -> Iterator[Finding]:
    """Every mistake between the fields of a window; `key_field` is that of its operator."""
    yield from _sizes(config)
    yield from _slide(config)
    yield from _calendar(config)
    yield from _offset(config)
    yield from _keys(config, key_field)
    yield from _values(config)
    yield from _bounds(config)
    yield from _columns(config)
    yield from _without_effect(config)


def _sizes(config: WindowConfig) -> Iterator[Finding]:
    calendar = config.unit is not None and config.kind == "tumbling"
    wanted = () if calendar else _SIZES[config.kind]
    for name in ("size_ms", "slide_ms", "gap_ms"):
        given = getattr(config, name) is not None
        if name in wanted and not given:
            or_unit = ", or a `unit`" if config.kind == "tumbling" else ""
            yield Finding(f"config.{name}", f"a {config.kind} window needs `{name}`{or_unit}")
        elif given and calendar and name == "size_ms":
            text = f"a window is `size_ms` long, or a `unit: {config.unit}`; remove one of them"
            yield Finding(f"config.{name}", text)
        elif given and name not in wanted:
            yield Finding(f"config.{name}", f"a {config.kind} window has no `{name}`; remove it")


def _slide(config: WindowConfig) -> Iterator[Finding]:
    size, slide = config.size_ms, config.slide_ms
    if config.kind != "sliding" or size is None or slide is None:
        return
    if slide > size:
        text = "slide_ms must not exceed size_ms, or rows between two windows would be lost"
        yield Finding("config.slide_ms", text)
    elif size > slide * PANES_PER_ROW_MAX:
        text = f"size_ms / slide_ms must not exceed {PANES_PER_ROW_MAX}; raise slide_ms"
        yield Finding("config.slide_ms", text)


def _calendar(config: WindowConfig) -> Iterator[Finding]:
    if config.unit is not None and config.kind != "tumbling":
        text = f"a {config.kind} window has no `unit`; remove it, or choose `kind: tumbling`"
        yield Finding("config.unit", text)
    if config.timezone is None:
        return
    if config.unit is None:
        text = "`timezone` has no effect without `unit` (day, week, month): add one, or remove it"
        yield Finding("config.timezone", text)
    elif not _is_zone(config.timezone):
        yield Finding("config.timezone", _no_zone(config.timezone))


def _is_zone(name: str) -> bool:
    # Imported where a calendar is asked for: others do not pay for the database.
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: "Europe" is a folder
        return False
    return True


def _no_zone(name: str) -> str:
    from zoneinfo import available_timezones

    folded = {zone.lower(): zone for zone in sorted(available_timezones())}
    cities = {zone.rpartition("/")[2]: zone for zone in folded}
    wanted = name.lower().replace(" ", "_")
    near = difflib.get_close_matches(wanted, folded, n=_ZONES_NAMED)
    near += [cities[c] for c in difflib.get_close_matches(wanted, cities, n=_ZONES_NAMED)]
    told = [f"`{folded[zone]}`" for zone in dict.fromkeys(near)][:_ZONES_NAMED]
    hint = f"did you mean {' or '.join(told)}?" if told else "use a name such as `Europe/Berlin`"
    return f"there is no time zone '{name}' in the IANA database; {hint}"


def _offset(config: WindowConfig) -> Iterator[Finding]:
    if config.offset_ms == 0:
        return
    if config.kind == "session":
        text = "a session begins with its first row, so it has no `offset_ms`; remove it"
        yield Finding("config.offset_ms", text)
        return
    step = _UNIT_MS[config.unit] if config.unit else config.slide_ms or config.size_ms
    if step is not None and abs(config.offset_ms) >= step:
        text = f"`offset_ms` moves where windows begin, by less than one of them ({step} ms here)"
        yield Finding("config.offset_ms", text)


def _keys(config: WindowConfig, outside: str | None) -> Iterator[Finding]:
    if config.key_field is None and config.key_fields is None:
        text = f"`key_field` is required; `{ALL_ROWS_KEY}` makes one window of all rows"
        if outside:
            text = f"the operator's `key_field: {outside}` must stand here, too"
        yield Finding("config.key_field", text)
    if config.key_field is not None and config.key_fields is not None:
        yield Finding("config.key_fields", "give `key_field` or `key_fields`, not both")
        return
    several = config.key_fields or []
    for i, name in enumerate(several):
        path = f"config.key_fields[{i}]"
        if name in several[:i]:
            yield Finding(path, f"`key_fields` names '{name}' twice; remove one")
        if name == ALL_ROWS_KEY:
            text = f"`{name}` is no column; say `key_field: {name}` for one window of all rows"
            yield Finding(path, text)


def _values(config: WindowConfig) -> Iterator[Finding]:
    if config.aggregates and config.value_fields:
        text = "`value_fields` has no effect beside `aggregates`; remove one of them"
        yield Finding("config.value_fields", text)
    elif len(config.value_fields) > 1 and not config.legacy_payload:
        text = f"window aggregate supports exactly one value field, got {len(config.value_fields)}"
        first, second = config.value_fields[:2]
        advice = f"[{{function: sum, field: {first}}}, {{function: sum, field: {second}}}]"
        yield Finding("config.value_fields", f"{text}; for several say `aggregates: {advice}`")
    if config.legacy_payload and config.kind == "sliding":
        text = "a sliding window cannot release its rows; choose `tumbling`, or `aggregates`"
        yield Finding("config.legacy_payload", text)
    if config.legacy_payload and config.max_buffered_keys is not None:
        text = (
            "with `legacy_payload` a window counts no keys; bound it by `state.max_bytes` instead"
        )
        yield Finding("config.max_buffered_keys", text)
    if config.legacy_payload and config.aggregates:
        text = "with `legacy_payload` a window releases its rows and aggregates nothing"
        yield Finding("config.aggregates", f"{text}; remove one of them")


def _bounds(config: WindowConfig) -> Iterator[Finding]:
    """Windows that know how many keys they hold are those over panes (N6)."""
    bounded = config.max_buffered_keys is not None and not config.legacy_payload
    if bounded and config.kind == "session":
        text = "`max_buffered_keys` of sessions is not available in this release"
        advice = "remove it, and bound the state of the job by `state.max_bytes`"
        yield Finding("config.max_buffered_keys", f"{text}; {advice}")


def _columns(config: WindowConfig) -> Iterator[Finding]:
    """Each column of a result has a name of its own."""
    keys = [config.key_field] if config.key_field else config.key_fields or []
    taken = dict.fromkeys(RESULT_COLUMNS, "of every window's result")
    if config.aggregates is None and not config.legacy_payload:
        made = ("count", *VALUE_FUNCTIONS) if config.value_fields else ("count",)
        taken |= dict.fromkeys(made, "of a window's result without `aggregates`")
    if config.aggregates is not None or config.key_fields is not None:
        for i, key in enumerate(keys):
            if key in taken and taken[key] != _A_KEY:
                where = "key_field" if config.key_field else f"key_fields[{i}]"
                text = f"key '{key}' is also a column {taken[key]}; rename it before"
                yield Finding(f"config.{where}", f"{text}, for example in a `sql` operator")
            taken.setdefault(key, _A_KEY)
    yield from aggregate_findings(config.aggregates or [], taken)


def aggregate_findings(
    aggregates: Iterable[AggregateConfig], taken: dict[str, str]
) -> Iterator[Finding]:
    """Each aggregate has what it is of, and a column of its own beside those that are `taken`, by
    name, with what each is.
    """
    taken = dict(taken)
    for i, aggregate in enumerate(aggregates):
        path = f"config.aggregates[{i}]"
        if aggregate.field is None and aggregate.function != "count":
            text = f"`{aggregate.function}` needs a `field`"
            yield Finding(f"{path}.field", f"{text}, the column that it is of")
            continue
        name = aggregate_name(aggregate)
        if name in taken:
            text = f"the result would have two columns '{name}': this one, and one {taken[name]}"
            where = path if aggregate.as_ is None else f"{path}.as"
            yield Finding(where, f"{text}; name it with `as:`")
        taken.setdefault(name, f"of aggregates[{i}]")


def _without_effect(config: WindowConfig) -> Iterator[Finding]:
    told = []
    if config.on_overflow == "evict_oldest" and config.max_buffered_keys is None:
        told.append(("on_overflow", "without `max_buffered_keys`"))
    if config.watermark_field != _WATERMARK_FIELD:
        told.append(("watermark_field", "here: watermarks travel beside the rows"))
    if config.trigger == "processing_time" and config.allowed_lateness_ms:
        told.append(("allowed_lateness_ms", "in processing time, in which nothing is late"))
    for key, why in told:
        yield Finding(f"config.{key}", f"`{key}` has no effect {why}; remove it", warning=True)


__all__ = [
    "PANES_PER_ROW_MAX",
    "RESULT_COLUMNS",
    "VALUE_FUNCTIONS",
    "AggregateConfig",
    "Finding",
    "WindowConfig",
    "aggregate_findings",
    "aggregate_name",
    "window_findings",
]
