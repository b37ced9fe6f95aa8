"""Files that are broken or hostile: an error that names the node or field, before memory is taken."""

from __future__ import annotations

import os
import random
import time
import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

import tinyadept as ta
from tinyadept.onnx import ModelError, Refused, compiling, load
from tinyadept.onnx.__main__ import main

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"


def value(name: str, shape: tuple = (2,), type: int = FLOAT):
    return helper.make_tensor_value_info(name, type, shape)


def model(nodes, inputs=None, outputs=None, initializer=(), opset=20, **more):
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x")] if inputs is None else inputs,
        [value("y")] if outputs is None else outputs,
        initializer,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], **more)


def relu(x: str, y: str, name: str = ""):
    return helper.make_node("Relu", [x], [y], name=name)


def outside(location: str):
    """A tensor whose bytes lie in another file."""
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    return tensor


def raw(dims: list[int], data: bytes = b"", type: int = FLOAT):
    return TensorProto(name="w", data_type=type, dims=dims, raw_data=data)


ADD = helper.make_node("Add", ["x", "w"], ["y"], name="plus")
HOSTILE = {
    "cycle": (model([relu("b", "a", "first"), relu("a", "b"), relu("a", "y")]), "first"),
    "missing input": (model([relu("nothing", "y", "lost")]), "lost.*nothing"),
    "made twice": (model([relu("x", "y"), relu("x", "y", "again")]), "again.*y"),
    "makes an input": (model([relu("x", "x", "over"), relu("x", "y")]), "over.*x"),
    "missing output": (model([relu("x", "a")]), "output 'y'"),
    "two inputs of a name": (model([relu("x", "y")], [value("x"), value("x")]), "'x'.*twice"),
    "two weights of a name": (model([ADD], initializer=[raw([2], b"\0" * 8)] * 2), "'w'.*twice"),
    "weight without a name": (model([ADD], initializer=[TensorProto(data_type=FLOAT, dims=[0])]), "no name"),
    "absurd weight": (model([ADD], initializer=[raw([2**40, 2**40], b"")]), "'w'"),
    "large weight without data": (
        model([ADD], initializer=[raw([2**39], b"")]),
        "'w'.*expected 2199023255552",
    ),
    "negative length": (model([ADD], initializer=[raw([-2], b"")]), "'w'.*-2"),
    "short weight": (model([ADD], initializer=[raw([2], b"\0" * 7)]), "'w'.*7 bytes"),
    "unknown elements": (model([ADD], initializer=[raw([2], b"\0" * 8, 99)]), "'w'.*99"),
    "negative input length": (model([relu("x", "y")]), "'x'.*-3"),
    "no such opset": (model([relu("x", "y")], opset=2000), "opset 2000"),
    "absolute path": (model([ADD], initializer=[outside("/etc/hostname")]), "'w'.*external"),
    "graph where none belongs": (
        model([helper.make_node("If", ["x"], ["y"], name="fork", then_branch=3)]),
        "fork.*then_branch",
    ),
    "attribute twice": (
        model([helper.make_node("Flatten", ["x"], ["y"], name="flat")]),
        "flat.*'axis'",
    ),
}
HOSTILE["negative input length"][0].graph.input[0].type.tensor_type.shape.dim[0].dim_value = -3
HOSTILE["attribute twice"][0].graph.node[0].attribute.extend(
    [AttributeProto(name="axis", i=1, type=AttributeProto.INT)] * 2
)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_models_are_named(name):
    hostile, words = HOSTILE[name]
    with pytest.raises(ModelError, match=words):
        load(hostile.SerializeToString())


def test_sizes_are_checked_before_memory_is_taken():
    tracemalloc.start()
    try:
        for name in ("absurd weight", "large weight without data"):
            with pytest.raises(ModelError):
                load(HOSTILE[name][0].SerializeToString())
        assert tracemalloc.get_traced_memory()[1] < 10e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("location", ["../w.bin", "a/../../w.bin", "link.bin", "folder", "none.bin", ""])
def test_external_data_stay_in_the_folder(tmp_path, location):
    (tmp_path / "w.bin").write_bytes(bytes(8))
    folder = tmp_path / "model"
    (folder / "folder").mkdir(parents=True)
    (folder / "link.bin").symlink_to(tmp_path / "w.bin")
    path = folder / "m.onnx"
    path.write_bytes(model([ADD], initializer=[outside(location)]).SerializeToString())
    with pytest.raises(ModelError, match=r"'w'.*external_data"):
        load(path)


def test_external_data_are_read_where_they_say(tmp_path):
    tensor = outside("w.bin")
    tensor.external_data.add(key="offset", value="4")
    (tmp_path / "w.bin").write_bytes(np.arange(3, dtype=np.float32).tobytes())
    path = tmp_path / "m.onnx"
    path.write_bytes(model([ADD], initializer=[tensor]).SerializeToString())
    assert load(path).run({"x": np.float32([10, 20])})["y"].tolist() == [11, 22]
    tensor.external_data[1].value = "8"
    path.write_bytes(model([ADD], initializer=[tensor]).SerializeToString())
    with pytest.raises(ModelError, match=r"'w'.*which has 12"):
        load(path)


@pytest.mark.parametrize("data", [b"", b"\0" * 100, b"hello, world", b"\x08\x07"])
def test_other_files_are_no_models(tmp_path, data):
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    with pytest.raises(ModelError, match=r"m\.onnx"):
        load(path)
    assert main([str(path)]) == 2


def test_functions_that_call_themselves_end():
    call = helper.make_node("again", ["a"], ["b"], domain="own")
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    function = helper.make_function("own", "again", ["a"], ["b"], [call], opsets)
    graph = helper.make_graph(
        [helper.make_node("again", ["x"], ["y"], domain="own")], "g", [value("x")], [value("y")]
    )
    with pytest.raises(ModelError, match="without end"):
        load(helper.make_model(graph, opset_imports=opsets, functions=[function]))


def test_functions_that_grow_like_powers_of_two_are_stopped(monkeypatch):
    monkeypatch.setattr(compiling, "MOST_STEPS", 1 << 12)  # enough to see that they are counted
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    functions = [helper.make_function("own", "f0", ["a"], ["b"], [relu("a", "b")], opsets)]
    for i in range(1, 31):
        calls = [helper.make_node(f"f{i - 1}", [a], [b], domain="own") for a, b in (("a", "m"), ("m", "b"))]
        functions.append(helper.make_function("own", f"f{i}", ["a"], ["b"], calls, opsets))
    graph = helper.make_graph(
        [helper.make_node("f30", ["x"], ["y"], domain="own")], "g", [value("x")], [value("y")]
    )
    with pytest.raises(ModelError, match="more than 4096"):
        load(helper.make_model(graph, opset_imports=opsets, functions=functions))


def test_what_is_not_there_is_refused_by_name(capsys, tmp_path):
    unknown = model([helper.make_node("Frobnicate", ["x"], ["y"], name="odd")])
    with pytest.raises(Refused, match=r"odd.*Frobnicate"):
        load(unknown)
    path = tmp_path / "m.onnx"
    path.write_bytes(unknown.SerializeToString())
    assert main([str(path)]) == 1
    assert "would not run: node odd (Frobnicate)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("feeds", "words"),
    [
        ({"z": np.zeros((2, 3), np.float32)}, "'z'"),
        ({}, "'x'.*missing"),
        ({"x": np.zeros((2, 4), np.float32)}, r"'x'.*\(2, 4\).*\('n', 3\)"),
        ({"x": np.zeros(3, np.float32)}, r"'x'.*\(3,\)"),
        ({"x": np.zeros((2, 3))}, "'x'.*float64.*float32"),
    ],
)
def test_inputs_are_checked(feeds, words):
    loaded = load(model([relu("x", "y")], [value("x", ("n", 3))], [value("y", ("n", 3))]))
    with pytest.raises(ModelError, match=words):
        loaded.run(feeds)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (np.zeros((2, 4), np.float32), r"'x'.*\(2, 4\)"),
        (np.zeros((2, 3), np.int32), r"'x'.*int32.*float32"),
    ],
)
def test_tensors_are_checked(x, words):
    loaded = load(model([relu("x", "y")], [value("x", ("n", 3))], [value("y", ("n", 3))]), "numpy")
    with pytest.raises(ModelError, match=words):
        loaded(ta.tensor(x, device="numpy"))
    with pytest.raises(ModelError, match=r"2 inputs, expected 1"):
        loaded(ta.zeros(2, 3, device="numpy"), ta.zeros(2, 3, device="numpy"))


def test_lengths_of_one_name_agree():
    node = helper.make_node("Concat", ["a", "b"], ["y"], axis=0)
    loaded = load(model([node], [value("a", ("n",)), value("b", ("n",))], [value("y", ("m",))]))
    with pytest.raises(ModelError, match=r"'b'.*\(3,\).*'n': 2"):
        loaded.run({"a": np.zeros(2, np.float32), "b": np.zeros(3, np.float32)})


def test_mistakes_in_a_run_name_the_node():
    loaded = load(
        model([ADD], [value("x", ("n",))], initializer=[numpy_helper.from_array(np.ones(3, "f"), "w")])
    )
    with pytest.raises(ModelError, match=r"node plus \(Add\)"):
        loaded.run({"x": np.zeros(2, np.float32)})


def mutated(data: bytes, rng: random.Random) -> bytes:
    """A file with a few bytes changed, cut off, doubled or exchanged."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        at = rng.randrange(len(out)) if out else 0
        kind = rng.randrange(5)
        if kind == 0 and out:
            out[at] = rng.randrange(256)
        elif kind == 1 and out:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            out[at:at] = out[at : at + rng.randrange(40)]
        elif kind == 3:
            del out[at : at + rng.randrange(1, 12)]
        elif rng.random() < 0.2:
            del out[at:]
    return bytes(out)


def files(limit: int = 60_000) -> list[bytes]:
    """Models of the package onnx that are small enough to be read many times."""
    paths = sorted(DATA.glob("*/*/model.onnx"))[::23] + sorted(DATA.glob("light/*.onnx"))
    return [path.read_bytes() for path in paths if path.stat().st_size < limit]


def fuzzed(seconds: float, seed: int) -> int:
    rng, real, count = random.Random(seed), files(), 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        data = mutated(rng.choice(real), rng)
        start = time.monotonic()
        try:
            load(data, "numpy")
        except (ModelError, Refused):
            pass
        except BaseException:
            print(f"seed {seed}, file {count}")
            raise
        assert time.monotonic() - start < 5
        count += 1
    return count


def test_mutated_files_raise_nothing_else():
    assert fuzzed(3, 0) > 100


@pytest.mark.slow
def test_mutated_files_raise_nothing_else_for_longer():
    """Other files each time, for a minute, or as long as FUZZ_SECONDS says."""
    seconds = float(os.environ.get("FUZZ_SECONDS", 60))
    assert fuzzed(seconds, int(time.time())) > 30 * seconds
