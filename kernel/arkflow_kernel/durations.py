"""Durations as text, in the grammar of ArkFlow (`humantime`): `500us`, `1h30m`, `1.5s`, `2days`.

One or more pairs of a number and a unit, added up; spaces are free. A bare number has no unit and
is refused. Values are exact integers of nanoseconds; only the callers below round. And ages, as a
person would tell them.
"""

import re
from fractions import Fraction
from typing import Final

_NS: Final = 1
_US: Final = 1_000 * _NS
_MS: Final = 1_000 * _US
_S: Final = 1_000 * _MS
_MIN: Final = 60 * _S
_HOUR: Final = 60 * _MIN
_DAY: Final = 24 * _HOUR
_MONTH: Final = 2_630_016 * _S
"""30.44 days, as `humantime` counts it."""
_YEAR: Final = 31_557_600 * _S
"""365.25 days, as `humantime` counts it."""

_UNITS: Final[dict[str, int]] = {
    **dict.fromkeys(("ns", "nsec", "nanos"), _NS),
    **dict.fromkeys(("us", "µs", "usec", "micros"), _US),
    **dict.fromkeys(("ms", "msec", "millis"), _MS),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), _S),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), _MIN),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), _HOUR),
    **dict.fromkeys(("d", "day", "days"), _DAY),
    **dict.fromkeys(("w", "wk", "wks", "week", "weeks"), 7 * _DAY),
    **dict.fromkeys(("M", "month", "months"), _MONTH),
    **dict.fromkeys(("y", "yr", "yrs", "year", "years"), _YEAR),
}

GRAMMAR: Final = (
    "a duration is a number and a unit, or several of them in a row: `500us`, `250ms`, `1.5s`, "
    "`10s`, `1h30m`, `2days`; units: ns, us, ms, s, m, h, d, w, M (month), y"
)

DURATION_NS_MAX: Final = 2**63 - 1
"""About 292 years: beyond it no clock of the kernel could count."""

_PAIR: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-zµ]+)\s*")


def parse_duration_ns(text: str) -> int:
    """Nanoseconds of a duration (C5), parts below one cut off.

    Raises ValueError, with the grammar in the message, for anything else than a duration.
    """
    at, total = 0, Fraction(0)
    while at < len(text):
        pair = _PAIR.match(text, at)
        unit = _UNITS.get(pair[2]) if pair else None
        if pair is None or unit is None:
            raise ValueError(f"'{text}' is not a duration; {GRAMMAR}")
        total += Fraction(pair[1]) * unit
        at = pair.end()
    if at == 0:
        raise ValueError(f"an empty text is not a duration; {GRAMMAR}")
    if total > DURATION_NS_MAX:
        raise ValueError(f"'{text}' is longer than 292 years; use a shorter duration")
    return int(total)


def parse_duration_ms(text: str) -> int:
    """Milliseconds of a duration, cut off as in ArkFlow: `1500us` is 1. Raises ValueError."""
    return parse_duration_ns(text) // _MS


def age_text(age_ms: int) -> str:
    """How long ago, in the unit that a person would use."""
    seconds = age_ms / 1000
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


__all__ = ["DURATION_NS_MAX", "GRAMMAR", "age_text", "parse_duration_ms", "parse_duration_ns"]
