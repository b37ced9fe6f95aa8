"""Values, gradients and errors against PyTorch's own OpInfo samples.

Every sample of every op that both have runs forward and, where PyTorch differentiates, backward with a random
incoming gradient. `opinfo_table` says which call stands for which op and on which samples the two differ;
that they differ as it says is asserted as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, reduce
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is the oracle here")
pytest.importorskip("expecttest", reason="PyTorch's own tests need it")

import torch
from hypothesis import settings
from opinfo_table import ACCEPTED, CALLS, DIFFERENCES, NOT_COMPARED, TOLERANCES, Difference, Sample
from torch.testing._internal.common_methods_invocations import op_db

import tinyadept as ta
import tinyadept.functional as F

settings.load_profile("oracle")  # importing PyTorch's tests loads a profile of their own, for everybody

DTYPES = {"float32": torch.float32, "int32": torch.int32, "bool": torch.bool, "int64": torch.int64}
FLOAT32 = {"rtol": 1.3e-6, "atol": 1e-5}  # torch.testing's own
REFUSALS = (
    ValueError,
    TypeError,
    IndexError,
    RuntimeError,  # and with it NotImplementedError
    OverflowError,
    ZeroDivisionError,
)


def label(op: Any) -> str:
    return f"{op.name}-{op.variant_test_name}" if op.variant_test_name else op.name


def dtypes_of(op: Any) -> list[str]:
    """Those to run: int64 only where an op takes nothing else, since all its sample values fit int32."""
    found = [name for name, dtype in DTYPES.items() if dtype in op.dtypes]
    return found if found == ["int64"] else [name for name in found if name != "int64"]


OPS = [op for op in op_db if op.name in CALLS and label(op) not in NOT_COMPARED]
RUNS = [(op, dtype) for op in OPS for dtype in dtypes_of(op)]

pytestmark = [
    pytest.mark.filterwarnings("ignore:reduction. 'mean' divides the total loss by both:UserWarning"),
    pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths:UserWarning"),
]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """PyTorch's threads cost far more than they give on tensors this small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# --- from PyTorch's values to ours ----------------------------------------------------------------------


def mapped(value: Any, change: Callable) -> Any:
    """Nested arguments with everything in them changed."""
    if isinstance(value, (tuple, list)):
        return (list if isinstance(value, list) else tuple)(mapped(v, change) for v in value)
    if isinstance(value, dict):
        return {k: mapped(v, change) for k, v in value.items()}
    return change(value)


def ours(value: Any) -> Any:
    """A tensor as a leaf of ours with the same memory and strides, a dtype as NumPy's."""
    if isinstance(value, torch.dtype):
        return np.dtype(str(value).removeprefix("torch."))
    if not isinstance(value, torch.Tensor):
        return value
    x = ta.from_numpy(value.detach().numpy())
    return x.requires_grad_() if value.requires_grad else x


def doubled(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
        return value
    return value.detach().double().requires_grad_(value.requires_grad)


def leaves(value: Any, kind: type) -> list:
    """All tensors of one kind in nested arguments or results, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return list(chain.from_iterable(leaves(v, kind) for v in value))
    return [value] if isinstance(value, kind) else []


def flat(result: Any) -> list:
    return list(chain.from_iterable(map(flat, result))) if isinstance(result, (tuple, list)) else [result]


# --- one sample -----------------------------------------------------------------------------------------


def samples(op: Any, dtype: str) -> Iterator[Sample]:
    torch.manual_seed(
        0
    )  # once, and not for every sample as op.sample_inputs does: that takes longer than the ops
    differentiable = dtype == "float32" and op.supports_autograd
    for s in op.sample_inputs_func(op, "cpu", DTYPES[dtype], differentiable):
        yield Sample(op.name, dtype, s.input, tuple(s.args), s.kwargs)


def refused(op: Any) -> Iterator[Sample]:
    """The inputs for which PyTorch raises."""
    torch.manual_seed(0)
    for error in op.error_inputs_func(op, "cpu") if op.error_inputs_func else ():
        s = error.sample_input
        yield Sample(op.name, None, s.input, tuple(s.args), s.kwargs)


def theirs(op: Any, s: Sample) -> list:
    return flat(op.op(s.input, *s.args, **s.kwargs))


def called(s: Sample) -> tuple[list, tuple]:
    """Our results, and the arguments that they came from."""
    x, args, kwargs = arguments = mapped((s.input, s.args, s.kwargs), ours)
    return flat(CALLS[s.op](x, *args, **kwargs)), arguments


def their_gradients(op: Any, s: Sample, seeds: list[torch.Tensor]) -> list[torch.Tensor]:
    results = [y for y in leaves(theirs(op, s), torch.Tensor) if y.requires_grad]
    inputs = [x for x in leaves((s.input, s.args, s.kwargs), torch.Tensor) if x.requires_grad]
    seeds = [seed.to(y.dtype) for seed, y in zip(seeds, results, strict=True)]
    return list(torch.autograd.grad(results, inputs, seeds, allow_unused=True, materialize_grads=True))


def our_gradients(results: list[ta.Tensor], arguments: tuple, seeds: list[torch.Tensor]) -> list[ta.Tensor]:
    inputs = [x for x in leaves(arguments, ta.Tensor) if x.requires_grad]
    incoming = [ours(seed).to(y.dtype) for seed, y in zip(seeds, results)]
    found = ta.grad(results, inputs, incoming, allow_unused=True)
    return [ta.zeros_like(x) if g is None else g for g, x in zip(found, inputs)]


def compare(
    what: str, expected: Any, got: Any, truth: Callable | None = None, tolerance: dict | None = None
) -> None:
    """Equal shapes, dtypes and values; int32 stands for the int64 that PyTorch gives to sums and indices.

    Where rounding separates the two, as in long sums of products, PyTorch's float64 result decides: ours must
    be as close to it as usual, or no further from it than PyTorch's float32 result.
    """
    if not isinstance(expected, torch.Tensor):
        assert got == expected, f"{what}: {got} where PyTorch has {expected}"
        return
    assert isinstance(got, ta.Tensor), f"{what}: {type(got).__name__} where PyTorch has a tensor"
    allowed = ("int32", "int64") if expected.dtype == torch.int64 else (ours(expected.dtype).name,)
    assert got.dtype.name in allowed, f"{what}: {got.dtype.name} where PyTorch has {expected.dtype}"
    assert got.shape == expected.shape, f"{what}: shape {got.shape} where PyTorch has {tuple(expected.shape)}"
    actual, expected = torch.from_numpy(got.detach().numpy().copy()).to(expected.dtype), expected.detach()
    try:
        torch.testing.assert_close(actual, expected, equal_nan=True, **(tolerance or {}))
    except AssertionError:
        if truth is None or expected.dtype != torch.float32:
            raise
        exact = truth().detach()
        if not (actual - exact).abs().max() <= (expected - exact).abs().max():
            torch.testing.assert_close(actual.double(), exact, equal_nan=True, **(tolerance or FLOAT32))


def check(op: Any, s: Sample, generator: torch.Generator) -> None:
    """Results, and the gradient of each input that PyTorch differentiates by."""
    expected, (got, arguments) = theirs(op, s), called(s)
    tolerance = TOLERANCES.get(op.name)
    exact = cache(lambda: Sample(s.op, s.dtype, *mapped((s.input, s.args, s.kwargs), doubled)))
    assert len(got) == len(expected), f"{len(got)} results where PyTorch has {len(expected)}"
    for i, (e, g) in enumerate(zip(expected, got)):
        compare(f"result {i}", e, g, lambda i=i: theirs(op, exact())[i], tolerance)
    pairs = [(e, g) for e, g in zip(expected, got) if isinstance(e, torch.Tensor) and e.requires_grad]
    if not pairs:
        return
    assert all(g.requires_grad for _, g in pairs), "no gradient flows where PyTorch has one"
    seeds = [torch.randn(e.shape, generator=generator) for e, _ in pairs]
    found = our_gradients([g for _, g in pairs], arguments, seeds)
    for i, (e, g) in enumerate(zip(their_gradients(op, s, seeds), found, strict=True)):
        compare(f"gradient {i}", e, g, lambda i=i: their_gradients(op, exact(), seeds)[i], tolerance)


# --- samples on which the two differ --------------------------------------------------------------------


def listed(s: Sample, among: list[Difference]) -> Difference | None:
    return next((d for d in among if s.op in d.ops.split() and d.when(s)), None)


def check_difference(op: Any, s: Sample, difference: Difference) -> None:
    if isinstance(difference.then, str):
        THEN[difference.then](op, s)
        return
    with pytest.raises(difference.then):
        called(s)


def then_stable(op: Any, s: Sample) -> None:
    """The values are PyTorch's, and the indices those of its stable sort."""
    names = ("k", "dim", "descending") if op.name == "topk" else ("dim", "descending")
    options = {"dim": -1, "descending": op.name == "topk"} | dict(zip(names, s.args)) | s.kwargs
    values, order = torch.sort(s.input, dim=options["dim"], descending=options["descending"], stable=True)
    if "k" in options and s.input.ndim:
        values, order = (y.narrow(options["dim"], 0, options["k"]) for y in (values, order))
    expected = [order] if op.name == "argsort" else [values, order]
    for e, g in zip(expected, called(s)[0], strict=True):
        compare("stable order", e, g)


def then_dropped(op: Any, s: Sample) -> None:
    """Each element is zero or scaled up, and its gradient too."""
    (y,), arguments = called(s)
    x, up = s.input.detach().numpy(), np.float32(1 / (1 - s.kwargs.get("p", 0.5)))
    kept = y.detach().numpy() != 0
    assert np.array_equal(y.detach().numpy(), np.where(kept, x * up, 0))
    (g,) = our_gradients([y], arguments, [torch.ones(s.input.shape)])
    assert np.array_equal(g.numpy(), kept * up)


def then_on_average(op: Any, s: Sample) -> None:
    """Without the randomness the mean of many results is PyTorch's, within six times its own error."""
    (expected,) = theirs(op, replace(s, kwargs=s.kwargs | {"dropout_p": 0.0}))
    results = np.stack([called(s)[0][0].detach().numpy() for _ in range(200)])
    error = results.std(0) / np.sqrt(len(results))
    assert results.std(0).max() > 0
    assert (np.abs(results.mean(0) - expected.detach().numpy()) <= 6 * error + 1e-4).all()


def then_no_gradient(op: Any, s: Sample) -> None:
    """The values are PyTorch's; its gradient is zero, and ours does not exist."""
    (expected,), ((got,), _) = theirs(op, s), called(s)
    compare("result", expected, got)
    assert not got.requires_grad
    assert not their_gradients(op, s, [torch.ones(expected.shape)])[0].any()


def then_cut_off(op: Any, s: Sample) -> None:
    expected = torch.arange(s.input, *s.args, dtype=torch.float64).to(torch.int32)
    compare("result", expected, called(s)[0][0])


def then_as_tensors(op: Any, s: Sample) -> None:
    """The value is that of PyTorch's op on 0-d tensors."""
    (expected,) = flat(op.op(*map(torch.as_tensor, (s.input, *s.args)), **s.kwargs))
    (got,) = called(s)[0]
    assert np.array_equal(np.asarray(got), expected.numpy())


def then_promoted(op: Any, s: Sample) -> None:
    """The value is that of PyTorch's op once all operands have the dtype to which they are promoted."""
    dtype = reduce(torch.promote_types, [x.dtype for x in (s.input, *s.args)])
    (expected,) = flat(op.op(*(x.to(dtype) for x in (s.input, *s.args)), **s.kwargs))
    compare("result", expected, called(s)[0][0])


THEN = {
    "stable": then_stable,
    "dropped": then_dropped,
    "on average": then_on_average,
    "no gradient": then_no_gradient,
    "cut off": then_cut_off,
    "as tensors": then_as_tensors,
    "promoted": then_promoted,
}


# --- the tests ------------------------------------------------------------------------------------------


def written(value: Any) -> str:
    """A sample, briefly: dtypes and shapes instead of values."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(written, value))})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}={written(v)}" for k, v in value.items()) + "}"
    return repr(value)


def failing(s: Sample, run: Callable, *args: Any) -> list[str]:
    try:
        run(*args)
    except (Exception, pytest.fail.Exception) as error:
        return [f"{s.op}{written((s.input, s.args, s.kwargs))}\n    {type(error).__name__}: {error}"]
    return []


@pytest.mark.parametrize(("op", "dtype"), RUNS, ids=[f"{label(op)}-{dtype}" for op, dtype in RUNS])
def test_values_and_gradients(op: Any, dtype: str) -> None:
    generator, failures = torch.Generator().manual_seed(1), []
    for s in samples(op, dtype):
        difference = listed(s, DIFFERENCES)
        if difference is None:
            failures += failing(s, check, op, s, generator)
        else:
            failures += failing(s, check_difference, op, s, difference)
    assert not failures, f"{len(failures)} samples fail, among them\n" + "\n".join(failures[:5])


@pytest.mark.parametrize("op", [op for op in OPS if op.error_inputs_func], ids=label)
def test_errors(op: Any) -> None:
    failures = []
    for s in refused(op):
        difference = listed(s, ACCEPTED)
        if difference is None:
            failures += failing(s, check_refusal, s)
        else:
            failures += failing(s, check_difference, op, s, difference)
    assert not failures, "\n".join(failures)


def check_refusal(s: Sample) -> None:
    with pytest.raises(REFUSALS):
        called(s)


def test_every_op_has_samples() -> None:
    """And every listed difference has some. `pytest -s` shows how many of each op are compared."""
    met, compared = Counter(), Counter()
    for op in OPS:
        found = {dtype: [listed(s, DIFFERENCES) for s in samples(op, dtype)] for dtype in dtypes_of(op)}
        errors = [listed(s, ACCEPTED) for s in refused(op)]
        met.update(chain(errors, *found.values()))
        counts = {dtype: differences.count(None) for dtype, differences in found.items()}
        compared[op.name] += sum(counts.values())
        differ = sum(map(len, found.values())) - sum(counts.values())
        print(f"{label(op)}: {counts} compared, {differ} differ; {errors.count(None)} errors")
    print(f"{sum(compared.values())} samples compared, {met.total() - met[None]} differ")
    assert not [name for name in CALLS if not compared[name]], "no sample is compared"
    assert not [d.reason for d in DIFFERENCES + ACCEPTED if not met[d]], "listed, but no sample is like that"


def test_no_op_is_left_out() -> None:
    """What PyTorch's database and tinyadept both have by name is compared, or the table says why not."""
    known = CALLS.keys() | set(" ".join(NOT_COMPARED).split())
    missing = []
    for name in {op.name for op in op_db} - known:
        owners = (F,) if name.startswith("nn.functional.") else (ta, ta.Tensor, F)
        if any(hasattr(owner, name.removeprefix("nn.functional.")) for owner in owners):
            missing.append(name)
    assert not missing, f"add these to opinfo_table: {sorted(missing)}"


def test_readme_lists_the_differences():
    """Every difference stands in the README, as this prints it."""
    lines = []
    for d in [*DIFFERENCES, *ACCEPTED]:
        names = ", ".join(f"`{name.removeprefix('nn.functional.')}`" for name in d.ops.split())
        lines.append(f"- {names}: {d.reason}.")
    listed = "\n".join(lines)
    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    shown = readme.partition("<!-- differences")[2].partition("-->\n")[2].partition("<!-- end")[0]
    assert shown.strip() == listed, f"put this into the README:\n{listed}"
