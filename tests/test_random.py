"""Random numbers: the generator's published vectors, reproducibility, and statistics."""

import numpy as np
import pytest

import tinyadept as ta
from tinyadept.ops.random import np_normal, philox
from tinyadept.random import Generator, get_state, set_state

# Known answers of Philox4x32-10 from the Random123 distribution: counter and key all zeros, and all ones.
ZEROS = (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)


def test_philox_gives_the_published_words():
    assert tuple(int(w) for w in philox(np.zeros(4, np.int32), 1)[0]) == ZEROS


def test_philox_counter_carries_into_its_second_word():
    start = np.array([1, 2, -1, 0], np.int32)  # the low word is about to overflow
    after = np.array([1, 2, 0, 1], np.int32)
    np.testing.assert_array_equal(philox(start, 2)[1], philox(after, 1)[0])


def test_a_seed_gives_the_same_numbers():
    ta.manual_seed(7)
    first = ta.rand(5).tolist(), ta.randn(3).tolist()
    ta.manual_seed(7)
    assert (ta.rand(5).tolist(), ta.randn(3).tolist()) == first
    ta.manual_seed(8)
    assert ta.rand(5).tolist() != first[0]


def test_draws_do_not_repeat_and_states_can_be_restored():
    ta.manual_seed(0)
    ta.rand(3)
    state = get_state()
    a, b = ta.rand(8).tolist(), ta.rand(8).tolist()
    assert not set(a) & set(b)
    set_state(state)
    assert ta.rand(8).tolist() == a


def test_the_counter_has_64_bits():
    generator = Generator(3)
    generator.state.copy_(np.array([3, 0, -1, 5], np.int32))
    ta.rand(8, generator=generator)
    assert generator.state.tolist() == [3, 0, 1, 6]


def test_large_and_negative_seeds():
    values = {tuple(ta.rand(2, generator=Generator(seed)).tolist()) for seed in (0, 1, -1, 2**40, 2**63)}
    assert len(values) == 5


def test_distributions():
    ta.manual_seed(1)
    u, z = ta.rand(200_000).numpy(), ta.randn(200_001).numpy()
    assert u.min() >= 0 and u.max() < 1 and abs(u.mean() - 0.5) < 0.003 and abs(u.var() - 1 / 12) < 0.001
    assert abs(z.mean()) < 0.01 and abs(z.std() - 1) < 0.01 and np.isfinite(z).all()
    assert abs((z**4).mean() - 3) < 0.15 and abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < 0.01


def test_normals_are_the_rounded_truth():
    state = np.array([5, 6, 7, 8], np.int32)
    pairs = philox(state, 1)[0] >> 8
    radius = np.sqrt(-2 * np.log((int(pairs[0]) + 1) / 2**24))
    assert np_normal(state, (1,))[0] == np.float32(radius * np.cos(2 * np.pi * int(pairs[1]) / 2**24))


def test_integers_permutations_and_dropout():
    ta.manual_seed(2)
    drawn = ta.randint(-2, 3, (10_000,))
    assert drawn.dtype == ta.int32 and set(drawn.tolist()) == {-2, -1, 0, 1, 2}
    assert sorted(ta.randperm(100).tolist()) == list(range(100))
    x = ta.ones(20_000, requires_grad=True)
    y = ta.functional.dropout(x, 0.25)
    kept = (y != 0).to(ta.float32)
    assert abs(kept.mean().item() - 0.75) < 0.02 and y.max().item() == pytest.approx(1 / 0.75)
    y.sum().backward()
    assert (x.grad == y.detach()).all()


def test_bad_requests():
    with pytest.raises(ValueError, match="negative"):
        ta.rand(-1)
    with pytest.raises(ValueError, match="between 1 and"):
        ta.randint(3, 3)
    with pytest.raises(ValueError, match="between 0 and 1"):
        ta.functional.dropout(ta.ones(1), 1.5)
