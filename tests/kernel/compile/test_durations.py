"""Durations (C5): the grammar, its exact values, and what it refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.durations import (
    DURATION_NS_MAX,
    GRAMMAR,
    parse_duration_ms,
    parse_duration_ns,
)

NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1ns", 1),
        ("500us", 500_000),
        ("500µs", 500_000),
        ("250ms", 250_000_000),
        ("1.5s", 1_500_000_000),
        ("10s", 10_000_000_000),
        ("1h30m", 5_400_000_000_000),
        ("1h 30m", 5_400_000_000_000),
        (" 2 days ", 172_800_000_000_000),
        ("1w", 604_800_000_000_000),
        ("1M", 2_630_016_000_000_000),
        ("1y", 31_557_600_000_000_000),
        ("0s", 0),
        ("0.1s", 100_000_000),
    ],
)
def test_a_duration_is_the_exact_sum_of_its_parts(text: str, nanoseconds: int) -> None:
    assert parse_duration_ns(text) == nanoseconds


@pytest.mark.parametrize(
    "text", ["", " ", "10", "s", "1.s", ".5s", "-1s", "1s-", "1 fortnight", "1e3s", "1S", "٣s"]
)
def test_a_text_outside_the_grammar_is_refused_and_the_grammar_shown(text: str) -> None:
    with pytest.raises(ValueError, match="`1h30m`") as error:
        parse_duration_ns(text)
    assert GRAMMAR in str(error.value)


def test_a_duration_that_no_clock_can_count_is_refused() -> None:
    with pytest.raises(ValueError, match="292 years"):
        parse_duration_ns("400y")


def test_milliseconds_are_cut_off() -> None:
    assert parse_duration_ms("1999us") == 1
    assert parse_duration_ms("500us") == 0


@given(st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(sorted(NS))), min_size=1))
def test_pairs_add_up_in_any_order(pairs: list[tuple[int, str]]) -> None:
    text = "".join(f"{count}{unit}" for count, unit in pairs)
    expected = sum(count * NS[unit] for count, unit in pairs)
    if expected > DURATION_NS_MAX:
        with pytest.raises(ValueError, match="292 years"):
            parse_duration_ns(text)
        return
    assert parse_duration_ns(text) == expected
