"""Optimisers: each says how one parameter follows its gradient."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import sqrt
from typing import Any

from ..creation import zeros_like
from ..ops import update
from ..tape import no_grad
from ..tensor import Tensor

Params = Iterable[Tensor] | Iterable[dict[str, Any]]


class Optimizer:
    """What all optimisers share: groups of parameters with their settings, and a state for each parameter.

    Subclasses define `update`.

    Parameters
    ----------
    params : iterable of Tensor, or of dict
        Parameters; or groups of them, each a dict whose "params" are its parameters and whose other entries
        replace the defaults.
    defaults : dict
        Settings by name.

    Attributes
    ----------
    param_groups : list of dict
        Settings may be changed at any time; a learning-rate schedule sets "lr".
    state : dict
        For each parameter what the optimiser remembers of it.

    Raises
    ------
    ValueError
        If there are no parameters, one appears twice or is no leaf, or a setting is out of range.
    TypeError
        If a parameter is no tensor, or a setting is unknown.
    """

    def __init__(self, params: Params, defaults: dict[str, Any]):
        if isinstance(params, (Tensor, Mapping)):
            got = type(params).__name__
            raise TypeError(
                f"{self.name} takes a list of tensors or of dicts, got one {got}: put it in [...]"
            )
        self.defaults = defaults
        self.state: dict[Tensor, dict[str, Any]] = {}
        self.param_groups: list[dict[str, Any]] = []
        listed = list(params)
        if not listed:
            raise ValueError(f"{self.name} got no parameters: is the module empty, or the generator used up?")
        groups: list[Any] = listed if isinstance(listed[0], dict) else [{"params": listed}]
        for group in groups:
            self.add_param_group(group)

    @property
    def name(self) -> str:
        return type(self).__name__

    def add_param_group(self, group: dict[str, Any]) -> None:
        """Optimise more parameters, with settings of their own; parameters and errors as in `Optimizer`."""
        if not isinstance(group, dict) or "params" not in group:
            raise TypeError(
                f"{self.name} takes either tensors or dicts with 'params', got {type(group).__name__}"
            )
        params = [group["params"]] if isinstance(group["params"], Tensor) else list(group["params"])
        known = {id(p) for other in self.param_groups for p in other["params"]}
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(f"{self.name} takes tensors, got {type(p).__name__} among the parameters")
            if not p.is_leaf:
                raise ValueError(f"{self.name} takes leaves, got {p.shape} made by {p.step.op.name}")
            if id(p) in known:
                raise ValueError(f"{self.name} got a parameter of shape {p.shape} twice")
            known.add(id(p))
        unknown = [key for key in group if key not in self.defaults and key not in ("params", "initial_lr")]
        if unknown:
            raise TypeError(f"{self.name} has no setting {unknown[0]!r}: expected {', '.join(self.defaults)}")
        settings = {**self.defaults, **group, "params": params}
        self.check(settings)
        self.param_groups.append(settings)

    def check(self, group: dict[str, Any]) -> None:
        """Refuse settings out of range."""
        for key in ("lr", "eps", "weight_decay", "momentum", "alpha"):
            if not group.get(key, 0) >= 0:
                raise ValueError(f"{self.name}: {key} must not be negative, got {group[key]}")
        for beta in group.get("betas", ()):
            if not 0 <= beta < 1:
                raise ValueError(f"{self.name}: betas must lie in [0, 1), got {group['betas']}")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or fill them with zeros."""
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none:
                    p.grad = None
                elif p.grad is not None:
                    p.grad = p.grad.detach().zero_()

    @no_grad()
    def step(self) -> None:
        """Change every parameter that has a gradient, in place.

        Raises
        ------
        ValueError
            If a gradient has another shape, dtype or device than its parameter.
        """
        for group in self.param_groups:
            alike: dict[Any, list[Tensor]] = {}
            for p in group["params"]:
                if p.grad is not None:
                    if p.grad.shape != p.shape:
                        got = f"a gradient of shape {p.grad.shape} for a parameter of shape {p.shape}"
                        raise ValueError(f"{self.name}: {got}")
                    alike.setdefault(self.age(self.state.get(p, {})), []).append(p)
            for age, params in alike.items():
                self.update(params, group, age)

    def age(self, state: dict[str, Any]) -> Any:
        """Parameters of one group and age are changed together; `state` is what is remembered of one."""
        return 0

    def update(self, params: list[Tensor], group: dict[str, Any], age: Any) -> None:
        """Change parameters in place, none of whose gradients is None.

        Parameters
        ----------
        params : list of Tensor
        group : dict
            The settings.
        age : object
            What `age` says of each of them.
        """
        raise NotImplementedError(f"{self.name} has no update()")

    def remembered(self, p: Tensor, *keys: str) -> list[Tensor]:
        """What is remembered of a parameter: running means or sums, zero at first."""
        state = self.state.setdefault(p, {})
        for key in keys:
            if key not in state:
                state[key] = zeros_like(p)
        return [state[key] for key in keys]

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to continue, as plain numbers and tensors.

        Returns
        -------
        dict
            "state" maps a parameter's number, counted through all groups, to a dict of ints and Tensors,
            which share the optimiser's memory; "param_groups" lists settings, and parameters by number.
        """
        number = {id(p): i for i, p in enumerate(self.params())}
        return {
            "state": {number[id(p)]: dict(state) for p, state in self.state.items()},
            "param_groups": [
                {**g, "params": [number[id(p)] for p in g["params"]]} for g in self.param_groups
            ],
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned, copying the tensors.

        Keys that became strings and tuples that became lists on their way through JSON are understood.

        Raises
        ------
        ValueError
            If groups, settings or shapes differ from this optimiser's, or a setting is out of range. The
            optimiser then stays as it was.
        """
        lacking = [key for key in ("state", "param_groups") if key not in state_dict]
        if lacking:
            raise ValueError(f"{self.name}: the state has no {lacking[0]!r}, only {', '.join(state_dict)}")
        groups = [self.resumed(*pair) for pair in self.paired(state_dict["param_groups"])]
        params, state = self.params(), {}
        for key, saved in state_dict["state"].items():
            if not 0 <= int(key) < len(params):
                raise ValueError(f"{self.name}: the state names parameter {key} of {len(params)}")
            p = params[int(key)]
            for name, value in saved.items():
                if isinstance(value, Tensor) and value.shape != p.shape:
                    got = f"{name} of parameter {key} has shape {value.shape}"
                    raise ValueError(f"{self.name}: {got}, expected {p.shape}")
            state[p] = {name: copied(value, p) for name, value in saved.items()}
        self.state = state
        for group, settings in zip(self.param_groups, groups, strict=True):
            group.update(settings)

    def paired(self, saved: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        got = [len(group["params"]) for group in saved]
        expected = [len(group["params"]) for group in self.param_groups]
        if got != expected:
            raise ValueError(f"{self.name}: the state has groups of {got} parameters, expected {expected}")
        return list(zip(self.param_groups, saved, strict=True))

    def resumed(self, group: dict[str, Any], saved: dict[str, Any]) -> dict[str, Any]:
        settings = {name: tuple(value) if isinstance(value, list) else value for name, value in saved.items()}
        unknown = [name for name in settings if name not in group and name != "initial_lr"]
        if unknown:
            raise ValueError(f"{self.name}: the state has a setting {unknown[0]!r} of another optimiser")
        settings["params"] = group["params"]
        self.check({**group, **settings})
        return settings

    def params(self) -> list[Tensor]:
        """All parameters, group by group."""
        return [p for group in self.param_groups for p in group["params"]]

    def __repr__(self) -> str:
        lines = []
        for i, group in enumerate(self.param_groups):
            settings = ", ".join(f"{key}={value}" for key, value in group.items() if key != "params")
            lines.append(f"  group {i}: {len(group['params'])} parameters, {settings}")
        return "\n".join([f"{self.name}(", *lines, ")"])


def copied(value: Any, p: Tensor) -> Any:
    return value.detach().to(p).clone() if isinstance(value, Tensor) else value


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum if asked for (Sutskever et al., 2013).

    v ← momentum · v + (1 - dampening) · g, at first v ← g; p ← p - lr · v, or with `nesterov`
    p ← p - lr · (g + momentum · v). Weight decay adds weight_decay · p to g.

    Parameters
    ----------
    params : iterable of Tensor, or of dict
        See `Optimizer`, for errors as well.
    lr, momentum, dampening, weight_decay : float
    nesterov : bool
        Needs momentum and no dampening.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ):
        settings = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay}
        super().__init__(params, {**settings, "nesterov": nesterov})

    def check(self, group: dict[str, Any]) -> None:
        super().check(group)
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            got = f"momentum {group['momentum']} and dampening {group['dampening']}"
            raise ValueError(f"SGD: nesterov needs momentum above 0 and dampening 0, got {got}")

    def age(self, state: dict[str, Any]) -> bool:
        return "momentum_buffer" in state

    def update(self, params: list[Tensor], group: dict[str, Any], age: bool) -> None:
        if not group["momentum"]:
            rows = [(p, p.grad) for p in params]
            return update.sgd(*rows, numbers=lambda: (group["lr"], group["weight_decay"]))

        def numbers() -> tuple[float, ...]:
            share = 1 - group["dampening"] if age else 1.0
            return group["lr"], group["weight_decay"], group["momentum"], share, float(group["nesterov"])

        rows = [(p, p.grad, *self.remembered(p, "momentum_buffer")) for p in params]
        return update.sgd_momentum(*rows, numbers=numbers)


class Adam(Optimizer):
    """Steps scaled by running moments of the gradient (Kingma and Ba, 2015).

    m ← β₁ · m + (1 - β₁) · g; v ← β₂ · v + (1 - β₂) · g²; p ← p - lr · m̂ / (√v̂ + eps) with
    m̂ = m / (1 - β₁ᵗ) and v̂ = v / (1 - β₂ᵗ) in step t. Weight decay adds weight_decay · p to g.

    Parameters
    ----------
    params : iterable of Tensor, or of dict
        See `Optimizer`, for errors as well.
    lr : float
    betas : pair of float
        β₁ and β₂, in [0, 1).
    eps, weight_decay : float
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    coupled = True  # whether weight decay is added to the gradient

    def age(self, state: dict[str, Any]) -> int:
        return state.get("step", 0)

    def update(self, params: list[Tensor], group: dict[str, Any], age: int) -> None:
        rows = [(p, p.grad, *self.remembered(p, "exp_avg", "exp_avg_sq")) for p in params]
        states = [self.state[p] for p in params]

        def numbers() -> tuple[float, ...]:
            step = states[0].get("step", 0) + 1
            for state in states:
                state["step"] = step
            beta1, beta2 = group["betas"]
            # Both corrections are moved into numbers: lr · m̂ / (√v̂ + eps) = rate · m / (√v + eps · root).
            root = sqrt(1 - beta2**step)
            rate, decay = group["lr"] * root / (1 - beta1**step), group["weight_decay"]
            added, keep = (decay, 1.0) if self.coupled else (0.0, 1 - group["lr"] * decay)
            return rate, group["eps"] * root, added, keep, beta1, 1 - beta1, beta2, 1 - beta2

        update.adam(*rows, numbers=numbers)


class AdamW(Adam):
    """Adam whose weight decay is kept out of the moments (Loshchilov and Hutter, 2019).

    p ← p - lr · weight_decay · p, and then as in `Adam` without weight decay.
    Parameters are those of `Adam`.
    """

    coupled = False

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ):
        super().__init__(params, lr, betas, eps, weight_decay)


class RMSprop(Optimizer):
    """Steps divided by the root of a running mean of squared gradients (Tieleman and Hinton, 2012).

    s ← alpha · s + (1 - alpha) · g²; p ← p - lr · g / (√s + eps). `centered` subtracts from s the square of a
    running mean of g; momentum sums the steps up: b ← momentum · b + g / (√s + eps), p ← p - lr · b. Weight
    decay adds weight_decay · p to g.

    Parameters
    ----------
    params : iterable of Tensor, or of dict
        See `Optimizer`, for errors as well.
    lr, alpha, eps, weight_decay, momentum : float
    centered : bool
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
    ):
        settings = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**settings, "momentum": momentum, "centered": centered})

    def update(self, params: list[Tensor], group: dict[str, Any], age: Any) -> None:
        keys, name = ["square_avg"], "rmsprop"
        if group["centered"]:
            keys, name = [*keys, "grad_avg"], f"{name}_centered"
        if group["momentum"]:
            keys, name = [*keys, "momentum_buffer"], f"{name}_momentum"

        def numbers() -> tuple[float, ...]:
            momentum = (group["momentum"],) if group["momentum"] else ()
            alpha = group["alpha"]
            return group["lr"], group["weight_decay"], group["eps"], alpha, 1 - alpha, *momentum

        rows = [(p, p.grad, *self.remembered(p, *keys)) for p in params]
        getattr(update, name)(*rows, numbers=numbers)
