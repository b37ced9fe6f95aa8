"""Products of tensors: linear layers, outer products, and Einstein's summation."""

from __future__ import annotations

from math import prod
from typing import Any

from ..operators import multiplied
from ..ops import matmul as rows
from ..tensor import Tensor


def matmul(input: Tensor, other: Tensor) -> Tensor:
    """Matrix product: vectors, matrices, and batches of matrices that broadcast."""
    return multiplied(input, other)


def linear(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    residual: Tensor | None = None,
    activation: str | None = None,
) -> Tensor:
    """``activation(input @ weight.T + bias + residual)``: (…, I), (O, I), (O,) and (…, O) give (…, O).

    Parameters
    ----------
    input, weight : Tensor
    bias : Tensor, optional
    residual : Tensor, optional
        Of the result's shape, added before it is written. Beyond PyTorch.
    activation : str, optional
        As in `conv2d`. Beyond PyTorch.

    Raises
    ------
    ValueError
        If the shapes do not fit, or there is no such activation.
    """
    if weight.ndim not in (1, 2) or not input.shape or input.shape[-1] != weight.shape[-1]:
        raise ValueError(f"linear: input {input.shape} and weight {weight.shape}: expected (…, I) and (O, I)")
    if weight.ndim == 1 or (bias is not None and bias.shape != weight.shape[:1]):
        if activation or residual is not None:
            raise ValueError(
                f"linear: activation or residual with weight {weight.shape}: expected (O, I), bias (O,)"
            )
        out = multiplied(input, weight.T)
        return out if bias is None else out + bias
    lead, after = input.shape[:-1], {"activation": activation} if activation else {}
    added = tuple(x for x in (bias, residual) if x is not None)
    if lead:
        return rows.linear(input, weight, *added, **after)
    if residual is not None:
        added = (*added[:-1], residual.unsqueeze(0))
    return rows.linear(input.unsqueeze(0), weight, *added, **after).squeeze(0)


def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """Every product of an element of one vector and one of another: (N,), (M,) give (N, M)."""
    if input.ndim != 1 or vec2.ndim != 1:
        raise ValueError(f"outer takes two vectors, got shapes {input.shape} and {vec2.shape}")
    return input.unsqueeze(1) * vec2


def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """Product of two matrices, without broadcasting."""
    if input.ndim != 2 or mat2.ndim != 2:
        raise ValueError(f"mm takes two matrices, got shapes {input.shape} and {mat2.shape}")
    return multiplied(input, mat2)


def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """Products of equally many matrices, without broadcasting: (B, N, K), (B, K, M) give (B, N, M)."""
    if input.ndim != 3 or mat2.ndim != 3 or input.shape[0] != mat2.shape[0]:
        raise ValueError(
            f"bmm takes two batches of equally many matrices, got shapes {input.shape} and {mat2.shape}"
        )
    return multiplied(input, mat2)


def einsum(equation: str, *operands: Any) -> Tensor:
    """Sum of products over named axes (Einstein's convention), as in ``einsum("bij,bjk->bik", a, b)``.

    Parameters
    ----------
    equation : str
        A letter for each axis of each operand, comma between operands; ``...`` stands for axes that
        broadcast. Without ``->`` the letters that occur once, in alphabetical order, are kept.
    *operands : Tensor

    Raises
    ------
    ValueError
        If letters and axes do not fit, or two axes of one letter differ in length.
    """
    tensors = (
        list(operands[0]) if len(operands) == 1 and not isinstance(operands[0], Tensor) else list(operands)
    )
    terms, result = spelled_out(equation, tensors)
    lengths: dict[str, int] = {}
    for term, x in zip(terms, tensors, strict=True):
        for letter, n in zip(term, x.shape, strict=True):
            if lengths.setdefault(letter, n) != n and 1 not in (n, lengths[letter]):
                raise ValueError(f"einsum: axis {letter!r} has lengths {lengths[letter]} and {n}")
            lengths[letter] = max(lengths[letter], n) if n and lengths[letter] else 0
    if any(letter not in lengths for letter in result):
        raise ValueError(f"einsum: the result {''.join(result)!r} names an axis that no operand has")
    pairs = [unrepeated(list(term), x) for term, x in zip(terms, tensors, strict=True)]
    term, x = pairs[0]
    for position, (next_term, y) in enumerate(pairs[1:], 1):
        later = {letter for other, _ in pairs[position + 1 :] for letter in other} | set(result)
        term, x = contracted(term, x, next_term, y, later, lengths)
    gone = tuple(axis for axis, letter in enumerate(term) if letter not in result)
    x, term = (x.sum(gone) if gone else x), [letter for letter in term if letter in result]
    x = x.permute(*(term.index(letter) for letter in result))
    return x.expand(*(lengths[letter] for letter in result)) if result else x


def spelled_out(equation: str, tensors: list[Tensor]) -> tuple[list[list[str]], list[str]]:
    """Letters of each operand and of the result, with numbered names in place of each ellipsis."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors) or not tensors:
        raise ValueError(f"einsum: {equation!r} names {len(terms)} operands, got {len(tensors)}")
    ranks = [x.ndim - len(term.replace("...", "")) for term, x in zip(terms, tensors, strict=True)]
    for term, rank, x in zip(terms, ranks, tensors, strict=True):
        if (
            rank < 0
            or (rank and "..." not in term)
            or not term.replace("...", "", 1).isalpha() * bool(term) | (term in ("", "..."))
        ):
            raise ValueError(f"einsum: {term!r} does not fit a tensor of shape {x.shape}")
    widest = max([rank for term, rank in zip(terms, ranks, strict=True) if "..." in term], default=0)

    def letters(term: str, rank: int) -> list[str]:
        before, dots, after = term.partition("...")
        return list(before) + ([f"_{i}" for i in range(widest - rank, widest)] if dots else []) + list(after)

    named = [letters(term, rank) for term, rank in zip(terms, ranks, strict=True)]
    if arrow:
        result = letters(right, widest)
        if len(set(result)) < len(result):
            raise ValueError(f"einsum: the result {right!r} names an axis twice")
        return named, result
    everything = [letter for term in named for letter in term if not letter.startswith("_")]
    once = sorted(letter for letter in set(everything) if everything.count(letter) == 1)
    return named, [f"_{i}" for i in range(widest)] + once


def unrepeated(term: list[str], x: Tensor) -> tuple[list[str], Tensor]:
    """A letter that an operand has twice means its diagonal."""
    for letter in list(term):
        while term.count(letter) > 1:
            first = term.index(letter)
            second = term.index(letter, first + 1)
            if x.shape[first] != x.shape[second]:
                raise ValueError(
                    f"einsum: axis {letter!r} has lengths {x.shape[first]} and {x.shape[second]}"
                )
            x = x.diagonal(0, first, second)
            term = [name for axis, name in enumerate(term) if axis not in (first, second)] + [letter]
    return term, x


def contracted(
    term: list[str], x: Tensor, other: list[str], y: Tensor, later: set[str], lengths: dict[str, int]
) -> tuple[list[str], Tensor]:
    """Multiply two operands as one batched matrix product, summing the letters that nothing later needs."""
    x, term = summed_alone(x, term, set(other) | later)
    y, other = summed_alone(y, other, set(term) | later)
    batch = [letter for letter in term if letter in other and letter in later]
    inner = [letter for letter in term if letter in other and letter not in later]
    left = [letter for letter in term if letter not in other]
    right = [letter for letter in other if letter not in term]
    x = arranged(x, term, batch, left, inner, lengths)
    y = arranged(y, other, batch, inner, right, lengths)
    names = batch + left + right
    return names, multiplied(x, y).reshape(*(lengths[letter] for letter in names))


def summed_alone(x: Tensor, term: list[str], wanted: set[str]) -> tuple[Tensor, list[str]]:
    gone = tuple(axis for axis, letter in enumerate(term) if letter not in wanted)
    return (x.sum(gone) if gone else x), [letter for letter in term if letter in wanted]


def arranged(
    x: Tensor, term: list[str], batch: list[str], rows: list[str], columns: list[str], lengths: dict[str, int]
) -> Tensor:
    """Axes ordered and merged for a product: (batch, rows, columns)."""
    order = batch + rows + columns
    x = x.permute(*(term.index(letter) for letter in order)).expand(*(lengths[letter] for letter in order))
    merged = (prod(lengths[letter] for letter in group) for group in (batch, rows, columns))
    return x.reshape(*merged)
