"""Indexing and assignment against NumPy, and their gradients."""

import numpy as np
import pytest

import tinyadept as ta

A = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
MASK = A % 3 == 0
ROW = np.array([2, 0, 0])
TABLE = np.array([[0, 1], [-1, 3]])

KEYS = [
    0, -1, (1, 2), (slice(None), 1), ..., (..., 0), (0, ..., -1), None, (None, 0), (slice(None), None, 2),
    slice(None, None, -1), (slice(1, None), slice(0, 3, 2)), (slice(None, None, -2), ..., slice(3, 0, -1)),
    (slice(5, 9),), (slice(None), ROW), (slice(None), [2, 0]), (slice(None), slice(None), TABLE),
    ([0, 1, 0], ROW), (slice(None), ROW, ROW), (slice(None), ROW, slice(None), ROW),
    ([0, 1, 1], slice(None), ROW),
    (None, [1, 0], slice(1), ...), MASK, (slice(None), MASK[0]), (slice(None), slice(None), MASK[0, 0]),
    (0, MASK[0]), (slice(None), np.array([True, False, True])), (..., np.array([-1, 2])),
    np.zeros((2, 3), bool), (np.array([], int),),
]  # fmt: skip


def ours(key):
    """The key with its arrays as tensors."""
    if isinstance(key, tuple):
        return tuple(ours(entry) for entry in key)
    return ta.tensor(key) if isinstance(key, np.ndarray) and key.size else key


def expected_of(key):
    """NumPy's answer; an int beside arrays is a plain selection, as in PyTorch."""
    return A[key]


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_reading(key):
    np.testing.assert_array_equal(ta.tensor(A)[ours(key)].numpy(), expected_of(key))


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_gradient_of_reading(key):
    x = ta.tensor(A, requires_grad=True)
    y = x[ours(key)]
    incoming = np.arange(1, y.numel() + 1, dtype=np.float32).reshape(y.shape)
    y.backward(ta.tensor(incoming))
    want = np.zeros_like(A)
    np.add.at(want, key, incoming)
    np.testing.assert_array_equal(x.grad.numpy(), want)


@pytest.mark.parametrize("key", KEYS, ids=repr)
@pytest.mark.parametrize("kind", ["number", "array"])
def test_writing(key, kind):
    x, want = ta.tensor(A), A.copy()
    shape = expected_of(key).shape
    value = -7.0 if kind == "number" else -np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
    x[ours(key)] = value
    want[key] = value
    np.testing.assert_array_equal(x.numpy(), want)


@pytest.mark.parametrize(
    "key", [key for key in KEYS if np.unique(np.arange(120).reshape(A.shape)[key]).size], ids=repr
)
def test_gradient_of_writing(key):
    positions = np.arange(A.size).reshape(A.shape)[key]
    if np.unique(positions).size < positions.size:
        return  # of duplicates the last is written: no single derivative
    base, value = ta.tensor(A, requires_grad=True), ta.tensor(np.ones(positions.shape), requires_grad=True)
    x = base * 1
    x[ours(key)] = value
    incoming = np.arange(1, A.size + 1, dtype=np.float32).reshape(A.shape)
    x.backward(ta.tensor(incoming))
    rest = incoming.copy()
    rest[key] = 0
    np.testing.assert_array_equal(base.grad.numpy(), rest)
    np.testing.assert_array_equal(value.grad.numpy(), incoming[key])


def test_writing_reaches_the_memory_of_a_view():
    base = ta.zeros(4, 6)
    base.T[1:3, ::2] = ta.tensor([5.0, 6.0])
    assert base.tolist()[0] == [0, 5, 5, 0, 0, 0] and base.tolist()[2] == [0, 6, 6, 0, 0, 0]


def test_overlapping_assignment_reads_before_it_writes():
    x = ta.arange(6)
    x[1:] = x[:-1]
    assert x.tolist() == [0, 0, 1, 2, 3, 4]


def test_values_are_converted_to_the_tensor_written():
    x = ta.zeros(3, dtype=ta.int32)
    x[0] = 2.7
    x[1:] = ta.tensor([True, False])
    assert x.tolist() == [2, 1, 0]


def test_a_view_is_no_copy():
    x = ta.zeros(2, 3)
    assert x[1, ::2].buffer is x.buffer
    assert x.flip(0).buffer is x.buffer and x.T.reshape(3, 1, 2).buffer is x.buffer


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        (2, IndexError, "index 2 is out of range for axis 0 of length 2"),
        ((0, 0, 0, 0, 0), IndexError, "too many indices for a tensor of 4 axes: got 5"),
        ((..., ...), IndexError, "one ellipsis"),
        (1.5, TypeError, "cannot index with float"),
        ([0, 2], IndexError, "index 2 is out of range for an axis of length 2"),
        (np.zeros((3,), bool), IndexError, "mask of shape"),
        ("a", TypeError, "cannot index with str"),
        ("1", TypeError, "cannot index with str"),
    ],
)
def test_bad_keys(key, error, message):
    with pytest.raises(error, match=message):
        ta.tensor(A)[ours(key)]


def test_values_that_do_not_fit():
    x = ta.zeros(2, 3)
    with pytest.raises(ValueError, match=r"\(4,\).*\(3,\)|\(3,\)"):
        x[0] = ta.ones(4)
    assert (x == 0).all()


def test_scatter_and_gather_refuse_bad_indices():
    x = ta.zeros(2, 3)
    with pytest.raises(IndexError, match="3 is out of range"):
        x.gather(1, ta.tensor([[3]]))
    with pytest.raises(IndexError, match="-1 is out of range"):
        x.gather(1, ta.tensor([[-1]]))
    with pytest.raises(TypeError, match="integer tensor"):
        x.gather(1, ta.tensor([[1.0]]))
    with pytest.raises(ValueError, match="does not fit"):
        x.gather(1, ta.tensor([[0], [1], [2]]))
