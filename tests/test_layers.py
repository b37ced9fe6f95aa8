"""The design as a test: who imports whom, what a rule may use, and that every row is complete."""

import ast
import sys
from pathlib import Path

import pytest

from tinyadept import oracle
from tinyadept.ops import registry

ROOT = Path(__file__).parent.parent
# A module may import from its own layer and from those before it.
LAYERS = [
    {"errors", "dtypes", "view"},
    {"device"},
    {"tensor"},
    {"tape"},
    {"ops"},
    {"indexing"},
    {"operators"},
    {"capture", "creation", "gradcheck", "oracle"},
    {"random"},
    {"functional"},
    {"nn", "optim", "io", "data", "text"},
    {"models", "onnx"},
    {"training"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def modules():
    for path in sorted((ROOT / "tinyadept").rglob("*.py")):
        name = path.relative_to(ROOT / "tinyadept").with_suffix("").parts
        if name != ("__init__",):
            yield path, name[0], [p for p in name if p != "__init__"]
    for path in sorted((ROOT / "models").rglob("*.py")):
        yield path, "models", ["models", path.stem]


def imports(path, parts, is_package):
    """(dotted name inside tinyadept or an outside name, whether it stands in a TYPE_CHECKING block)."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)
        for statement in block.body
        for node in ast.walk(statement)
    }
    here = parts if is_package else parts[:-1]
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, True) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module, True
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - (node.level - 1)]
            target = [*base, *(node.module.split(".") if node.module else [])]
            yield from (
                ((".".join([*target, alias.name]), False) for alias in node.names)
                if not target
                else [(".".join(target), False)]
            )


def test_imports_point_one_way():
    wrong = []
    for path, layer, parts in modules():
        for target, outside in imports(path, parts, path.stem == "__init__"):
            first = target.removeprefix("tinyadept.").split(".")[0] if outside else target.split(".")[0]
            if outside and not target.startswith("tinyadept"):
                continue
            if first in LEVEL and LEVEL[first] > LEVEL[layer]:
                wrong.append(f"{path.relative_to(ROOT)} imports {first}")
            if first in ("backends", "glsl", "tests", "scripts"):
                wrong.append(f"{path.relative_to(ROOT)} imports {first}")
    assert not wrong


def test_backends_import_only_what_is_below_them():
    allowed = {"ops", "view", "tensor", "errors", "dtypes"}
    wrong = []
    for path in (ROOT / "backends").rglob("*.py"):
        for target, outside in imports(path, ["backends", path.stem], path.stem == "__init__"):
            first = target.removeprefix("tinyadept").strip(".").split(".")[0]
            if outside and target.startswith("tinyadept") and first not in allowed:
                wrong.append(f"{path.name} imports {target}")
    assert not wrong


def test_the_engine_needs_numpy_alone():
    """Outside the standard library only NumPy is imported when a module loads, extras aside."""
    extras = {("oracle", name): {"hypothesis"} for name in ("families", "layout", "fuzzing")}
    for path, layer, _ in modules():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in tree.body:
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            for name in names:
                top = name.split(".")[0]
                allowed = {"numpy", "tinyadept"} | extras.get((layer, path.stem), set())
                allowed |= {"onnx", "google"} if layer == "onnx" else set()  # which nothing else imports
                fine = top in sys.stdlib_module_names or top in allowed
                assert fine, f"{path.relative_to(ROOT)} needs {top} as soon as it is imported"


def codes(code):
    yield code
    for constant in code.co_consts:
        if hasattr(constant, "co_code"):
            yield from codes(constant)


@pytest.mark.parametrize("op", registry.values(), ids=lambda op: op.name)
def test_rules_are_written_in_tensor_operators(op):
    """A rule that calls NumPy would leave the device, and could not be differentiated."""
    for rule in op.vjps:
        if rule is not None:
            for code in codes(rule.__code__):
                assert "np" not in code.co_names and "numpy" not in code.co_names, (
                    f"a rule of {op.name} uses NumPy"
                )
                called = [rule.__globals__.get(name) for name in code.co_names]
                for function in called:
                    inner = getattr(function, "__code__", None)
                    assert inner is None or "np" not in inner.co_names, f"a rule of {op.name} uses NumPy"


@pytest.mark.parametrize("op", registry.values(), ids=lambda op: op.name)
def test_every_row_is_fuzzed(op):
    assert op.family.name in oracle.FAMILIES or op.family.name in oracle.UNDRAWN
    assert op.ulps <= 8


def test_nothing_is_hidden_in_files_of_no_subject():
    banned = {"util", "utils", "helper", "helpers", "common", "misc", "base", "manager"}
    for folder in ("tinyadept", "backends", "models", "scripts", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            assert path.stem not in banned, path
