"""Views against NumPy's own indexing of an array that holds its positions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyadept.view import View, normal_axes, normal_axis, row_major

shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)


def read(view, memory):
    size = memory.itemsize
    return np.ndarray(view.shape, memory.dtype, memory, view.offset * size, [s * size for s in view.strides])


def cells(shape):
    return np.arange(max(1, int(np.prod(shape))), dtype=np.int64)


@st.composite
def views(draw):
    """A view reached by a few random moves, and the array that it should read."""
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple))
    memory, view = cells(shape), View.dense(shape)
    array = memory.reshape(shape)
    for _ in range(draw(st.integers(0, 3))):
        if draw(st.booleans()):
            order = draw(st.permutations(range(len(view.shape))))
            view, array = view.permute(order), array.transpose(order)
        else:
            key = tuple(
                slice(draw(st.none() | st.integers(0, n - 1)), None, draw(st.sampled_from((1, 2, -1))))
                for n in view.shape
            )
            view, array = view.index(key), array[key]
    return view, array, memory


@given(views())
def test_moves_read_what_numpy_reads(drawn):
    view, array, memory = drawn
    np.testing.assert_array_equal(read(view, memory), array)


@given(views())
def test_span_holds_every_cell_touched(drawn):
    view, array, _ = drawn
    low, high = view.span
    if array.size:
        assert (array.min(), array.max() + 1) == (low, high)


@given(views(), st.data())
def test_reshape_is_right_or_refuses(drawn, data):
    view, array, memory = drawn
    size = array.size
    factors = [n for n in range(1, size + 1) if size % n == 0] or [1]
    first = data.draw(st.sampled_from(factors))
    shape = data.draw(st.permutations([first, size // first if first else 0, 1]))
    new = view.reshape(tuple(shape))
    if new is None:
        assert not view.is_contiguous
    else:
        np.testing.assert_array_equal(read(new, memory), array.reshape(shape))


@given(shapes)
def test_dense_views_reshape_without_copy(shape):
    view = View.dense(shape)
    assert view.is_contiguous and view.reshape((view.size,)) is not None
    assert view.strides == row_major(shape)


def test_reshape_merges_only_what_is_dense():
    view = View.dense((4, 6)).index((slice(None), slice(0, 3)))  # rows of 3 in a pitch of 6
    assert view.reshape((2, 2, 3)) is not None
    assert view.reshape((12,)) is None
    assert View.dense((2, 3)).permute((1, 0)).reshape((6,)) is None
    assert View.dense((2, 3)).permute((1, 0)).reshape((3, 1, 2)) is not None


@pytest.mark.parametrize(
    ("view", "overlapping"),
    [
        (View.dense((3, 4)), False),
        (View.dense((1, 4)).expand((3, 4)), True),
        (View.dense((10,)).windows(0, 3, 1), True),
        (View.dense((10,)).windows(0, 3, 3), False),
        (View.dense((3, 4)).index((slice(None, None, -1), slice(None, None, 2))), False),
        (View((2, 0), (0, 0)), False),
    ],
)
def test_overlap(view, overlapping):
    assert view.overlaps is overlapping


def test_bad_moves_say_what_was_wrong():
    view = View.dense((2, 3))
    with pytest.raises(ValueError, match=r"\(2, 3\) to \(2, 4\)"):
        view.expand((2, 4))
    with pytest.raises(IndexError, match="index 3 is out of range for axis 1 of length 3"):
        view.index((0, 3))
    with pytest.raises(ValueError, match="windows of 4 every 1 from an axis of length 3"):
        view.windows(1, 4, 1)
    with pytest.raises(IndexError, match="axis 2 is out of range: expected -2 to 1"):
        normal_axis(2, 2)
    with pytest.raises(ValueError, match="twice"):
        normal_axes((0, -2), 2)
