"""The first lesson: what the tape writes down forwards, and what each gradient rule makes of it backwards.

    python scripts/lesson.py
    python scripts/lesson.py --expression "sum((a * b + c).tanh())" --let a=1,2 --let b=0.5 --let "c=1,2; 3,4"

Everything is computed in float64, and beside each gradient stands what finite differences say about it.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import operator
import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

import tinyadept as ta
import tinyadept.functional as F
from tinyadept.operators import Operators
from tinyadept.ops import table
from tinyadept.tape import Outline, Step, record
from tinyadept.tensor import Buffer, Tensor
from tinyadept.view import View

NEURON = "((w * x + c).tanh() - t).square().mean() + 0.1 * w * w"  # one neuron's loss, with weight decay
NEURON_VALUES = ["w=0.5", "x=-1,0.5,2", "c=0.25", "t=-1,0,1"]
NEURON_DATA = ["x", "t"]

BINARY = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
}
UNARY = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert}
NO_LESSON = {"backward", "register_hook", "retain_grad", "to"}
METHODS = {
    name for name, _ in inspect.getmembers(Operators, inspect.isfunction) if name.strip("_") == name
} - NO_LESSON
FUNCTIONS = {
    name: entry for name, entry in vars(F).items() if inspect.isfunction(entry) and name.strip("_") == name
}
PROPERTIES = {"T", "mT", "values", "indices"}


class LessonError(Exception):
    """The reader's input cannot be used; the message says why."""


READER_ERRORS = (
    LessonError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


# --- the reader's expression: a small part of Python's grammar, so that nothing else can run ---


class Evaluator(ast.NodeVisitor):
    """Compute an expression of tensors, numbers, operators, indices, tensor methods and functions of F."""

    def __init__(self, variables: dict[str, Tensor]):
        self.variables = variables

    def generic_visit(self, node: ast.AST) -> Any:
        raise LessonError(
            f"the lesson does not know {type(node).__name__} expressions, as in {ast.unparse(node)!r}"
        )

    def visit_Expression(self, node: ast.Expression) -> Any:
        return self.visit(node.body)

    def visit_Constant(self, node: ast.Constant) -> Any:
        if node.value is not None and type(node.value) not in (bool, int, float):
            raise LessonError(f"only numbers can stand in an expression, got {node.value!r}")
        return node.value

    def visit_Tuple(self, node: ast.Tuple | ast.List) -> Any:
        return tuple(self.visit(entry) for entry in node.elts)

    visit_List = visit_Tuple

    def visit_Slice(self, node: ast.Slice) -> Any:
        return slice(*(part and self.visit(part) for part in (node.lower, node.upper, node.step)))

    def visit_Name(self, node: ast.Name) -> Any:
        if node.id not in self.variables:
            raise LessonError(f"{node.id!r} has no value: add --let {node.id}=1,2,3")
        return self.variables[node.id]

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        left, right = self.visit(node.left), self.visit(node.right)
        if not isinstance(left, Tensor) and not isinstance(right, Tensor):
            left, right = (
                float(left),
                float(right),
            )  # 9**9**9**9 overflows at once, as integers it would never end
        return self.operation(BINARY, node.op)(left, right)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        return self.operation(UNARY, node.op)(self.visit(node.operand))

    def visit_Compare(self, node: ast.Compare) -> Any:
        if len(node.ops) > 1:
            raise LessonError(f"compare two things at a time, not {ast.unparse(node)!r}")
        return self.operation(BINARY, node.ops[0])(self.visit(node.left), self.visit(node.comparators[0]))

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        return self.tensor(node.value)[self.visit(node.slice)]

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        if node.attr not in PROPERTIES:
            raise LessonError(f"{ast.unparse(node)!r}: a tensor of the lesson has no attribute {node.attr!r}")
        return getattr(self.visit(node.value), node.attr)

    def visit_Call(self, node: ast.Call) -> Any:
        given = [self.visit(entry) for entry in node.args]
        named = {entry.arg: self.visit(entry.value) for entry in node.keywords if entry.arg}
        if len(named) < len(node.keywords):
            raise LessonError("arguments cannot be unpacked with **")
        return self.callee(node.func)(*given, **named)

    def operation(self, known: dict, op: ast.AST) -> Callable:
        if type(op) not in known:
            raise LessonError(f"the lesson does not know the operator {type(op).__name__}")
        return known[type(op)]

    def tensor(self, node: ast.expr) -> Tensor:
        value = self.visit(node)
        if not isinstance(value, Tensor):
            raise LessonError(f"{ast.unparse(node)!r} is no tensor")
        return value

    def callee(self, node: ast.expr) -> Callable:
        """What may be called: a function of F, with or without the F, or a method of a tensor."""
        if isinstance(node, ast.Name):
            found = FUNCTIONS.get(node.id)
        elif not isinstance(node, ast.Attribute):
            found = None
        elif isinstance(node.value, ast.Name) and node.value.id == "F":
            found = FUNCTIONS.get(node.attr)
        else:
            found = getattr(self.tensor(node.value), node.attr) if node.attr in METHODS else None
        if found is None:
            raise LessonError(
                f"{ast.unparse(node)!r} is neither a tensor method nor a function of tinyadept.functional"
            )
        return found


def parsed(text: str) -> ast.Expression:
    try:
        return ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise LessonError(f"{text!r} is no expression: {error}") from None


def variable(text: str) -> tuple[str, np.ndarray]:
    """A name and its values, from ``name=1,2,3``; semicolons separate rows."""
    name, _, numbers = text.partition("=")
    name = name.strip()
    if not name.isidentifier() or name == "F":
        raise LessonError(f"--let {text}: expected name=numbers, as in a=1,2,3")
    try:
        rows = [[float(n) for n in row.split(",") if n.strip()] for row in numbers.split(";")]
        values = np.array(rows)
    except ValueError:
        raise LessonError(
            f"--let {text}: expected rows of equally many numbers, as in a=1,2,3 or a=1,2; 3,4"
        ) from None
    if values.size == 0:
        raise LessonError(f"--let {text}: there is no number after the =")
    if ";" in numbers:
        return name, values
    return name, values[0] if "," in numbers else values[0, 0]


# --- one run of the expression, watched ---


class Run:
    """Compute the expression once and keep every result that the tape recorded.

    Parameters
    ----------
    tree : ast.Expression
    values : dict of str to ndarray
    data : set of str
        Variables that need no gradient.
    nudge : tuple, optional
        ``(place, change)``: what to add to a variable, by its name, or to the result of the n-th step.
    """

    def __init__(
        self, tree: ast.Expression, values: dict, data: set[str], nudge: tuple[Any, Any] = (None, 0.0)
    ):
        self.place, self.change = nudge
        self.results: list[Tensor] = []
        self.inputs: dict[Step, tuple] = {}
        self.variables = {}
        for name, array in values.items():
            array = array + self.change if name == self.place else array
            self.variables[name] = ta.tensor(array, dtype=ta.float64, requires_grad=name not in data)
        ta.manual_seed(0)
        with ta.enable_grad(), mock.patch.object(table, "record", self.watch):
            self.out = Evaluator(self.variables).visit(tree)

    def watch(self, op: Any, out: Tensor, inputs: tuple, params: dict) -> Tensor:
        out = record(op, out, inputs, params)
        if out.step is not None:
            if self.place == len(self.results):
                out.buffer, out.layout = Buffer(out.detach().numpy() + self.change), View.dense(out.shape)
            self.results.append(out)
            self.inputs[out.step] = inputs
        return out

    def called(self, x: Tensor) -> str:
        """The name of a tensor: a variable, the tick of a step, or else its value."""
        for name, tensor in self.variables.items():
            if x is tensor:
                return name
        return f"#{x.step.tick}" if x.step is not None else shown(x.numpy())


class Lesson:
    """The expression, its watched run, and the finite differences of the sum of its result."""

    def __init__(self, expression: str, values: dict[str, np.ndarray], data: set[str]):
        self.tree, self.values, self.data = parsed(expression), values, data
        self.run = Run(self.tree, values, data)
        self.arrived: dict[str, list[str]] = {}  # at each step and variable, the gradients that rules sent
        if not isinstance(self.run.out, Tensor) or not self.run.results or self.run.out.step is None:
            raise LessonError("the expression must compute a tensor from a variable that is not --data")

    def slope(self, place: Any, at: np.ndarray) -> np.ndarray:
        """Central differences of the result with respect to a variable, or to the result of the n-th step."""
        slopes = np.zeros(at.shape)
        for cell in np.ndindex(at.shape):
            step = 1e-6 * max(1.0, abs(at[cell]))
            change = np.zeros(at.shape)
            change[cell] = step
            up, down = (
                Run(self.tree, self.values, self.data, (place, sign * change)).out for sign in (1, -1)
            )
            slopes[cell] = (up.detach().numpy() - down.detach().numpy()).sum() / (2 * step)
        return slopes


# --- how things look ---


def shown(values: Any) -> str:
    text = np.array2string(
        np.asarray(values),
        formatter={"float_kind": "{:.4g}".format},
        separator=", ",
        threshold=16,
        edgeitems=2,
    )
    return " ".join(text.split())


def print_gradient(name: str, gradient: np.ndarray, terms: list[str], slope: np.ndarray) -> None:
    """A gradient, the terms it is the sum of where several rules sent one, and finite differences."""
    doubt = "" if np.allclose(gradient, slope, rtol=1e-4, atol=1e-6) else ": THEY DIFFER, is this a kink?"
    print(f"    {name} = {shown(gradient)}{' = ' + ' + '.join(terms) if len(terms) > 1 else ''}")
    print(f"    {' ' * len(name)} ≈ {shown(slope)} by finite differences{doubt}")


def rule_text(rule: Callable) -> str:
    """The formula of a gradient rule, as it stands in the source."""
    source = inspect.getsource(sys.modules[rule.__module__])
    places = set(rule.__code__.co_positions())
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Lambda):
            body = node.body
            if (body.lineno, body.end_lineno, body.col_offset, body.end_col_offset) in places:
                return ast.unparse(body)
    return f"{rule.__name__}(…)"


def parameters(params: dict) -> str:
    return "".join(f", {key}={getattr(value, 'name', value)}" for key, value in params.items())


def saved(step: Step, names: list[str]) -> str:
    """What a step kept for its gradient rules."""
    values = [name for name, x in zip(names, step.inputs or ()) if isinstance(x, Tensor)]
    shapes = [f"shape of {name}" for name, x in zip(names, step.inputs or ()) if isinstance(x, Outline)]
    return ", ".join(values + ["its value"] * (step.out is not None) + shapes) or "nothing"


def argument_names(step: Step) -> list[str]:
    """What the rules of an op call its inputs."""
    if step.op.variadic:
        return [f"input {n}" for n in range(len(step.shapes))]
    rule = next(rule for rule in step.op.vjps if rule is not None)
    return list(rule.__code__.co_varnames[2 : 2 + len(step.shapes)])


def print_variables(lesson: Lesson) -> None:
    print("Variables")
    for name, x in lesson.run.variables.items():
        note = "" if x.requires_grad else "data: needs no gradient"
        print(f"  {name:<8}{x.shape!s:<9}{shown(x.numpy()):<32}{note}".rstrip())


def print_forward(lesson: Lesson) -> None:
    print("\nForward: each step gets a tick, and saves only what its gradient rules will read.\n")
    rows = [("tick", "step", "shape", "value", "saves")]
    for out in lesson.run.results:
        step = out.step
        names = list(map(lesson.run.called, lesson.run.inputs[step]))
        call = f"{step.op.name}({', '.join(names)}{parameters(step.params)})"
        rows.append((f"#{step.tick}", call, str(out.shape), shown(out.numpy()), saved(step, names)))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for row in rows:
        print("  " + "  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip())


def print_step(lesson: Lesson, position: int, g: Tensor) -> None:
    """What a step does when its gradient g has arrived: run the rule of each input that gradient flows to."""
    result = lesson.run.results[position]
    step, names = result.step, argument_names(result.step)
    targets = list(map(lesson.run.called, lesson.run.inputs[step]))
    where = ", ".join(f"{name} = {target}" for name, target in zip(names, targets))
    slope = lesson.slope(position, result.detach().numpy())
    print(f"#{step.tick}  out = {step.op.name}({', '.join(names)}{parameters(step.params)})  where {where}")
    print_gradient("g", g.numpy(), lesson.arrived.get(f"#{step.tick}", []), slope)
    out, inputs = step.arguments()
    for number, target in enumerate(targets):
        op, params = step.op, step.params
        rule, which = op.vjps[0 if op.variadic or op.joint else number], [number] if op.variadic else []
        if op.joint:
            params = {**params, "needs": [parent is not None for parent in step.parents]}
        sent = rule(g, out, *which, *inputs, **params) if step.parents[number] is not None else None
        sent = sent[number] if op.joint and sent else sent
        if sent is None:
            print(f"    to {target}: no gradient")
            continue
        print(f"    to {target}: {rule_text(rule)} = {shown(sent.numpy())}")
        folded = sent.sum_to(step.shapes[number])
        if folded.shape != sent.shape:
            print(
                f"       {target} was broadcast from shape {folded.shape}: what its copies get adds up to",
                shown(folded.numpy()),
            )
        lesson.arrived.setdefault(target, []).append(shown(folded.numpy()))


def print_backward(lesson: Lesson) -> None:
    print("\nBackward: newest step first, so that g, the gradient of y with respect to a step's result,")
    print("is complete when the step's rules pass it on.\n")
    for position, result in enumerate(lesson.run.results):
        result.register_hook(lambda g, position=position: print_step(lesson, position, g))
    out = lesson.run.out
    out.backward(ta.tensor(np.ones(out.shape), dtype=out.dtype))


def print_gradients(lesson: Lesson) -> None:
    print("\nGradients: what the variables have in .grad now.\n")
    for name, x in lesson.run.variables.items():
        if x.grad is not None:
            slope = lesson.slope(name, lesson.values[name])
            print_gradient(f"dy/d{name}", x.grad.numpy(), lesson.arrived[name], slope)
        elif x.requires_grad:
            print(f"    dy/d{name}: the result does not depend on it")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Print the tape of one expression, forward and backward.")
    parser.add_argument("--expression", help=f"over named variables; without it {NEURON}")
    parser.add_argument(
        "--let",
        action="append",
        default=[],
        metavar="NAME=NUMBERS",
        help="a variable, as in a=1,2,3 or a=1,2; 3,4",
    )
    parser.add_argument(
        "--data", action="append", default=[], metavar="NAME", help="a variable that needs no gradient"
    )
    options = parser.parse_args(arguments)
    if options.expression is None:
        options.let, options.data = NEURON_VALUES + options.let, NEURON_DATA + options.data
    expression = options.expression or NEURON
    try:
        lesson = Lesson(expression, dict(map(variable, options.let)), set(options.data))
    except READER_ERRORS as error:
        print(f"lesson: {error.args[-1]}", file=sys.stderr)
        return 2
    out = lesson.run.out
    print(
        f"\ny = {expression}"
        + ("" if out.shape == () else "   (and the gradients are those of y.sum())")
        + "\n"
    )
    print_variables(lesson)
    print_forward(lesson)
    print_backward(lesson)
    print_gradients(lesson)
    return 0


if __name__ == "__main__":
    sys.exit(main())
