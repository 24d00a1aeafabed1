"""Fragments merge into maximal sessions, whatever their order, over all of Int64 (N2)."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from arkflow_kernel.limits import INT64_MAX, INT64_MIN
from arkflow_kernel.window.session_merge import ends, in_order, passed, sessions

Fragment = tuple[int, int, int]
"""Key, first, last."""


def by_loop(fragments: list[Fragment], gap_ms: int) -> list[tuple[int, int, int, set[int]]]:
    """Sessions and the places of their fragments: each fragment joins all that it reaches."""
    found: list[tuple[int, int, int, set[int]]] = []
    for place, (key, first, last) in enumerate(fragments):
        members = {place}
        apart = []
        for session in found:
            other, start, end, places = session
            if other == key and first - end <= gap_ms and start - last <= gap_ms:
                first, last, members = min(first, start), max(last, end), members | places
            else:
                apart.append(session)
        found = [*apart, (key, first, last, members)]
    return sorted(found, key=lambda session: session[:3])


def merged(fragments: list[Fragment], gap_ms: int) -> list[tuple[int, int, int, set[int]]]:
    """The same by `sessions`, after a look at what it promises of its columns."""
    columns = np.array(fragments, np.int64).reshape(-1, 3).T.copy()
    found = sessions(columns[0], columns[1], columns[2], gap_ms)
    places: list[set[int]] = [set() for _ in range(found.count)]
    for place, session in enumerate(found.session_of.tolist()):
        places[session].add(place)
    cuts = [*found.starts.tolist(), len(fragments)]
    for number, members in enumerate(places):
        assert set(found.order[cuts[number] : cuts[number + 1]].tolist()) == members
    each = zip(found.keys.tolist(), found.first.tolist(), found.last.tolist(), places, strict=True)
    return list(each)


def fragments_of(times: st.SearchStrategy[int]) -> st.SearchStrategy[list[Fragment]]:
    """Lists of fragments of few keys."""
    pair = st.tuples(times, times).map(sorted)
    one = st.builds(lambda key, ends: (key, ends[0], ends[1]), st.integers(0, 3), pair)
    return st.lists(one, max_size=24)


@given(fragments_of(st.integers(-40, 40)), st.integers(1, 12))
@example([(0, 0, 50), (0, 10, 11), (0, 55, 55)], 5)  # reached by the first, not the second
@example([(1, 0, 0), (0, 0, 0)], 1)
@example([], 3)
def test_vectorised_sessions_are_those_of_a_loop(fragments: list[Fragment], gap_ms: int) -> None:
    assert merged(fragments, gap_ms) == by_loop(fragments, gap_ms)


EDGES = st.one_of(
    st.integers(INT64_MIN, INT64_MIN + 20),
    st.integers(-10, 10),
    st.integers(INT64_MAX - 20, INT64_MAX),
)


@given(
    fragments_of(EDGES),
    st.one_of(st.integers(1, 12), st.integers(INT64_MAX - 20, INT64_MAX)),
)
@example([(0, INT64_MIN, INT64_MIN), (0, INT64_MAX, INT64_MAX)], INT64_MAX)
@example([(0, INT64_MIN, INT64_MIN), (0, -1, -1)], INT64_MAX)
def test_nothing_wraps_at_the_limits_of_int64(fragments: list[Fragment], gap_ms: int) -> None:
    assert merged(fragments, gap_ms) == by_loop(fragments, gap_ms)


@given(st.lists(st.tuples(st.integers(-3, 70_000), EDGES), max_size=30))
def test_places_are_ordered_by_key_then_time_and_stay_so(rows: list[tuple[int, int]]) -> None:
    columns = np.array(rows, np.int64).reshape(-1, 2).T.copy()
    order = in_order(columns[0], columns[1]).tolist()
    assert order == sorted(range(len(rows)), key=lambda row: rows[row])


@given(EDGES, st.sampled_from([0, 1, 15, INT64_MAX]), EDGES)
def test_a_watermark_passes_only_what_it_is_greater_than(last: int, after: int, mark: int) -> None:
    assert passed(np.array([last]), after, mark).tolist() == [mark > last + after]


@given(EDGES, st.sampled_from([1, 15, INT64_MAX]))
def test_an_end_beyond_int64_is_its_greatest_value(last: int, gap_ms: int) -> None:
    assert ends(np.array([last]), gap_ms).tolist() == [min(last + gap_ms, INT64_MAX)]


@pytest.mark.parametrize(("apart", "count"), [(150, 1), (151, 2)])
def test_rows_exactly_the_gap_apart_are_one_session(apart: int, count: int) -> None:
    times = np.array([1_000, 1_000 + apart])
    assert sessions(np.zeros(2, np.int64), times, times, 150).count == count


def test_a_mark_of_any_fragment_is_a_mark_of_its_session() -> None:
    times = np.array([30, 0, 5, 31])
    found = sessions(np.zeros(4, np.int64), times, times, 10)
    assert found.any_of(np.array([False, False, True, False])).tolist() == [True, False]
