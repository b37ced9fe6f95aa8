"""Inputs on which tensor engines have failed, with the right answers; each stands for a kind of fault."""

import math
import warnings

import numpy as np
import pytest

import tinyadept as ta
import tinyadept.functional as F

NAN, INF = float("nan"), float("inf")


def leaf(values, dtype=None):
    return ta.tensor(values, dtype=dtype, requires_grad=True)


def gradient(function, x, incoming=None):
    y = function(x)
    y.backward(ta.tensor(incoming) if incoming is not None else ta.ones(*y.shape) if y.shape else None)
    return x.grad.numpy()


# --- tape ---


def test_power_of_a_difference():
    a, b = leaf(1.0), leaf(1.0)
    ((a - b) ** b).backward(ta.tensor(123.0))
    assert (a.grad.item(), b.grad.item()) == (123, -123)


def test_broadcast_square():
    arr = leaf(np.ones((3, 3)))
    ((arr + ta.ones(3, 3, 3)) ** 2).backward(ta.ones(3, 3, 3))
    assert (arr.grad.numpy() == 12).all()


# --- elementwise ---


def test_powers_of_negative_numbers():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = leaf(-1.0)
        y = x**2
        y.backward()
        assert (y.item(), x.grad.item()) == (1, -2)
        x = leaf([-3.0, -2.0, -1.0])
        y = x**3
        y.sum().backward()
        assert y.tolist() == [-27, -8, -1] and x.grad.tolist() == [27, 12, 3]


def test_power_zero_and_squared_distance_at_zero():
    x = leaf(0.0)
    y = x**0
    y.backward()
    assert (y.item(), x.grad.item()) == (1, 0)
    p = leaf([0.5, 2.0])
    ((p - ta.tensor([0.5, 2.0])) ** 2).sum().backward()
    assert p.grad.tolist() == [0, 0]


def test_sigmoid_and_silu_far_out():
    got = F.sigmoid(ta.tensor([-1000.0, -100.0, -20.0, -10.0])).numpy()
    np.testing.assert_allclose(got, [0, 3.8e-44, 2.0611537e-09, 4.5397868e-05], rtol=1e-6, atol=1.2e-38)
    got = F.silu(ta.tensor([-1000.0, -20.0])).numpy()
    np.testing.assert_allclose(got, [0, -4.1223073e-08], rtol=1e-6)
    assert math.copysign(1, got[0]) == -1


def test_exp_overflows_and_underflows_quietly():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ta.tensor([1000.0, -1000.0]).exp().tolist() == [INF, 0]


def test_gelu_by_tanh_does_not_overflow():
    assert F.gelu(ta.tensor(20.625), approximate="tanh").item() == 20.625


def test_nan_is_never_lost():
    assert math.isnan(F.relu(ta.tensor(NAN)).item())
    x = ta.tensor([1.0, NAN, 3.0])
    assert math.isnan(x.max().item()) and math.isnan(x.min().item()) and math.isnan(x.amax().item())
    assert x.argmax().item() == 1 and x.argmin().item() == 1
    values, index = x.max(0)
    assert math.isnan(values.item()) and index.item() == 1
    assert math.isnan(x.clamp(0, 2).tolist()[1])
    assert math.isnan(F.maximum(x, 2.0).tolist()[1]) and math.isnan(F.minimum(x, 2.0).tolist()[1])
    pooled = F.max_pool1d(ta.tensor([[[1.0, NAN, 3.0, 0.0]]]), 2)
    assert math.isnan(pooled.tolist()[0][0][0]) and pooled.tolist()[0][0][1] == 3


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "silu", "relu"])
def test_backward_through_a_permuted_view(name):
    base = np.random.default_rng(0).standard_normal((1, 7, 4, 3)).astype(np.float32)
    view, dense = leaf(base), leaf(base.transpose(0, 3, 1, 2).copy())
    incoming = np.random.default_rng(1).standard_normal((1, 3, 7, 4)).astype(np.float32)
    getattr(F, name)(view.permute(0, 3, 1, 2)).backward(ta.tensor(incoming))
    getattr(F, name)(dense).backward(ta.tensor(incoming))
    np.testing.assert_array_equal(view.grad.numpy().transpose(0, 3, 1, 2), dense.grad.numpy())


def test_slopes_at_the_corners():
    assert gradient(F.relu, leaf([0.0, 1.0, -1.0])).tolist() == [0, 1, 0]
    assert gradient(lambda x: x.clamp(-1, 1), leaf([-1.0, 1.0, 2.0, 0.5])).tolist() == [1, 1, 0, 1]
    assert gradient(lambda x: F.maximum(x, ta.tensor([1.0, 0.0])), leaf([1.0, 1.0])).tolist() == [0.5, 1]
    assert gradient(lambda x: x.amax(), leaf([2.0, 1.0, 2.0])).tolist() == [0.5, 0, 0.5]
    assert gradient(lambda x: x.max(0).values, leaf([2.0, 1.0, 2.0])).tolist() == [1, 0, 0]
    assert gradient(lambda x: x.norm(), leaf([0.0, 0.0])).tolist() == [0, 0]
    assert gradient(lambda x: x.abs(), leaf([0.0, -2.0])).tolist() == [0, -1]


# --- reductions, softmax, norms, losses ---


def test_logsumexp_of_nothing_likely():
    assert ta.tensor([-INF, -INF]).logsumexp(0).item() == -INF
    assert np.isfinite(gradient(lambda x: x.logsumexp(0), leaf([-INF, 0.0]))).all()


def test_softmax_of_large_logits_and_short_rows():
    got = ta.tensor([1000.0, 1001.0, 1002.0]).softmax(0).numpy()
    np.testing.assert_allclose(got, [0.09003057, 0.24472847, 0.66524096], rtol=1e-6)
    short = ta.tensor([[3.0, 1.0]]).log_softmax(1)
    assert np.isfinite(short.numpy()).all() and short.exp().sum().item() == pytest.approx(1)


def test_variance_of_large_numbers_and_of_a_constant():
    x = ta.tensor([1e4, 1e4 + 1, 1e4 + 2, 1e4 + 3])
    assert x.var(correction=0).item() == 1.25
    assert x.var().item() == pytest.approx(5 / 3)
    assert F.layer_norm(ta.full((8,), 100.0), (8,)).tolist() == [0] * 8


def test_sums_are_compensated():
    x = ta.tensor([2.0**24] + [1.0] * 64)
    assert x.sum().item() == 16777280
    assert x.cumsum(0).tolist()[-1] == 16777280
    assert ta.stack([x, x]).sum(1).tolist() == [16777280] * 2


def test_cross_entropy_labels():
    logits = leaf(np.zeros((6, 3)))
    with pytest.raises(IndexError, match="7 is out of range for an axis of length 3"):
        F.cross_entropy(logits, ta.tensor([0, 1, 7, 0, 1, 2]))
    with pytest.raises(IndexError, match="-1"):
        F.cross_entropy(logits, ta.tensor([0, 1, -1, 0, 1, 2]))
    loss = F.cross_entropy(logits, ta.tensor([0, 1, 255, 0, 1, 2]), ignore_index=255, reduction="none")
    assert loss.tolist()[2] == 0 and loss.tolist()[0] == pytest.approx(math.log(3))


def test_bce_with_a_huge_logit():
    x = leaf(1000.0)
    loss = F.binary_cross_entropy_with_logits(x, ta.tensor(0.0))
    loss.backward()
    assert (loss.item(), x.grad.item()) == (1000, 1)


def test_entropy_of_certainty():
    p = ta.tensor([0.0, 1.0])
    assert F.kl_div(ta.tensor([-1.0, -1.0]), p, reduction="sum").item() == 1


# --- windows ---


def test_overlapping_max_windows_add_up():
    x = np.zeros((1, 1, 3, 3), np.float32)
    x[0, 0, 1, 1] = 9
    x = leaf(x)
    y = F.max_pool2d(x, 2, 1)
    y.backward(ta.ones(1, 1, 2, 2), retain_graph=True)
    assert x.grad.tolist()[0][0][1][1] == 4
    once = x.grad.clone()
    x.grad = None
    y.backward(ta.ones(1, 1, 2, 2))
    assert (x.grad == once).all()


def test_padding_never_wins():
    assert F.max_pool2d(ta.full((1, 1, 2, 2), -INF), 2).item() == -INF
    negative = F.max_pool2d(ta.full((1, 1, 2, 2), -5.0), 2, 1, 1)
    assert (negative == -5).all()
    values, index = F.max_pool2d(ta.full((1, 1, 2, 2), -INF), 2, 1, 1, return_indices=True)
    assert ((index >= 0) & (index < 4)).all() and (values == -INF).all()


def test_pool_stride_is_the_kernel():
    assert F.max_pool2d(ta.zeros(1, 1, 4, 4), 2).shape == (1, 1, 2, 2)
    assert F.avg_pool2d(ta.zeros(1, 1, 4, 4), 2).shape == (1, 1, 2, 2)


def test_avg_pool_with_ceil_mode():
    x = leaf(np.zeros((1, 1, 5)))
    F.avg_pool1d(x, 2, 2, ceil_mode=True).backward(ta.tensor([[[2.0, 4.0, 8.0]]]))
    assert x.grad.tolist() == [[[1, 1, 2, 2, 8]]]


def test_rows_that_no_window_sees():
    x = leaf(np.ones((1, 1, 8, 8)))
    F.conv2d(x, ta.ones(1, 1, 3, 3), stride=2).sum().backward()
    assert x.grad.shape == (1, 1, 8, 8) and (x.grad[0, 0, 7] == 0).all()


def test_a_convolution_of_65536_samples():
    w = leaf([[[1.0]]])
    F.conv1d(ta.ones(65536, 1, 1), w).mean().backward()
    assert w.grad.item() == 1


def test_an_infinity_reaches_only_the_weights_that_see_it():
    x = np.zeros((1, 1, 4, 4), np.float32)
    x[0, 0, 1, 0] = INF  # the leftmost column: no window sees it in its right cells
    w = leaf(np.ones((1, 1, 2, 2)))
    F.conv2d(ta.tensor(x), w).sum().backward()
    assert w.grad.tolist() == [[[[INF, 0], [INF, 0]]]]


def test_convolution_is_cut_into_pieces(monkeypatch):
    from tinyadept.ops import im2col

    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 4, 11, 9)).astype(np.float32)
    w = rng.standard_normal((6, 2, 3, 2)).astype(np.float32)

    def everything():
        a, b = leaf(x), leaf(w)
        y = F.conv2d(a, b, padding=1, dilation=(1, 2), groups=2)
        (y * y).sum().backward()
        return y.detach().numpy(), a.grad.numpy(), b.grad.numpy()

    whole = everything()
    monkeypatch.setattr(im2col, "CHUNK_BYTES", 1000)
    for got, want in zip(everything(), whole, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_convolution_memory_is_bounded():
    import tracemalloc

    from tinyadept.ops import im2col

    x, w = ta.ones(1, 16, 256, 256), ta.ones(16, 16, 3, 3)
    with ta.no_grad():
        tracemalloc.start()
        F.conv2d(x, w, padding=1)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    output, padded = 16 * 256 * 256 * 4, 16 * 258 * 258 * 4
    piece = im2col.CHUNK_BYTES * 9 // 8  # unfolded, and the results: a ninth of it
    assert peak < output + padded + 2 * piece, f"{peak} bytes where unfolding it all would take {9 * padded}"


# --- shapes and sizes ---


def test_numpy_views_keep_their_values():
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    for view in (a.T, a[::2], a[::-1], a[:, ::-2], a[1], a[:, 2]):
        np.testing.assert_array_equal(ta.Tensor(view).numpy(), view)
        np.testing.assert_array_equal(ta.from_numpy(view).numpy(), view)


def test_empty_and_0d():
    assert ta.zeros(0, 3).sum().item() == 0
    assert ta.zeros(0, 3).sum(0).tolist() == [0, 0, 0]
    assert (ta.zeros(2, 0) @ ta.zeros(0, 3)).tolist() == [[0, 0, 0]] * 2
    assert (ta.tensor(3.0) * 2).item() == 6 and ta.tensor(3.0).shape == ()
    assert ta.zeros(0).mean().isnan().item()
    assert F.conv2d(ta.zeros(0, 1, 4, 4), ta.ones(2, 1, 3, 3)).shape == (0, 2, 2, 2)
    with pytest.raises(ValueError, match="nothing to choose from"):
        ta.zeros(0).max()


def test_matmul_batches_broadcast():
    a = np.random.default_rng(0).standard_normal((2, 1, 2, 3)).astype(np.float32)
    b = np.random.default_rng(1).standard_normal((4, 3, 2)).astype(np.float32)
    np.testing.assert_allclose((ta.tensor(a) @ ta.tensor(b)).numpy(), a @ b, rtol=1e-5)


def test_more_than_65535_products():
    out = ta.ones(300, 300, 4, 5) @ ta.ones(300, 300, 5, 6)
    assert out.shape == (300, 300, 4, 6) and (out == 5).all()


# --- numbers and dtypes ---


def test_python_numbers_are_weak():
    assert (ta.tensor([1, 2]) + 1.5).dtype == ta.float32
    assert (ta.tensor([1, 2]) * 2).dtype == ta.int32
    assert (ta.tensor([1.0], dtype=ta.float64) * 2.5).dtype == ta.float64
    assert (ta.tensor([True]) + 1).dtype == ta.int32
    assert (ta.tensor([1], dtype=ta.uint8) + ta.tensor([1])).dtype == ta.int32
    assert (ta.tensor([1], dtype=ta.int64) + ta.tensor([1.0])).dtype == ta.float32
    assert (ta.tensor([1.0]) * ta.tensor(2.0, dtype=ta.float64)).dtype == ta.float32
    assert (np.float64(2) * ta.tensor([1.0])).dtype == ta.float32


def test_bytes_compare_with_every_number():
    x = ta.tensor([0, 7, 255], dtype=ta.uint8)
    assert (x == -1).tolist() == (x > 255).tolist() == [False] * 3
    assert (x < 256).tolist() == (x > -1).tolist() == (x != 300).tolist() == [True] * 3
    assert (x >= 255).tolist() == [False, False, True]
    with pytest.raises(OverflowError, match="does not fit uint8"):
        x + 300


def test_ints_become_int32_or_raise():
    assert ta.tensor([1, 2]).dtype == ta.int32
    assert ta.tensor(np.arange(3)).dtype == ta.int32
    assert ta.tensor(np.ones(2)).dtype == ta.float32
    with pytest.raises(OverflowError, match="2147483648 does not fit int32"):
        ta.tensor([2**31])
    with pytest.raises(OverflowError, match="does not fit int32"):
        ta.tensor([1]) + 2**40
    assert ta.tensor([2**40], dtype=ta.int64).item() == 2**40
    assert ta.from_numpy(np.arange(3)).dtype == ta.int64
    assert ta.tensor([True, False]).sum().dtype == ta.int32


def test_bad_data_says_why():
    for data in (["a"], [None], [1j]):
        with pytest.raises(TypeError, match="numbers or booleans"):
            ta.tensor(data)
    with pytest.raises(ValueError):
        ta.tensor([[1, 2], [3]])
    with pytest.raises(TypeError, match="float16 is not supported"):
        ta.tensor([1.0], dtype="float16")
    with pytest.raises(TypeError, match="only floating-point"):
        ta.tensor([1], requires_grad=True)
    with pytest.raises(TypeError):
        ta.tensor([1.0]) + "a"


def test_truth_and_conversions():
    assert bool(ta.tensor([1.0])) and not ta.tensor(0)
    with pytest.raises(ValueError, match="ambiguous"):
        bool(ta.tensor([1, 2]))
    with pytest.raises(ValueError, match=r"shape \(2,\)"):
        ta.tensor([1, 2]).item()
    assert [10, 20, 30][ta.tensor(1)] == 20
    with pytest.raises(TypeError, match="no index"):
        [1][ta.tensor(0.0)]
    assert f"{ta.tensor(1.23456):.2f}" == "1.23"
    assert 3 in ta.tensor([1, 2, 3]) and len(ta.zeros(4, 2)) == 4


def test_shape_mismatches_name_both_shapes():
    with pytest.raises(ValueError, match=r"add: shapes \(2, 3\) and \(4,\)"):
        ta.zeros(2, 3) + ta.zeros(4)
    with pytest.raises(ValueError, match=r"\(2, 3\) and \(2, 3\)"):
        ta.zeros(2, 3) @ ta.zeros(2, 3)
    with pytest.raises(ValueError, match=r"6 elements of shape \(2, 3\) do not fill shape \(4, 2\)"):
        ta.zeros(2, 3).reshape(4, 2)
    with pytest.raises(IndexError, match="axis 5"):
        ta.zeros(2, 3).sum(5)
    with pytest.raises(ValueError, match="twice"):
        ta.zeros(2, 3).sum((0, -2))


def test_unknown_devices():
    with pytest.raises(ta.DeviceError, match="no device 'cuda'"):
        ta.zeros(1, device="cuda")
    with pytest.raises(ta.DeviceError, match="vulkan"):
        ta.zeros(1).to("vulkan:99")


# --- no elements, no axes, no numbers ---


@pytest.mark.parametrize(
    ("function", "shape", "weight"),
    [
        (F.conv2d, (0, 3, 5, 5), (2, 3, 1, 1)),
        (F.conv2d, (0, 3, 5, 5), (2, 3, 3, 3)),
        (F.conv2d, (2, 3, 5, 5), (0, 3, 3, 3)),
        (F.conv2d, (2, 3, 5, 5), (0, 3, 1, 1)),
        (F.conv2d, (2, 0, 5, 5), (3, 0, 3, 3)),
        (lambda x: F.max_pool2d(x, 2), (0, 3, 4, 4), None),
        (lambda x: F.max_pool2d(x, 3, 1), (0, 3, 4, 4), None),
        (lambda x: F.avg_pool2d(x, 2), (0, 3, 4, 4), None),
    ],
)
def test_windows_of_no_elements(function, shape, weight):
    inputs = [leaf(np.zeros(n)) for n in (shape, weight) if n is not None]
    function(*inputs).sum().backward()
    assert [x.grad.shape for x in inputs] == [x.shape for x in inputs]
    assert not any(x.grad.numpy().any() for x in inputs)


@pytest.mark.parametrize("name", ["split", "chunk", "unbind", "narrow", "select"])
def test_a_0d_tensor_has_no_axes_to_cut(name):
    arguments = {"split": (1,), "chunk": (1,), "unbind": (), "narrow": (0, 0, 1), "select": (0, 0)}
    with pytest.raises(IndexError, match=f"{name}: a 0-d tensor has no axes"):
        getattr(ta.tensor(1.0), name)(*arguments[name])


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round", "sign"])
def test_steps_have_no_slope_even_where_the_gradient_is_infinite(name):
    assert gradient(lambda x: getattr(x, name)(), leaf([1.5]), [INF]).tolist() == [0]


@pytest.mark.parametrize("function", ["maximum", "minimum"])
def test_nan_passes_the_gradient_to_both(function):
    a, b = leaf([NAN, 1.0]), leaf([1.0, NAN])
    getattr(a, function)(b).sum().backward()
    assert a.grad.tolist() == b.grad.tolist() == [1, 1]


def test_the_standard_deviation_of_equal_numbers_has_slope_zero():
    assert gradient(lambda x: x.std(), leaf([2.0, 2.0, 2.0])).tolist() == [0, 0, 0]
    assert math.isnan(ta.tensor([1.0]).std().item())
