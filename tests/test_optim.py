"""Optimisers, schedules and clipping: against PyTorch, and against themselves after a resume."""

import json

import numpy as np
import pytest

from tinyadept import float64, nn, optim, tensor
from tinyadept.io import load, load_metadata, save
from tinyadept.optim import lr_scheduler
from tinyadept.random import manual_seed, randn

OPTIMIZERS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("Adam", {}),
    ("Adam", {"lr": 0.02, "betas": (0.8, 0.99), "eps": 1e-6, "weight_decay": 0.1}),
    ("AdamW", {"lr": 0.02}),
    ("AdamW", {"lr": 0.02, "weight_decay": 0.0}),
    ("RMSprop", {}),
    ("RMSprop", {"alpha": 0.9, "momentum": 0.5, "weight_decay": 0.1}),
    ("RMSprop", {"centered": True, "momentum": 0.5, "eps": 1e-4}),
]


def gradients(steps, shapes, dtype):
    rng = np.random.default_rng(0)
    return [[rng.normal(size=shape).astype(dtype) for shape in shapes] for _ in range(steps)]


def made(name, options, dtype=np.float32):
    """Two parameters, and an optimiser of them."""
    starts = gradients(1, [(4, 3), ()], dtype)[0]
    params = [nn.Parameter(tensor(x, dtype=dtype)) for x in starts]
    return params, getattr(optim, name)(params, **options)


def stepped(params, optimizer, grads):
    for p, g in zip(params, grads, strict=True):
        p.grad = tensor(g, dtype=g.dtype)
    optimizer.step()


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
@pytest.mark.parametrize(("dtype", "bound"), [(np.float32, 1e-6), (np.float64, 1e-14)])
def test_twenty_steps_agree_with_torch(name, options, dtype, bound):
    torch = pytest.importorskip("torch")
    params, ours = made(name, options, dtype)
    twins = [torch.nn.Parameter(torch.tensor(p.detach().numpy())) for p in params]
    theirs = getattr(torch.optim, name)(twins, **options)
    for grads in gradients(20, [(4, 3), ()], dtype):
        stepped(params, ours, grads)
        for q, g in zip(twins, grads, strict=True):
            q.grad = torch.tensor(g)
        theirs.step()
        for p, q in zip(params, twins, strict=True):
            np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=bound, atol=bound)


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_a_resume_through_files_continues_bit_for_bit(name, options, tmp_path):
    steps = gradients(10, [(4, 3), ()], np.float32)
    params, whole = made(name, options)
    for grads in steps[:5]:
        stepped(params, whole, grads)
    state = whole.state_dict()
    numbers = {key: {k: v for k, v in s.items() if isinstance(v, int)} for key, s in state["state"].items()}
    tensors = {f"{key}.{k}": v for key, s in state["state"].items() for k, v in s.items() if k != "step"}
    tensors |= {f"p{i}": p for i, p in enumerate(params)}
    save(tmp_path / "run", tensors, {"numbers": json.dumps([numbers, state["param_groups"]])})

    loaded = load(tmp_path / "run")
    numbers, groups = json.loads(load_metadata(tmp_path / "run")["numbers"])
    for name_, value in loaded.items():
        key, dot, k = name_.partition(".")
        if dot:
            numbers[key][k] = value
    twins = [nn.Parameter(loaded[f"p{i}"]) for i in range(2)]
    resumed = getattr(optim, name)(twins, lr=9.0)
    resumed.load_state_dict({"state": numbers, "param_groups": groups})
    for grads in steps[5:]:
        stepped(params, whole, grads)
        stepped(twins, resumed, grads)
    assert all(
        np.array_equal(p.detach().numpy(), q.detach().numpy()) for p, q in zip(params, twins, strict=True)
    )
    assert repr(whole) == repr(resumed)


def test_steps_are_in_place_unrecorded_and_leave_gradients_alone():
    params, optimizer = made("Adam", {"weight_decay": 0.1})
    memory, version = params[0].buffer, params[0].buffer.version
    stepped(params, optimizer, gradients(1, [(4, 3), ()], np.float32)[0])
    assert params[0].buffer is memory and memory.version > version
    assert params[0].is_leaf and params[0].requires_grad
    assert np.array_equal(params[0].grad.numpy(), gradients(1, [(4, 3), ()], np.float32)[0][0])
    optimizer.zero_grad(set_to_none=False)
    assert (params[0].grad.numpy() == 0).all()
    optimizer.zero_grad()
    assert params[0].grad is None


def test_backward_notices_a_step_in_between():
    layer = nn.Linear(2, 2)
    y = layer(randn(3, 2).requires_grad_()).sum()
    y.backward(retain_graph=True)
    optim.SGD(layer.parameters(), lr=0.1).step()
    with pytest.raises(RuntimeError, match="overwritten in place"):
        y.backward()


def test_parameters_without_gradients_are_passed_over():
    params, optimizer = made("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1})
    before = params[1].item()
    params[0].grad = randn(4, 3)
    optimizer.step()
    assert params[1].item() == before and list(optimizer.state_dict()["state"]) == [0]


def test_a_gradient_of_another_shape_is_refused():
    p = nn.Parameter(tensor([1.0, 2.0]))
    p.grad = tensor([1.0])
    with pytest.raises(ValueError, match=r"a gradient of shape \(1,\) for a parameter of shape \(2,\)"):
        optim.SGD([p]).step()


def test_groups_have_their_own_settings():
    torch = pytest.importorskip("torch")
    a, b, c = (nn.Parameter(tensor([1.0])) for _ in range(3))
    optimizer = optim.SGD([{"params": [a]}, {"params": b, "lr": 0.5}], lr=0.1, momentum=0.9)
    optimizer.add_param_group({"params": [c], "momentum": 0.0})
    twins = [torch.nn.Parameter(torch.ones(1)) for _ in range(3)]
    theirs = torch.optim.SGD([{"params": [twins[0]]}, {"params": twins[1], "lr": 0.5}], lr=0.1, momentum=0.9)
    theirs.add_param_group({"params": [twins[2]], "momentum": 0.0})
    for _ in range(3):
        for p in (a, b, c):
            p.grad = tensor([1.0])
        for q in twins:
            q.grad = torch.ones(1)
        optimizer.step()
        theirs.step()
    np.testing.assert_allclose([p.item() for p in (a, b, c)], [q.item() for q in twins], rtol=1e-6)
    assert [g["params"] for g in optimizer.state_dict()["param_groups"]] == [[0], [1], [2]]


P = nn.Parameter(tensor([1.0]))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: optim.SGD([]), ValueError, "SGD got no parameters"),
        (
            lambda: optim.SGD(P),
            TypeError,
            r"list of tensors or of dicts, got one Parameter: put it in \[\.\.\.\]",
        ),
        (lambda: optim.SGD({"params": [P]}), TypeError, "got one dict"),
        (lambda: optim.Adam([P, 3]), TypeError, "Adam takes tensors, got int"),
        (
            lambda: optim.Adam([{"params": [P]}, P]),
            TypeError,
            "either tensors or dicts with 'params', got Parameter",
        ),
        (lambda: optim.Adam([P * 2]), ValueError, r"takes leaves, got \(1,\) made by mul"),
        (lambda: optim.Adam([P, P]), ValueError, r"a parameter of shape \(1,\) twice"),
        (lambda: optim.SGD([P], lr=-1.0), ValueError, r"SGD: lr must not be negative, got -1\.0"),
        (lambda: optim.SGD([P], lr=float("nan")), ValueError, "lr must not be negative, got nan"),
        (
            lambda: optim.SGD([P], nesterov=True),
            ValueError,
            r"momentum above 0 and dampening 0, got momentum 0\.0",
        ),
        (lambda: optim.AdamW([P], weight_decay=-0.1), ValueError, "weight_decay must not be negative"),
        (
            lambda: optim.Adam([P], betas=(0.9, 1.0)),
            ValueError,
            r"betas must lie in \[0, 1\), got \(0\.9, 1\.0\)",
        ),
        (
            lambda: optim.RMSprop([{"params": [P], "alpha": -1}]),
            ValueError,
            "alpha must not be negative, got -1",
        ),
        (
            lambda: optim.SGD([{"params": [P], "betas": 1}]),
            TypeError,
            "no setting 'betas': expected lr, momentum",
        ),
    ],
)
def test_bad_optimizers_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_state_that_does_not_fit_changes_nothing():
    params, optimizer = made("Adam", {})
    stepped(params, optimizer, gradients(1, [(4, 3), ()], np.float32)[0])
    before = repr(optimizer), optimizer.state
    good = optimizer.state_dict()
    wrong_group = {**good, "param_groups": [{**good["param_groups"][0], "params": [0]}]}
    with pytest.raises(ValueError, match=r"groups of \[1\] parameters, expected \[2\]"):
        optimizer.load_state_dict(wrong_group)
    with pytest.raises(ValueError, match="names parameter 2 of 2"):
        optimizer.load_state_dict({**good, "state": {"2": {}}})
    with pytest.raises(ValueError, match=r"exp_avg of parameter 0 has shape \(2,\), expected \(4, 3\)"):
        optimizer.load_state_dict({**good, "state": {0: {"exp_avg": randn(2)}}})
    with pytest.raises(ValueError, match="lr must not be negative"):
        optimizer.load_state_dict({**good, "param_groups": [{**good["param_groups"][0], "lr": -1.0}]})
    with pytest.raises(ValueError, match="a setting 'momentum' of another optimiser"):
        optimizer.load_state_dict(made("SGD", {"lr": 0.1})[1].state_dict())
    with pytest.raises(ValueError, match="the state has no 'param_groups'"):
        optimizer.load_state_dict({"state": {}})
    assert (repr(optimizer), optimizer.state) == before


def test_a_loaded_state_is_a_copy():
    params, first = made("SGD", {"momentum": 0.9})
    stepped(params, first, gradients(1, [(4, 3), ()], np.float32)[0])
    twins, second = made("SGD", {"momentum": 0.9})
    second.load_state_dict(first.state_dict())
    kept = second.state[twins[0]]["momentum_buffer"].numpy().copy()
    stepped(params, first, gradients(2, [(4, 3), ()], np.float32)[1])
    assert np.array_equal(second.state[twins[0]]["momentum_buffer"].numpy(), kept)


def test_moving_a_module_keeps_its_optimizer():
    layer = nn.Linear(3, 2)
    optimizer = optim.Adam(layer.parameters(), lr=0.1)
    layer.to(float64)
    layer(randn(4, 3).to(float64)).sum().backward()
    before = layer.weight.detach().numpy().copy()
    optimizer.step()
    assert layer.weight.dtype == float64 and not np.array_equal(layer.weight.detach().numpy(), before)


# --- schedules ----------------------------------------------------------------------------------------------

LINEAR = {"pct_start": 0.4, "anneal_strategy": "linear", "div_factor": 10, "final_div_factor": 5}
SCHEDULES = [
    ("StepLR", lambda m, o: m.StepLR(o, 4, 0.5)),
    ("MultiStepLR", lambda m, o: m.MultiStepLR(o, [3, 9, 9], gamma=0.3)),
    ("CosineAnnealingLR", lambda m, o: m.CosineAnnealingLR(o, 12, eta_min=0.01)),
    ("LinearLR", lambda m, o: m.LinearLR(o)),
    ("warm-up", lambda m, o: m.LinearLR(o, 0.01, 0.9, total_iters=7)),
    ("LambdaLR", lambda m, o: m.LambdaLR(o, lambda step: 0.9**step)),
    ("LambdaLR per group", lambda m, o: m.LambdaLR(o, [lambda step: 1 / (step + 1), lambda step: 2.0])),
    ("OneCycleLR", lambda m, o: m.OneCycleLR(o, 0.7, total_steps=25)),
    ("OneCycleLR linear", lambda m, o: m.OneCycleLR(o, [0.7, 0.2], epochs=5, steps_per_epoch=5, **LINEAR)),
    ("SequentialLR", lambda m, o: m.SequentialLR(
        o, [m.LinearLR(o, 0.1, total_iters=5), m.CosineAnnealingLR(o, 15), m.StepLR(o, 2)], [5, 20])),
]  # fmt: skip


@pytest.mark.parametrize("make", [make for _, make in SCHEDULES], ids=[name for name, _ in SCHEDULES])
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.filterwarnings("ignore:Detected call of")
@pytest.mark.filterwarnings("ignore:The epoch parameter")
def test_learning_rates_agree_with_torch(make, kind):
    torch = pytest.importorskip("torch")
    ps, qs = (
        [nn.Parameter(tensor([1.0])) for _ in range(2)],
        [torch.nn.Parameter(torch.ones(1)) for _ in range(2)],
    )
    ours = getattr(optim, kind)([{"params": ps[:1]}, {"params": ps[1:], "lr": 0.2}], lr=0.1)
    theirs = getattr(torch.optim, kind)([{"params": qs[:1]}, {"params": qs[1:], "lr": 0.2}], lr=0.1)
    a, b = make(lr_scheduler, ours), make(torch.optim.lr_scheduler, theirs)
    for _ in range(24):
        np.testing.assert_allclose(a.get_last_lr(), b.get_last_lr(), rtol=1e-9, atol=1e-12)
        for group, other in zip(ours.param_groups, theirs.param_groups, strict=True):
            for key in ("momentum", "betas"):
                np.testing.assert_allclose(group.get(key, 0), other.get(key, 0), rtol=1e-9)
        ours.step()
        theirs.step()
        a.step()
        b.step()


@pytest.mark.parametrize("make", [make for _, make in SCHEDULES], ids=[name for name, _ in SCHEDULES])
def test_schedules_resume(make):
    def fresh():
        params = [nn.Parameter(tensor([1.0])) for _ in range(2)]
        optimizer = optim.SGD([{"params": params[:1]}, {"params": params[1:], "lr": 0.2}], lr=0.1)
        return optimizer, make(lr_scheduler, optimizer)

    whole, a = fresh()
    for _ in range(11):
        a.step()
    states = json.loads(json.dumps([whole.state_dict(), a.state_dict()]))
    resumed, b = fresh()
    resumed.load_state_dict(states[0])
    b.load_state_dict(states[1])
    for _ in range(10):
        assert a.get_last_lr() == b.get_last_lr() and a.last_epoch == b.last_epoch
        assert whole.state_dict() == resumed.state_dict()
        a.step()
        b.step()


def test_one_cycle_ends():
    optimizer = optim.SGD([nn.Parameter(tensor([1.0]))], lr=0.1)
    schedule = lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=3, div_factor=10, final_div_factor=10)
    for _ in range(3):
        schedule.step()
    assert schedule.get_last_lr() == [pytest.approx(0.01)]
    with pytest.raises(ValueError, match="step 4 of a cycle that has 3"):
        schedule.step()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda o: optim.StepLR(o, 0), "step_size must be at least 1, got 0"),
        (lambda o: optim.CosineAnnealingLR(o, 0), "T_max must be at least 1"),
        (lambda o: optim.LinearLR(o, 0.0), r"start_factor must lie in \(0, 1\].*got 0\.0 and 1\.0"),
        (lambda o: optim.LambdaLR(o, [abs, abs]), "2 functions for 1 groups"),
        (lambda o: optim.OneCycleLR(o, 1.0), "total_steps, or epochs and steps_per_epoch"),
        (lambda o: optim.OneCycleLR(o, 1.0, 10, pct_start=2), r"pct_start must lie in \[0, 1\], got 2"),
        (lambda o: optim.OneCycleLR(o, 1.0, 10, anneal_strategy="exp"), "'cos' or 'linear', got 'exp'"),
        (lambda o: optim.OneCycleLR(o, [1.0, 2.0], 10), "2 rates for 1 groups"),
        (
            lambda o: optim.SequentialLR(o, [optim.LinearLR(o)], [5]),
            "1 milestones for 1 schedules",
        ),
        (lambda o: optim.SequentialLR(o, [optim.LinearLR(o)] * 3, [5, 2]), r"must increase, got \[5, 2\]"),
        (
            lambda o: optim.SequentialLR(optim.SGD([P]), [optim.LinearLR(o)], []),
            "a schedule of another optimizer",
        ),
        (
            lambda o: optim.StepLR(o, 1).load_state_dict({"last_epoch": 1, "base_lrs": []}),
            "0 groups, expected 1",
        ),
    ],
)
def test_bad_schedules_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make(optim.SGD([nn.Parameter(tensor([1.0]))]))


def test_schedules_take_optimizers():
    with pytest.raises(TypeError, match="StepLR takes an Optimizer, got list"):
        optim.StepLR([P], 3)  # type: ignore[arg-type]


# --- clipping -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("max_norm", [0.0, 0.5, 100.0])
def test_norms_are_clipped_as_in_torch(norm_type, max_norm):
    torch = pytest.importorskip("torch")
    grads = gradients(1, [(4, 3), (), (5,)], np.float32)[0]
    params = [nn.Parameter(tensor(g)) for g in grads] + [nn.Parameter(tensor([1.0]))]
    twins = [torch.nn.Parameter(torch.tensor(g)) for g in grads]
    for p, q, g in zip(params, twins, grads, strict=False):
        p.grad, q.grad = tensor(g), torch.tensor(g)
    memory = params[0].grad.buffer
    total = nn.clip_grad_norm_(iter(params), max_norm, norm_type)
    expected = torch.nn.utils.clip_grad_norm_(twins, max_norm, norm_type)
    np.testing.assert_allclose(total.item(), expected.item(), rtol=1e-6)
    for p, q in zip(params, twins, strict=False):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-6)
    assert params[0].grad.buffer is memory and params[-1].grad is None


def test_values_are_clipped():
    p = nn.Parameter(tensor([1.0, 2.0, 3.0]))
    p.grad = tensor([-2.0, 0.25, float("inf")])
    optim.clip_grad_value_(p, 0.5)
    assert p.grad.tolist() == [-0.5, 0.25, 0.5]


def test_clipping_refuses_what_makes_no_sense():
    p = nn.Parameter(tensor([1.0]))
    assert optim.clip_grad_norm_([p], 1.0).item() == 0
    p.grad = tensor([float("nan")])
    with pytest.raises(FloatingPointError, match="the norm of 1 gradients is nan"):
        optim.clip_grad_norm_([p], 1.0, error_if_nonfinite=True)
    with pytest.raises(ValueError, match=r"max_norm must not be negative, got -1\.0"):
        optim.clip_grad_norm_([p], -1.0)
    with pytest.raises(ValueError, match="clip_value must not be negative, got -2"):
        optim.clip_grad_value_([p], -2)


def test_warm_up_and_cosine_train_a_line():
    manual_seed(0)
    x = randn(64, 1)
    y, line = x * 3 - 1, nn.Linear(1, 1)
    optimizer = optim.SGD(line.parameters(), lr=0.2, momentum=0.5)
    warmup, cosine = optim.LinearLR(optimizer, 0.1, total_iters=10), optim.CosineAnnealingLR(optimizer, 90)
    schedule = optim.SequentialLR(optimizer, [warmup, cosine], milestones=[10])
    for _ in range(100):
        optimizer.zero_grad()
        nn.MSELoss()(line(x), y).backward()
        optimizer.step()
        schedule.step()
    np.testing.assert_allclose([line.weight.item(), line.bias.item()], [3, -1], atol=1e-3)
