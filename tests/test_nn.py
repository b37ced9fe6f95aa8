"""Modules, layers and LeNet: against PyTorch where it has the word."""

import copy

import numpy as np
import pytest

from tinyadept import float64, int32, nn, no_grad, optim, tensor
from tinyadept.models.lenet import LeNet
from tinyadept.random import manual_seed, randn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.tail = nn.Sequential(nn.ReLU(), nn.Linear(4, 2, bias=False))
        self.register_buffer("mask", tensor([True, False]), persistent=False)
        self.scale = nn.Parameter(tensor([2.0]))

    def forward(self, x):
        return self.tail(self.norm(self.first(x))) * self.scale


NAMES = [
    "scale",
    "first.weight",
    "first.bias",
    "norm.weight",
    "norm.bias",
    "norm.running_mean",
    "norm.running_var",
    "norm.num_batches_tracked",
    "tail.1.weight",
]


def values(module):
    return {name: x.numpy().copy() for name, x in module.state_dict().items()}


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


# --- parameters and modules ---------------------------------------------------------------------------------


def test_parameter_shares_memory_and_results_are_plain_tensors():
    x = tensor([1.0, 2.0])
    p = nn.Parameter(x)
    with no_grad():
        x.mul_(3)
    assert p.tolist() == [3.0, 6.0] and p.requires_grad and p.is_leaf
    assert type(p * 2) is not nn.Parameter and type(p.detach()) is not nn.Parameter
    assert repr(p).startswith("Parameter containing:\ntensor([3., 6.]")


def test_parameter_refuses_what_has_no_gradient():
    with pytest.raises(TypeError, match="takes a Tensor, got list"):
        nn.Parameter([1.0])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="int32"):
        nn.Parameter(tensor([1]))
    assert not nn.Parameter(tensor([1]), requires_grad=False).requires_grad


def test_names_are_dotted_and_in_order():
    net = Net()
    assert list(net.state_dict()) == NAMES
    assert [name for name, _ in net.named_parameters()] == [
        n for n in NAMES if "running" not in n and "num" not in n
    ]
    assert [name for name, _ in net.named_buffers()] == [
        "mask",
        "norm.running_mean",
        "norm.running_var",
        "norm.num_batches_tracked",
    ]
    assert [name for name, _ in net.named_modules()] == ["", "first", "norm", "tail", "tail.0", "tail.1"]
    assert [name for name, _ in net.named_children()] == ["first", "norm", "tail"]
    assert [name for name, _ in net.named_parameters("net", recurse=False)] == ["net.scale"]
    assert next(iter(net.state_dict("net"))) == "net.scale"


def test_shared_parts_are_listed_once_but_saved_under_every_name():
    net = nn.Module()
    net.a = net.b = nn.Linear(2, 2)
    net.c = nn.Linear(2, 2)
    net.c.weight = net.a.weight
    assert [name for name, _ in net.named_parameters()] == ["a.weight", "a.bias", "c.bias"]
    assert [name for name, _ in net.named_modules()] == ["", "a", "c"]
    assert [name for name, _ in net.named_children()] == ["a", "c"]
    assert list(net.state_dict()) == ["a.weight", "a.bias", "b.weight", "b.bias", "c.weight", "c.bias"]
    assert len(list(net.named_parameters(remove_duplicate=False))) == 6
    twin = copy.deepcopy(net)
    assert twin.a is twin.b and twin.c.weight is twin.a.weight and twin.a.weight is not net.a.weight


def test_assignment_before_init_says_what_to_do():
    class Late(nn.Module):
        def __init__(self, what):
            if what == "buffer":
                self.register_buffer("part", tensor([1.0]))
            self.part = {"parameter": nn.Parameter(tensor([1.0])), "module": nn.ReLU()}[what]

    for what in ("parameter", "module"):
        with pytest.raises(AttributeError, match=r"Late was given 'part' before super\(\).__init__\(\) ran"):
            Late(what)
    with pytest.raises(AttributeError, match=r"was super\(\).__init__\(\) called"):
        Late("buffer")


def test_attributes_keep_their_kind():
    net = Net()
    with pytest.raises(
        TypeError, match=r"'scale' of Net is a parameter and takes a Parameter or None, got Tensor"
    ):
        net.scale = tensor([1.0])  # type: ignore[assignment]
    with pytest.raises(TypeError, match=r"'mask' of Net is a buffer and takes a Tensor or None, got int"):
        net.mask = 3
    net.mask = tensor([False, False])
    assert "mask" in dict(net.named_buffers())
    net.mask = nn.Parameter(tensor([1.0]))
    assert "mask" in dict(net.named_parameters()) and "mask" not in dict(net.named_buffers())
    net.scale = None  # type: ignore[assignment]
    assert "scale" not in net.state_dict()
    del net.tail
    assert not any(name.startswith("tail") for name in net.state_dict())
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'tail'"):
        net.tail  # noqa: B018
    del net.norm.running_mean
    assert "running_mean" not in dict(net.norm.named_buffers())


def test_registering_checks_names_and_kinds():
    net = nn.Module()
    for name in ("", "a.b"):
        with pytest.raises(ValueError, match="not empty and has no dot"):
            net.register_buffer(name, tensor([1.0]))
    with pytest.raises(ValueError, match="has another attribute 'forward', which cannot become a Parameter"):
        net.register_parameter("forward", nn.Parameter(tensor([1.0])))
    with pytest.raises(TypeError, match="takes a name and a Parameter or None, got str and Tensor"):
        net.register_parameter("p", tensor([1.0]))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes a name and a Module or None"):
        net.add_module("m", 3)  # type: ignore[arg-type]
    net.register_parameter("bias", None)
    net.register_buffer("none", None)
    net.add_module("child", nn.ReLU())
    assert not net.state_dict() and net.bias is None and list(dict(net.named_children())) == ["child"]


# --- state --------------------------------------------------------------------------------------------------


def test_state_dict_round_trip_shares_and_copies():
    a, b = Net(), Net()
    a(randn(5, 3))
    assert b.load_state_dict(a.state_dict()) == ([], [])
    assert same(values(a), values(b)) and b.norm.num_batches_tracked.item() == 1
    assert not any(x.requires_grad for x in a.state_dict().values())
    with no_grad():
        a.state_dict()["scale"].fill_(7.0)
    assert a.scale.item() == 7.0 and b.scale.item() == 2.0


def test_strict_loading_lists_everything_and_changes_nothing():
    net, before = Net(), None
    state = {name: x.clone() * 0 for name, x in net.state_dict().items()}
    before = values(net)
    del state["scale"], state["norm.bias"]
    state["extra"] = tensor([1.0])
    state["first.weight"] = randn(3, 3)
    state["first.bias"] = randn(1)
    with pytest.raises(ValueError) as caught:
        net.load_state_dict(state)
    for line in (
        "missing: 'scale'",
        "missing: 'norm.bias'",
        "unexpected: 'extra'",
        "shape of 'first.weight': got (3, 3), expected (4, 3)",
        "shape of 'first.bias': got (1,), expected (4,)",
    ):
        assert line in str(caught.value)
    with pytest.raises(ValueError) as caught:
        net.load_state_dict(state, strict=False)
    assert "missing" not in str(caught.value) and "(3, 3)" in str(caught.value)
    with pytest.raises(TypeError, match="'scale' is a float, expected a Tensor"):
        net.load_state_dict({"scale": 1.0}, strict=False)  # type: ignore[dict-item]
    assert same(values(net), before)


def test_loading_takes_a_mapping():
    with pytest.raises(TypeError, match="takes a mapping, got NoneType"):
        nn.Linear(2, 3).load_state_dict(None)


def test_loose_loading_reports_what_it_skipped():
    net = Net()
    missing, unexpected = net.load_state_dict({"scale": tensor([5.0]), "other": tensor([1.0])}, strict=False)
    assert net.scale.item() == 5.0 and unexpected == ["other"] and missing == NAMES[1:]


def test_loading_converts_dtypes():
    net = Net()
    net.load_state_dict({name: x.to(float64) for name, x in net.state_dict().items()})
    assert net.scale.dtype == np.float32 and net.norm.num_batches_tracked.dtype == int32


def test_moving_keeps_the_objects():
    net = Net()
    (net(randn(5, 3)).sum()).backward()
    held = list(net.parameters()) + list(net.buffers())
    assert net.to(float64) is net
    assert all(x is y for x, y in zip(held, list(net.parameters()) + list(net.buffers()), strict=True))
    assert {x.dtype for x in net.parameters()} == {float64} and net.first.weight.grad.dtype == float64
    assert net.norm.num_batches_tracked.dtype == int32 and net.mask.dtype == bool
    assert net.to("numpy", dtype="float32").scale.dtype == np.float32
    with pytest.raises(TypeError, match="cannot be made int32"):
        net.to(int32)
    assert net.scale.dtype == np.float32


# --- behaviour ----------------------------------------------------------------------------------------------


def test_train_eval_freeze_zero_grad_and_apply():
    net = Net()
    assert not any(m.training for m in net.eval().modules()) and all(
        m.training for m in net.train().modules()
    )
    with pytest.raises(ValueError, match="True or False, got 'yes'"):
        net.train("yes")  # type: ignore[arg-type]
    net(randn(4, 3)).sum().backward()
    net.zero_grad(set_to_none=False)
    assert all((p.grad.numpy() == 0).all() for p in net.parameters())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())
    assert not any(p.requires_grad for p in net.requires_grad_(False).parameters())
    seen = []
    assert net.apply(lambda m: seen.append(type(m).__name__)) is net
    assert seen == ["Linear", "BatchNorm1d", "ReLU", "Linear", "Sequential", "Net"]


def test_hooks_see_and_replace():
    layer, seen = nn.Linear(2, 2), []
    remove_pre = layer.register_forward_pre_hook(lambda m, args: seen.append(args[0].shape) or args[0] * 0)
    remove = layer.register_forward_hook(lambda m, args, out: out + args[0].sum())
    x = randn(3, 2)
    assert np.allclose(layer(x).detach().numpy(), layer.bias.detach().numpy()) and seen == [(3, 2)]
    remove_pre()
    remove()
    remove()
    assert np.array_equal(layer(x).detach().numpy(), layer.forward(x).detach().numpy()) and len(seen) == 1


def test_forward_must_be_defined():
    with pytest.raises(NotImplementedError, match=r"Empty has no forward\(\)"):
        type("Empty", (nn.Module,), {})()(1)


def test_backward_works_when_the_module_is_gone():
    y = nn.Conv2d(1, 1, 3)(randn(1, 1, 5, 5))
    y.sum().backward()


def test_repr_nests():
    assert repr(nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU()))) == (
        "Sequential(\n"
        "  (0): Linear(in_features=2, out_features=3, bias=True)\n"
        "  (1): Sequential(\n"
        "    (0): ReLU()\n"
        "  )\n"
        ")"
    )


def test_sequential():
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    assert len(net) == 3 and isinstance(net[-1], nn.Linear) and net[0] is next(iter(net))
    rest = net[1:]
    assert list(rest.state_dict()) == ["2.weight", "2.bias"] and rest[1] is net[2]
    assert len(rest.append(nn.ReLU())) == 3  # "2" is taken
    net[1] = nn.Tanh()
    assert isinstance(net[1], nn.Tanh) and net(randn(4, 2)).shape == (4, 1)
    assert list(nn.Sequential({"a": nn.Linear(1, 1)}).state_dict()) == ["a.weight", "a.bias"]
    with pytest.raises(TypeError, match="Module or None, got str and int"):
        nn.Sequential(3)


def test_module_list_and_dict():
    layers = nn.ModuleList([nn.Linear(1, 1)]).append(nn.ReLU()).extend([nn.Tanh(), nn.Tanh()])
    assert len(layers) == 4 and isinstance(layers[-1], nn.Tanh) and len(layers[1:3]) == 2
    layers[1] = nn.Linear(1, 2)
    assert list(layers.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    table = nn.ModuleDict({"a": nn.ReLU()})
    table["b"] = nn.Linear(1, 1)
    assert list(table) == list(table.keys()) == ["a", "b"] and "b" in table and len(table.items()) == 2
    del table["a"]
    assert list(table.values()) == [table["b"]]
    with pytest.raises(ValueError, match="another attribute 'keys'"):
        table["keys"] = nn.ReLU()


# --- layers against PyTorch ---------------------------------------------------------------------------------

LAYERS = [
    ("Identity", (), {}, (2, 3)),
    ("Linear", (3, 4), {}, (2, 5, 3)),
    ("Linear", (3, 4), {"bias": False}, (3,)),
    ("Flatten", (), {}, (2, 3, 4, 5)),
    ("Flatten", (0, 1), {}, (2, 3, 4)),
    ("Unflatten", (1, (2, 3)), {}, (4, 6)),
    ("Conv1d", (4, 6, 3), {"stride": 2, "padding": 1, "groups": 2}, (2, 4, 9)),
    ("Conv1d", (4, 6, 4), {"padding": "same", "dilation": 2}, (2, 4, 9)),
    ("Conv2d", (4, 6, 3), {}, (2, 4, 8, 7)),
    ("Conv2d", (4, 6, (3, 2)), {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2)}, (2, 4, 8, 7)),
    ("Conv2d", (4, 8, 3), {"groups": 4, "bias": False, "padding": "same"}, (2, 4, 6, 6)),
    ("Conv2d", (4, 8, 3), {"padding": "valid"}, (4, 6, 6)),
    ("BatchNorm1d", (3,), {}, (6, 3)),
    ("BatchNorm1d", (3,), {"affine": False, "momentum": None}, (6, 3, 4)),
    ("BatchNorm2d", (3,), {"eps": 1e-3, "momentum": 0.03}, (4, 3, 5, 5)),
    ("BatchNorm2d", (3,), {"track_running_stats": False}, (4, 3, 5, 5)),
    ("InstanceNorm2d", (3,), {"affine": True}, (2, 3, 5, 5)),
    ("LayerNorm", ((4, 5),), {}, (2, 3, 4, 5)),
    ("LayerNorm", (5,), {"bias": False}, (2, 3, 5)),
    ("LayerNorm", (5,), {"elementwise_affine": False}, (2, 3, 5)),
    ("RMSNorm", (5,), {}, (2, 3, 5)),
    ("RMSNorm", (5, 1e-3, False), {}, (2, 3, 5)),
    ("GroupNorm", (2, 4), {}, (2, 4, 3, 3)),
    ("MaxPool1d", (2,), {}, (2, 3, 9)),
    ("MaxPool2d", (3,), {"stride": 2, "padding": 1, "ceil_mode": True}, (2, 3, 8, 8)),
    ("MaxPool2d", ((2, 3),), {"dilation": (2, 1)}, (2, 3, 8, 8)),
    ("AvgPool1d", (3, 2, 1), {}, (2, 3, 9)),
    ("AvgPool2d", (3, 2, 1), {"count_include_pad": False}, (2, 3, 8, 8)),
    ("AdaptiveAvgPool1d", (4,), {}, (2, 3, 10)),
    ("AdaptiveAvgPool2d", ((3, None),), {}, (2, 3, 7, 5)),
    ("ReLU", (), {}, (3, 4)),
    ("LeakyReLU", (0.2,), {}, (3, 4)),
    ("ELU", (1.5,), {}, (3, 4)),
    ("SiLU", (), {}, (3, 4)),
    ("GELU", (), {}, (3, 4)),
    ("GELU", (), {"approximate": "tanh"}, (3, 4)),
    ("Softplus", (2.0,), {"threshold": 1.0}, (3, 4)),
    ("Mish", (), {}, (3, 4)),
    ("Hardswish", (), {}, (3, 4)),
    ("Hardsigmoid", (), {}, (3, 4)),
    ("Sigmoid", (), {}, (3, 4)),
    ("Tanh", (), {}, (3, 4)),
    ("Softmax", (1,), {}, (3, 4)),
    ("LogSoftmax", (), {"dim": 0}, (3, 4)),
]


REWORDED = (
    "AvgPool1d",
    "Unflatten",
    "BatchNorm1d",
    "BatchNorm2d",
    "InstanceNorm2d",
    "GroupNorm",
    "LayerNorm",
)


def transfer(theirs):
    """A torch module's state as tensors."""
    return {name: tensor(x.numpy(), dtype=x.numpy().dtype) for name, x in theirs.state_dict().items()}


@pytest.mark.parametrize(("name", "args", "options", "shape"), LAYERS)
def test_layer_agrees_with_torch(name, args, options, shape):
    torch = pytest.importorskip("torch")
    ours, theirs = getattr(nn, name)(*args, **options), getattr(torch.nn, name)(*args, **options)
    ours.load_state_dict(transfer(theirs))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    if name not in REWORDED:
        assert repr(ours) == repr(theirs)
    data = np.random.default_rng(0).normal(size=(3, *shape)).astype(np.float32)
    for batch in data:  # several, so that running statistics move
        x, y = tensor(batch, requires_grad=True), torch.tensor(batch, requires_grad=True)
        a, b = ours(x), theirs(y)
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-4, atol=2e-5)
        a.backward(a.detach())
        b.backward(b.detach())
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-4, atol=2e-4)
    for (key, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-4, atol=5e-4, err_msg=key)
    for (key, p), q in zip(ours.named_buffers(), theirs.buffers(), strict=True):
        np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=1e-5, atol=1e-6, err_msg=key)
    ours.eval()
    theirs.eval()
    np.testing.assert_allclose(
        ours(tensor(data[0])).detach().numpy(),
        theirs(torch.tensor(data[0])).detach().numpy(),
        rtol=1e-4,
        atol=2e-5,
    )


def test_max_pool_returns_indices():
    values, indices = nn.MaxPool2d(2, return_indices=True)(tensor(np.arange(16.0).reshape(1, 1, 4, 4)))
    assert values.tolist() == [[[[5, 7], [13, 15]]]] and indices.tolist() == [[[[5, 7], [13, 15]]]]


def test_embedding():
    layer = nn.Embedding(5, 3, padding_idx=-1)
    assert layer.padding_idx == 4 and layer.weight.numpy()[4].tolist() == [0, 0, 0]
    assert repr(layer) == "Embedding(5, 3, padding_idx=4)"
    out = layer(tensor([[0, 4], [1, 1]]))
    assert out.shape == (2, 2, 3)
    out.sum().backward()
    assert layer.weight.grad.numpy()[:, 0].tolist() == [1, 2, 0, 0, 0]
    with pytest.raises(ValueError, match="one of 5 embeddings, got 5"):
        nn.Embedding(5, 3, padding_idx=5)
    with pytest.raises(IndexError):
        layer(tensor([5]))


def test_dropout_drops_only_in_training():
    manual_seed(0)
    layer, x = nn.Dropout(0.25), tensor(np.ones((100, 100)))
    out = layer(x).numpy()
    assert set(np.unique(out)) == {0, np.float32(1 / 0.75)} and abs((out == 0).mean() - 0.25) < 0.02
    assert layer.eval()(x) is x
    with pytest.raises(ValueError, match=r"between 0 and 1, got 1\.5"):
        nn.Dropout(1.5)


def test_batch_norm_counts_in_int32_and_resets():
    layer = nn.BatchNorm1d(2)
    assert layer.num_batches_tracked.dtype == int32 and layer.num_batches_tracked.shape == ()
    layer(randn(8, 2))
    layer.reset_parameters()
    assert layer.num_batches_tracked.item() == 0 and layer.running_var.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: nn.BatchNorm2d(3)(randn(2, 3, 4)),
            r"takes 4 axes, the second of 3 channels, got shape \(2, 3, 4\)",
        ),
        (
            lambda: nn.BatchNorm1d(3)(randn(2, 4)),
            r"takes 2 or 3 axes, the second of 3 channels, got shape \(2, 4\)",
        ),
        (lambda: nn.InstanceNorm2d(3)(randn(2, 4, 5, 5)), r"\(N, 3, H, W\), got shape \(2, 4, 5, 5\)"),
        (lambda: nn.GroupNorm(2, 4)(randn(2, 6)), r"\(N, 4, …\), got shape \(2, 6\)"),
        (lambda: nn.GroupNorm(3, 4), "4 channels do not divide into 3 groups"),
        (lambda: nn.Conv2d(3, 4, 3, groups=2), "3 and 4 channels do not divide into 2 groups"),
        (lambda: nn.Conv2d(3, 4, 3, padding="full"), "'same' or 'valid', got 'full'"),
        (lambda: nn.Conv2d(3, 4, 3, stride=2, padding="same"), "stride 1, got stride 2"),
        (
            lambda: nn.Conv2d(3, 4, (3, 3, 3)),
            r"kernel_size must be one int or 2, each at least 1, got \(3, 3, 3\)",
        ),
        (lambda: nn.Conv1d(3, 4, 0), "kernel_size must be one int or 1, each at least 1, got 0"),
        (lambda: nn.Linear(3, 4)(randn(2, 5)), r"\(2, 5\)"),
        (lambda: nn.GELU("erf"), "'none' or 'tanh', got 'erf'"),
        (lambda: nn.MSELoss(reduction="average"), "one of mean, sum, none, got 'average'"),
        (lambda: LeNet(pooling="min"), "'max' or 'avg', got 'min'"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# --- LeNet --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pooling", ["max", "avg"])
def test_lenet_learns_eight_images(pooling):
    manual_seed(0)
    net = LeNet(pooling=pooling)
    x, y = randn(8, 1, 28, 28), tensor(np.arange(8))
    assert sum(p.numel() for p in net.parameters()) == 61706
    assert net(x).shape == (8, 10)
    optimizer, loss, losses = optim.Adam(net.parameters(), lr=3e-3), nn.CrossEntropyLoss(), []
    for _ in range(25):
        optimizer.zero_grad()
        value = loss(net(x), y)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    assert losses[-1] < 0.3 * losses[0]
