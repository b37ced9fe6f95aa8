"""Every way to compute a convolution, forced, on every device, against a loop over positions."""

import numpy as np
import pytest
from conftest import DEVICES, absent, vulkan
from hypothesis import given, settings
from hypothesis import strategies as st
from mutants import broken

import tinyadept as ta
import tinyadept.functional as F
from tinyadept import oracle
from tinyadept.backends.vulkan.debug import Poison, body
from tinyadept.backends.vulkan.drivers import conv, conv_product, conv_tiles, winograd
from tinyadept.ops import convolution, registry
from tinyadept.ops.convolution import allowing, explained, using
from tinyadept.oracle.bounds import WINOGRAD, winograd_bound
from tinyadept.view import View

PATHS = {
    "numpy": ("im2col", "banded", "pointwise", "depthwise", "winograd2", "winograd4"),
    "lanes": ("lanes", "winograd2", "winograd4"),
    "tiles": ("lanes", "tiles", "depthwise", "winograd2", "winograd4"),
}
SHAPES = {  # of input and weight, and what else is not 1
    "square": ((2, 6, 9, 8), (6, 6, 3, 3), {"padding": 1}),
    "groups": ((1, 8, 7, 13), (4, 4, 3, 3), {"padding": 1, "groups": 2}),
    "depthwise": ((2, 6, 9, 8), (6, 1, 3, 3), {"padding": 1, "groups": 6}),
    "depthwise in steps": (
        (2, 6, 9, 8),
        (6, 1, 3, 2),
        {"stride": 2, "dilation": 2, "padding": 2, "groups": 6},
    ),
    "pointwise": ((2, 8, 6, 6), (12, 4, 1, 1), {"groups": 2}),
    "steps": ((2, 5, 11, 9), (7, 5, 3, 3), {"stride": 2, "padding": 1}),
    "not padded": ((3, 3, 10, 5), (5, 3, 3, 3), {}),
    "steps beyond the window": ((1, 5, 8, 7), (6, 5, 2, 2), {"stride": 3}),
}


def looped(x, w, g, stride=1, padding=0, dilation=1, groups=1):
    """Result and both gradients in float64, one position after another."""
    x, w, g = (a.astype(np.float64) for a in (x, w, g))
    wide = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    dwide, dw, y = np.zeros_like(wide), np.zeros_like(w), np.zeros(g.shape)
    size, share = w.shape[1], w.shape[0] // groups
    for n, o, i, j in np.ndindex(*g.shape):
        channels = slice(o // share * size, o // share * size + size)
        rows = slice(i * stride, i * stride + dilation * (w.shape[2] - 1) + 1, dilation)
        columns = slice(j * stride, j * stride + dilation * (w.shape[3] - 1) + 1, dilation)
        window = (n, channels, rows, columns)
        y[n, o, i, j] = (wide[window] * w[o]).sum()
        dwide[window] += g[n, o, i, j] * w[o]
        dw[o] += g[n, o, i, j] * wide[window]
    return y, dwide[:, :, padding : padding + x.shape[2], padding : padding + x.shape[3]], dw


@pytest.fixture(params=["numpy", *(pytest.param(name, marks=absent) for name in ("lanes", "tiles"))])
def ways(request, monkeypatch):
    """A device with one of its bodies, and the names of its ways."""
    if request.param == "numpy":
        yield "numpy", PATHS["numpy"]
        return
    monkeypatch.setattr(conv, "FEW_ROWS", 0)
    monkeypatch.setattr(winograd, "MOST_WORDS", 1 << 12)  # less than all samples have
    gpu = vulkan()
    with body(gpu, request.param == "tiles", 4):
        yield gpu, PATHS[request.param]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_way_is_the_loop(ways, shape):
    device, paths = ways
    sizes, kernel, params = SHAPES[shape]
    rng = np.random.default_rng(0)
    x, w, b = (rng.uniform(-1, 1, s).astype(np.float32) for s in (sizes, kernel, kernel[:1]))
    out = F.conv2d(ta.tensor(x), ta.tensor(w), None, **params).shape
    g = rng.uniform(-1, 1, out).astype(np.float32)
    truth = looped(x, w, g, **params)
    truth = (truth[0] + b.reshape(-1, 1, 1), *truth[1:])
    taken = set()
    for path in paths:
        given = [ta.tensor(a, device=device, requires_grad=True) for a in (x, w, b)]
        with using(path), explained() as chosen:
            y = F.conv2d(*given, **params)
            y.backward(ta.tensor(g, device=device))
        taken |= {choice.path for _, choice in chosen}
        assert any(choice == (path, "forced") for _, choice in chosen) == (
            path in {c.path for _, c in chosen}
        )
        for got, want in zip((y.detach(), given[0].grad, given[1].grad), truth, strict=True):
            np.testing.assert_allclose(got.numpy(), want, rtol=2e-5, atol=5e-5, err_msg=path)
    assert {
        "square": {"winograd2", "winograd4"},
        "depthwise": {"depthwise"} if "depthwise" in paths else set(),
    }.get(shape, set()) <= taken


@st.composite
def square(draw):
    """A convolution that Winograd's ways can compute."""
    draw_int = lambda low, high: draw(st.integers(low, high))  # noqa: E731
    rng = np.random.default_rng(draw_int(0, 999))
    groups, n = draw_int(1, 2), draw_int(1, 3)
    c, o = groups * draw_int(1, 9), groups * draw_int(1, 9)
    pads = [(draw_int(-1, 2), draw_int(0, 2)) for _ in range(2)]
    cells = [draw_int(4, 11) for _ in range(2)]
    scales = draw(st.sampled_from((0.0, 3.0)))  # of the exponents: cells may differ by orders of magnitude
    arrays = [
        rng.uniform(-1, 1, shape) * np.exp(scales * rng.standard_normal(shape))
        for shape in ((n, c, *cells), (o, c // groups, 3, 3))
    ]
    inputs = tuple(oracle.laid_out(draw, a.astype(np.float32)) for a in arrays)
    params = {"stride": (1, 1), "padding": tuple(pads), "dilation": (1, 1), "groups": groups}
    return oracle.Case(registry["conv"], inputs, params)


@pytest.mark.parametrize("side", WINOGRAD)
@settings(max_examples=25)
@given(case=square())
def test_winograd_lies_within_its_bound(ways, side, case):
    device, _ = ways
    truth = case.truth()
    with using(f"winograd{side}"), explained() as chosen:
        got = case.run(device)[0].detach().numpy()
    assert chosen[0][1].path == f"winograd{side}"
    wrong = oracle.mismatch(got, truth, winograd_bound(case, side))
    assert not wrong.any(), f"{got[wrong][0]} where {truth[wrong][0]} is expected"


def test_the_bound_would_notice_a_wrong_transform(monkeypatch):
    from tinyadept.ops import winograd as reference

    case = oracle.Case(
        registry["conv"],
        tuple(
            oracle.Given(
                np.random.default_rng(0).uniform(-1, 1, np.prod(s)).astype(np.float32), View.dense(s)
            )
            for s in ((1, 4, 8, 8), (4, 4, 3, 3))
        ),
        {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1},
    )
    own = reference.transforms
    for side in WINOGRAD:
        for at in range(3):

            def slightly(side, dtype, at=at):
                matrices = [m.copy() for m in own(side, dtype)]
                matrices[at][0, 0] *= 1.01
                return tuple(matrices)

            monkeypatch.setattr(reference, "transforms", slightly)
            with using(f"winograd{side}"):
                got = case.run()[0].detach().numpy()
            assert oracle.mismatch(got, case.truth(), winograd_bound(case, side)).any()
            monkeypatch.setattr(reference, "transforms", own)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_what_is_not_finite_spoils_only_what_meets_it(ways, value):
    device, _ = ways
    x, w = np.ones((1, 2, 9, 9), np.float32), np.ones((3, 2, 3, 3), np.float32)
    x[0, 1, 4, 4] = value
    g, spoiled = np.ones((1, 3, 9, 9), np.float32), w.copy()
    g[0, 1, 0, 8] = value
    spoiled[0, 0, 1, 0] = value
    for side in WINOGRAD:
        with using(f"winograd{side}"), np.errstate(invalid="ignore"):
            y = F.conv2d(ta.tensor(x, device=device), ta.tensor(w, device=device), padding=1).numpy()
            assert (~np.isfinite(y)).sum() == 3 * 9 and not np.isfinite(y[0, :, 3:6, 3:6]).any()
            params = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}
            for changed, kernel in ((g, w), (np.ones_like(g), spoiled)):
                given = tuple(oracle.Given(a.ravel(), View.dense(a.shape)) for a in (changed, kernel))
                case = oracle.Case(registry["conv_input"], given, {"shape": (1, 2, 9, 9), **params})
                dx = case.run(device)[0].numpy()
                with using("im2col"):  # also of the truth
                    assert not oracle.mismatch(dx, case.truth(), 1e-4).any()


@pytest.mark.parametrize("device", DEVICES)
def test_larger_errors_need_leave(device):
    large = convolution.Geometry(
        "f", 4, (256, 256), (40, 40), (40, 40), (3, 3), (1, 1), ((1, 1),) * 2, (1, 1), 1
    )

    def chosen():
        if device == "numpy":
            return convolution.choose("conv", large)
        ones, dense = (1, 1), (1, 1, 1, 1)
        how = conv_product.Product(
            "conv", 256, 16, 256, 1, (40, 40), (3, 3), (40, 40), ones, ones, ones, dense, dense
        )
        with body(vulkan(), True):
            return conv.choose(vulkan(), how, np.dtype(np.float32))

    assert chosen().path == ("im2col" if device == "numpy" else "winograd2")
    with allowing():
        assert chosen().path in ("im2col", "tiles")
    with allowing("winograd2", "winograd4"):
        assert chosen().path == "winograd4" and "3 × 3 cells" in chosen().why
    assert convolution.allowed == {"winograd2"}


MUTANTS = [
    ("conv_tiles.comp", "tiles", "at_b##k += DEPTH * push.b_inner;", "at_b##k += push.b_inner;"),
    ("conv_tiles.comp", "tiles", "p.tap_first[axis] = first,", "p.tap_first[axis] = 0,"),
    ("conv_tiles.comp", "tiles", "if (left > 1) v.y = b[at + push.b_inner];", ""),
    ("conv_tiles.comp", "tiles", "if (uint(cell.z) < end) v.x", "v.x"),
    ("conv_tiles.comp", "tiles", "group * push.b_group + outer##k", "outer##k"),
    ("conv_tiles.comp", "tiles", "for (int rest = last - first - 1;", "for (int rest = last - first - 2;"),
    ("conv_tiles.comp", "tiles", "if (outer >= push.outers) return NOWHERE;", ""),
    ("conv_pack.comp", "tiles", "inner < push.inners ?", "inner + 1u < push.inners ?"),
    ("depthwise.comp", "depthwise", "CELLS(5) MEET(3, 6, 7, 8)", ""),
    ("depthwise.comp", "depthwise", "i < min(all_positions, (part + 1) * each)", "i < (part + 1) * each - 1"),
    (
        "depthwise.comp",
        "depthwise",
        "channel / push.many * push.b_group + sample_",
        "channel * push.b_group + sample_",
    ),
    ("winograd.comp", "winograd2", "v[1] - v[2] - v[3]", "v[1] - v[2] + v[3]"),
    ("winograd.comp", "winograd4", "apart + 8.0 * wide + v[5]", "apart + 8.0 * wide"),
    ("winograd.comp", "winograd4", "left + c < push.places[1]", "true"),
]


@absent
@pytest.mark.slow
@pytest.mark.parametrize(("template", "path", "right", "wrong"), MUTANTS)
def test_a_broken_kernel_is_noticed(template, path, right, wrong, tmp_path, monkeypatch):
    gpu = vulkan()
    monkeypatch.setattr(conv, "FEW_ROWS", 0)
    monkeypatch.setattr(conv_tiles, "forced", (conv_tiles.TILES[-1], 1))
    noticed = False
    with body(gpu, True, 4), broken(gpu, tmp_path, template, right, wrong), using(path):
        for sizes, kernel, params in (*SHAPES.values(), DEEP, SEVERAL):
            x, w = (np.random.default_rng(0).uniform(-1, 1, s).astype(np.float32) for s in (sizes, kernel))
            with Poison(gpu.allocator, gpu.transfer) as poison:
                got, want = (both(device, x, w, params) for device in (gpu, "numpy"))
                try:
                    poison.check()
                except AssertionError:
                    noticed = True
            pairs = zip(got, want, strict=True)
            noticed = noticed or not all(np.allclose(a, b, rtol=1e-3, atol=1e-3) for a, b in pairs)
            if noticed:
                return
    raise AssertionError("no shape showed it")


DEEP = (2, 20, 9, 12), (9, 20, 3, 3), {"padding": 1}
SEVERAL = (2, 3, 8, 8), (6, 1, 3, 3), {"padding": 1, "groups": 3}


def both(device, x, w, params):
    """Result and gradients."""
    given = [ta.tensor(a, device=device, requires_grad=True) for a in (x, w)]
    y = F.conv2d(*given, **params)
    (y * y).sum().backward()
    return y.detach().numpy(), given[0].grad.numpy(), given[1].grad.numpy()
