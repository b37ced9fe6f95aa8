"""Values, gradients and errors against PyTorch's own OpInfo samples."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from opinfo_table import CALLS, DIFFERENCES, METHODS, ACCEPTED

import tinyadept as ta

torch = pytest.importorskip("torch")
from torch.testing._internal.common_methods_invocations import op_db

DTYPES = {"float32": torch.float32, "int32": torch.int32, "bool": torch.bool}
REFUSALS = (ValueError, TypeError, IndexError, RuntimeError, OverflowError, ZeroDivisionError, NotImplementedError)


def mapped(value: Any, leaf) -> Any:
    if isinstance(value, torch.Tensor):
        return leaf(value)
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, torch.dtype):
        return np.dtype(str(value).removeprefix("torch."))
    if isinstance(value, tuple | list):
        return type(value)(mapped(v, leaf) for v in value)
    if isinstance(value, dict):
        return {k: mapped(v, leaf) for k, v in value.items()}
    return value


def ours(x):
    y = ta.from_numpy(x.detach().numpy())
    return y.requires_grad_() if x.requires_grad else y


def flat(value):
    if isinstance(value, tuple | list):
        return [v for item in value for v in flat(item)]
    return [value]


def compare(expected, got, what):
    assert isinstance(got, ta.Tensor), f"{what}: got {type(got)}"
    wanted = str(expected.dtype).removeprefix("torch.")
    found = got.dtype.name
    assert found == wanted or (found, wanted) == ("int32", "int64"), f"{what}: dtype {found} where PyTorch has {wanted}"
    assert got.shape == tuple(expected.shape), f"{what}: shape {got.shape} where PyTorch has {tuple(expected.shape)}"
    actual = torch.from_numpy(np.array(got.detach().numpy()))
    torch.testing.assert_close(actual.to(expected.dtype), expected.detach(), equal_nan=True,
         msg=lambda m: f"{what}: {m}")


def tensors(v):
    return [x for x in flat(v if not isinstance(v, dict) else list(v.values())) if isinstance(x, torch.Tensor)]


def leaves(v, kind):
    if isinstance(v, kind):
        return [v]
    if isinstance(v, dict):
        v = list(v.values())
    if isinstance(v, tuple | list):
        return [y for x in v for y in leaves(x, kind)]
    return []


def check_sample(op, sample, generator):
    theirs = (sample.input, sample.args, sample.kwargs)
    expected = flat(op.op(sample.input, *sample.args, **sample.kwargs))
    mine = mapped(theirs, ours)
    got = flat(CALLS[op.name](mine[0], *mine[1], **mine[2]))
    assert len(expected) == len(got), f"{len(got)} results where PyTorch has {len(expected)}"
    for i, (e, g) in enumerate(zip(expected, got)):
        if isinstance(e, torch.Tensor):
            compare(e, g, f"result {i}")
        else:
            assert e == g
    pairs = [(e, g) for e, g in zip(expected, got) if isinstance(e, torch.Tensor) and e.requires_grad]
    if not pairs:
        return
    xs = [(a, b) for a, b in zip(leaves(theirs, torch.Tensor), leaves(mine, ta.Tensor)) if a.requires_grad]
    incoming = [torch.randn(e.shape, generator=generator, dtype=e.dtype) for e, _ in pairs]
    want = torch.autograd.grad([e for e, _ in pairs], [a for a, _ in xs], incoming, allow_unused=True)
    assert all(g.requires_grad for _, g in pairs), "no gradient flows where PyTorch has one"
    have = ta.grad([g for _, g in pairs], [b for _, b in xs], [ours(g) for g in incoming], allow_unused=True)
    for i, (w, h, (a, b)) in enumerate(zip(want, have, xs)):
        if w is None:
            w = torch.zeros_like(a)
        if h is None:
            h = ta.from_numpy(np.zeros(a.shape, "float32"))
        compare(w, h, f"gradient {i}")


OPS = [op for op in op_db if op.name in CALLS]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name + (f"-{op.variant_test_name}" if op.variant_test_name else ""))
@pytest.mark.parametrize("dtype", list(DTYPES))
def test_values(op, dtype):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    if DTYPES[dtype] not in op.dtypes:
        pytest.skip("no")
    failures = []
    n = 0
    for i, s in enumerate(op.sample_inputs("cpu", DTYPES[dtype], requires_grad=dtype == "float32" and op.supports_autograd)):
        n += 1
        try:
            check_sample(op, s, gen)
        except Exception as e:
            import traceback
            tb = traceback.extract_tb(e.__traceback__)[-1]
            failures.append(f"#{i} {s.summary() if hasattr(s,'summary') else s}\n      {type(e).__name__}: {str(e)[:400]} @ {tb.filename.split('/')[-1]}:{tb.lineno}")
    assert not failures, f"{len(failures)}/{n} failed\n" + "\n".join(failures[:6])


def refuses(op, error):
    s = error.sample_input
    try:
        mine = mapped((s.input, s.args, s.kwargs), ours)
        got = CALLS[op.name](mine[0], *mine[1], **mine[2])
    except REFUSALS as e:
        return True
    return False


@pytest.mark.parametrize("op", [o for o in OPS if o.error_inputs_func], ids=lambda op: op.name + (f"-{op.variant_test_name}" if op.variant_test_name else ""))
def test_errors(op):
    torch.manual_seed(0)
    bad = []
    for i, e in enumerate(op.error_inputs("cpu")):
        if not refuses(op, e):
            s = e.sample_input
            bad.append(f"#{i} {s.summary()} torch: {e.error_type} {e.error_regex}")
    assert not bad, "\n".join(bad)
