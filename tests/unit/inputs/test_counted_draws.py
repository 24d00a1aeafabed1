"""Values that are functions of a seed, a number and a field."""

import numpy as np
import pytest

from arkflow_ray.components.inputs.counted_draws import BOUND_MAX, Draws

MANY = np.arange(40_000, dtype=np.int64)


def test_a_value_depends_on_its_number_and_not_on_its_neighbours() -> None:
    whole = Draws(7, MANY)
    some = np.array([39_999, 0, 17, 17], np.int64)
    part = Draws(7, some)
    assert part.bits(3).tolist() == whole.bits(3)[some].tolist()
    assert part.below(3, 1000).tolist() == whole.below(3, 1000)[some].tolist()
    texts = whole.letters(3, 0, 20).to_pylist()
    assert part.letters(3, 0, 20).to_pylist() == [texts[number] for number in some]


def test_seeds_and_fields_make_other_values() -> None:
    drawn = [Draws(seed, MANY[:64]).bits(field).tolist() for seed in (0, 1) for field in (0, 1)]
    assert len({value for values in drawn for value in values}) == 4 * 64


@pytest.mark.parametrize("bound", [1, 2, 7, BOUND_MAX])
def test_integers_fill_their_range_evenly(bound: int) -> None:
    drawn = Draws(1, MANY).below(0, bound)
    parts = min(bound, 8)
    shares = np.bincount(drawn // (bound // parts), minlength=parts) / len(MANY)
    assert len(shares) == parts
    assert np.allclose(shares, 1 / parts, atol=0.01)


def test_a_bound_may_differ_from_number_to_number() -> None:
    bounds = MANY % 5 + 1
    drawn = Draws(1, MANY).below(0, bounds)
    assert (drawn < bounds).all()
    assert set(drawn[bounds == 5].tolist()) == set(range(5))


def test_texts_are_letters_of_all_lengths_between_two() -> None:
    texts = Draws(1, MANY).letters(0, 3, 11).to_pylist()
    assert {len(str(text)) for text in texts} == set(range(3, 12))
    assert set("".join(map(str, texts))) == set("abcdefghijklmnopqrstuvwxyz")
    assert Draws(1, MANY[:0]).letters(0, 3, 11).to_pylist() == []
