"""``python -m tinyadept.onnx model.onnx`` says what is in a file and what of it would not run."""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from . import (
    operators,  # noqa: F401  (fills the registry)
    reading,
    types,
)
from .compiling import Compiler
from .reading import Value
from .registry import ModelError, Refused


def main(arguments: list[str] | None = None) -> int:
    """Print the summary; 0 if the model would run, 1 if not, 2 if it is no valid model."""
    parser = argparse.ArgumentParser(prog="python -m tinyadept.onnx", description=__doc__)
    parser.add_argument("model", help="an ONNX file")
    try:
        source = reading.read(parser.parse_args(arguments).model)
        compiler = Compiler(source)
        compiler.refused = []
        body = compiler.graph(source.graph)
    except (ModelError, FileNotFoundError) as error:
        print(f"not valid: {error}", file=sys.stderr)
        return 2
    except Refused as error:
        print(f"would not run: {error}")
        return 1
    for value, type in zip(source.graph.outputs, body.output_types):
        value.type = value.type or type
    show(source, compiler)
    for reason in compiler.refused:
        print(f"would not run: {reason}")
    return 1 if compiler.refused else 0


def show(source: reading.Source, compiler: Compiler) -> None:
    domains = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in source.opsets.items())
    print(f"{source.graph.name or 'graph'}: opset {domains}")
    for what, values in (("input", source.graph.inputs), ("output", source.graph.outputs)):
        for value in values:
            print(f"  {what:6} {value.name}: {described(value)}")
    counts = Counter(f"{node.domain + '.' if node.domain else ''}{node.op}" for node in compiler.nodes)
    print(f"  {sum(counts.values())} nodes: {', '.join(f'{op} {n}' for op, n in counts.most_common())}")
    weights = [array for _, array, _, _ in compiler.constants.values() if array.dtype.kind == "f"]
    size = sum(array.nbytes for _, array, _, _ in compiler.constants.values())
    print(f"  {sum(array.size for array in weights):,} parameters in {len(weights)} tensors, {size:,} bytes")


def described(value: Value) -> str:
    shape = (
        "any shape"
        if value.shape is None
        else f"({', '.join('?' if n is None else str(n) for n in value.shape)})"
    )
    kind = "" if value.kind == "tensor" else f"{value.kind} of "
    return f"{kind}{types.name_of(value.type) if value.type else 'unknown type'} {shape}"


if __name__ == "__main__":
    sys.exit(main())
