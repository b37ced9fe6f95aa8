"""Random programs of views and in-place writes: each gradient equals PyTorch's, or the engine refuses."""

import random

import numpy as np
import pytest

import tinyadept as ta

torch = pytest.importorskip("torch")
START = np.arange(1.0, 13.0).reshape(3, 4) / 7


def written_off_the_tape(x, y, c):
    with ta.no_grad() if isinstance(x, ta.Tensor) else torch.no_grad():
        x[0] = c


def assigned(place, value):
    def step(x, y, c):
        x[place] = value(x, y, c)

    return step


STEPS = {  # what returns a tensor makes another one; what returns None writes to x
    "slice": lambda x, y, c: x[1:] if x.shape[0] > 1 else x,
    "stride": lambda x, y, c: x[::2],
    "transpose": lambda x, y, c: x.T if x.ndim == 2 else x,
    "select": lambda x, y, c: x[0] if x.ndim > 1 else x,
    "reshape": lambda x, y, c: x.reshape(-1),
    "detach": lambda x, y, c: x.detach(),
    "square": lambda x, y, c: x * x,
    "exp": lambda x, y, c: (x * 0.1).exp(),
    "times": lambda x, y, c: x * y.sum(),
    "add_": lambda x, y, c: None if x.add_(y.sum() * 0.1) is x else x,
    "mul_": lambda x, y, c: None if x.mul_(c) is x else x,
    "copy_": lambda x, y, c: None if x.copy_(x.detach() * c) is x else x,
    "set": assigned(0, lambda x, y, c: y.sum() * c),
    "set from itself": assigned(-1, lambda x, y, c: x[0] * c),
    "set a view of itself": assigned(0, lambda x, y, c: x[0].add_(y.sum() * c)),
    "set off the tape": written_off_the_tape,
}


def outcome(start, program, weights):
    """The loss and its gradient after a program, in the library of `start`."""
    tensors = [start * 1, start.detach() * 0 + 1, start.detach() * 2]
    for name, target, other, number in program:
        made = STEPS[name](tensors[target % len(tensors)], tensors[other % len(tensors)], number)
        if made is not None:
            tensors.append(made)
    loss = sum((x * x).sum() * w for x, w in zip(tensors, weights, strict=False))
    loss.backward()
    return loss.item(), start.grad.tolist()


def test_no_program_of_writes_gets_a_wrong_gradient():
    agreed = 0
    for seed in range(2500):
        draw = random.Random(seed)
        program = [
            (draw.choice(list(STEPS)), draw.randrange(20), draw.randrange(20), draw.uniform(0.5, 1.5))
            for _ in range(draw.randint(3, 9))
        ]
        weights = [draw.uniform(0.5, 2.0) for _ in range(12)]
        try:
            ours = outcome(ta.tensor(START, dtype=ta.float64, requires_grad=True), program, weights)
            theirs = outcome(torch.tensor(START, requires_grad=True), program, weights)
        except RuntimeError:
            continue
        np.testing.assert_allclose(ours[0], theirs[0], err_msg=str(program))
        np.testing.assert_allclose(ours[1], theirs[1], err_msg=str(program))
        agreed += 1
    assert agreed > 500
