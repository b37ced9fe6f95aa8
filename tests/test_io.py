"""Files: what is written comes back, a bad file says why, and a failure leaves the old file as it was."""

import json
import os
import signal
import stat
import subprocess
import sys
import time

import numpy as np
import pytest

from tinyadept import io, nn, tensor
from tinyadept.random import randn

pytest.importorskip("safetensors")


def header(entries, data=b"", length=None):
    """The bytes of a safetensors file with a header of one's own."""
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(dtype, shape, start, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


# --- what is written comes back -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,), (2, 0, 3)])
def test_dtypes_and_shapes_round_trip(tmp_path, dtype, shape):
    values = (np.random.default_rng(0).normal(size=shape) * 50).astype("int64").astype(dtype)
    if dtype == "int64":
        values = values + np.int64(2) ** 40
    io.save(tmp_path / "x.safetensors", {"x": tensor(values, dtype=dtype)})
    x = io.load(tmp_path / "x.safetensors")["x"]
    assert x.dtype == dtype and x.shape == shape and np.array_equal(x.numpy(), values)


def test_every_float_keeps_its_bits(tmp_path):
    bits = np.array([0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00001, 1, 0x3F800000], np.uint32)
    io.save(tmp_path / "x", {"x": tensor(bits.view(np.float32))})
    assert np.array_equal(io.load(tmp_path / "x")["x"].numpy().view(np.uint32), bits)


def test_views_are_saved_by_value(tmp_path):
    x = tensor(np.arange(24.0).reshape(4, 6))
    views = {
        "t": x.mT,
        "step": x[::2, ::-3],
        "wide": x[0].expand(3, 6),
        "row": x[1],
        "same": x,
        "flip": x.flip(0),
    }
    io.save(tmp_path / "x", views)
    loaded = io.load(tmp_path / "x")
    for name, view in views.items():
        assert np.array_equal(loaded[name].numpy(), view.numpy()), name
        assert loaded[name].is_contiguous()


def test_modules_round_trip(tmp_path):
    first, second = (nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)) for _ in range(2))
    first(randn(2, 1, 5, 5))
    io.save(tmp_path / "net.safetensors", first.state_dict(), {"epoch": "3", "note": "größer"})
    second.load_state_dict(io.load(tmp_path / "net.safetensors", device="numpy"))
    for (name, x), y in zip(first.state_dict().items(), second.state_dict().values(), strict=True):
        assert np.array_equal(x.numpy(), y.numpy()), name
    assert io.load_metadata(tmp_path / "net.safetensors") == {"epoch": "3", "note": "größer"}


def test_loaded_tensors_can_be_written_and_outlive_the_file(tmp_path):
    io.save(tmp_path / "x", {"x": tensor([1.0, 2.0])})
    x = io.load(tmp_path / "x")["x"]
    (tmp_path / "x").write_bytes(b"")
    x.mul_(2)
    assert x.tolist() == [2, 4]


def test_parameters_that_need_gradients_are_saved(tmp_path):
    p = nn.Parameter(tensor([1.0]))
    io.save(str(tmp_path / "x"), {"p": p, "twice": p * 2})
    assert {name: x.item() for name, x in io.load(str(tmp_path / "x")).items()} == {"p": 1.0, "twice": 2.0}


def test_other_readers_understand_the_file(tmp_path):
    torch_io = pytest.importorskip("safetensors.torch", exc_type=ImportError)
    io.save(tmp_path / "x", {"x": tensor([[1.0, 2.0]]), "i": tensor([3], dtype="int64")})
    loaded = torch_io.load_file(tmp_path / "x")
    assert loaded["x"].tolist() == [[1.0, 2.0]] and loaded["i"].tolist() == [3]


# --- bad files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mapped", [1, 40, 1000])
def test_large_tensors_are_read_in_pieces(tmp_path, monkeypatch, mapped):
    given = {f"x{n}": tensor(np.arange(n * 3, dtype=np.float32).reshape(n, 3)) for n in (7, 0, 1, 20)}
    given["bits"] = tensor(np.arange(90) % 7 == 0)
    io.save(tmp_path / "x", given)
    monkeypatch.setattr(io, "MAPPED", mapped)
    loaded = io.load(tmp_path / "x", "numpy")
    assert set(loaded) == set(given)
    for name, x in given.items():
        assert loaded[name].dtype == x.dtype
        np.testing.assert_array_equal(loaded[name].numpy(), x.numpy())


def test_zero_size_and_metadata_only_files_load(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(header({"x": entry("F32", [2, 0], 0, 0)}))
    assert io.load(path)["x"].shape == (2, 0) and io.load_metadata(path) == {}
    path.write_bytes(header({"__metadata__": {"a": "b"}}))
    assert io.load(path) == {} and io.load_metadata(path) == {"a": "b"}
    io.save(path, {}, {"c": "d"})
    assert io.load(path) == {} and io.load_metadata(path) == {"c": "d"}


def test_a_foreign_boolean_is_true_or_false(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(header({"x": entry("BOOL", [3], 0, 3)}, b"\x02\x00\xff"))
    assert io.load(path)["x"].numpy().view(np.uint8).tolist() == [1, 0, 1]


ONE = {"x": entry("F32", [1], 0, 4)}
BAD = {
    "empty": b"",
    "three bytes": b"abc",
    "no safetensors file": b"\x89PNG\r\n\x1a\n" + bytes(100),
    "a pickle": b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01x\x94K\x01s.",
    "header length beyond the file": header(ONE, bytes(4), length=10_000),
    "huge header length": header(ONE, bytes(4), length=2**63),
    "header that is no JSON": header(b"not json at all", bytes(4)),
    "header that is no text": header(b"\xff\xfe\xfd", bytes(4)),
    "header that is no object": header(b"[]", bytes(4)),
    "trailing bytes": header(ONE, bytes(5)),
    "truncated data": header(ONE, bytes(3)),
    "truncated header": header(ONE)[:-5],
    "overlapping offsets": header({**ONE, "y": entry("F32", [2], 0, 8)}, bytes(8)),
    "gap between tensors": header({**ONE, "y": entry("F32", [1], 8, 12)}, bytes(12)),
    "offsets backwards": header({"x": entry("F32", [1], 4, 0)}, bytes(4)),
    "shape that does not fit": header({"x": entry("F32", [2], 0, 4)}, bytes(4)),
    "negative length": header({"x": entry("F32", [-1], 0, 4)}, bytes(4)),
    "overflowing shape": header({"x": entry("F32", [2**40, 2**40], 0, 4)}, bytes(4)),
    "unknown dtype": header({"x": entry("F33", [1], 0, 4)}, bytes(4)),
    "metadata that is no text": header({"__metadata__": {"a": 1}, **ONE}, bytes(4)),
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
def test_a_bad_file_says_which_and_why(tmp_path, data):
    path = tmp_path / "bad.safetensors"
    path.write_bytes(data)
    for read in (io.load, io.load_metadata):
        with pytest.raises(ValueError, match=r"bad\.safetensors: not a complete safetensors file: .+"):
            read(path)


@pytest.mark.parametrize("dtype", ["F16", "BF16", "I8", "I16", "U16", "U32", "U64", "F8_E4M3"])
def test_a_dtype_that_the_engine_lacks_is_named(tmp_path, dtype):
    size = {"I8": 1, "F8_E4M3": 1, "U32": 4, "U64": 8}.get(dtype, 2)
    (tmp_path / "half").write_bytes(header({"w": entry(dtype, [1], 0, size)}, bytes(size)))
    with pytest.raises(ValueError, match=rf"half: 'w' has dtype {dtype}, expected one of BOOL, U8, I32"):
        io.load(tmp_path / "half")


def test_damaged_files_never_raise_anything_else(tmp_path):
    path, rng = tmp_path / "x", np.random.default_rng(0)
    io.save(path, {"a": randn(3, 2), "b": tensor([1, 2])}, {"k": "v"})
    good = path.read_bytes()
    for _ in range(300):
        bad = bytearray(good)
        for _ in range(rng.integers(1, 4)):
            bad[rng.integers(len(bad))] = rng.integers(256)
        path.write_bytes(bytes(bad[: rng.integers(len(bad) + 1)]) if rng.random() < 0.3 else bytes(bad))
        try:
            io.load(path)
            io.load_metadata(path)
        except ValueError as error:
            assert str(path) in str(error)


def test_a_missing_file_is_named(tmp_path):
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(FileNotFoundError, match=path.name):
            io.load(path)


@pytest.mark.parametrize(
    ("tensors", "metadata", "error", "message"),
    [
        ({"x": 1.0}, None, TypeError, "strings and Tensors, got 'x': float"),
        ({"x": np.ones(2)}, None, TypeError, "got 'x': ndarray"),
        ({3: tensor([1.0])}, None, TypeError, "got 3: Tensor"),
        ({"x": tensor([1.0])}, {"epoch": 3}, TypeError, "metadata of strings, got 'epoch': int"),
        ({"__metadata__": tensor([1.0])}, None, ValueError, "'__metadata__' is the name"),
    ],
)
def test_what_cannot_be_saved_is_refused_before_anything_is_written(
    tmp_path, tensors, metadata, error, message
):
    with pytest.raises(error, match=message):
        io.save(tmp_path / "x", tensors, metadata)
    assert not list(tmp_path.iterdir())


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    for call in (lambda: io.save(tmp_path / "x", {}), lambda: io.load(tmp_path / "x")):
        with pytest.raises(ImportError, match="pip install safetensors"):
            call()


# --- atomic -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step, failure):
    path = tmp_path / "x.safetensors"
    io.save(path, {"x": tensor([1.0])})

    def fail(*args):
        raise failure

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(type(failure)):
        io.save(path, {"x": tensor([2.0])})
    with pytest.raises(type(failure)):
        io.save(tmp_path / "new", {"x": tensor([2.0])})
    monkeypatch.undo()
    assert [p.name for p in tmp_path.iterdir()] == ["x.safetensors"] and io.load(path)["x"].item() == 1.0


def test_data_are_on_disk_before_the_name_and_the_name_before_the_return(tmp_path, monkeypatch):
    calls, fsync, replace = [], os.fsync, os.replace

    def note_fsync(number):
        calls.append("folder" if stat.S_ISDIR(os.fstat(number).st_mode) else os.fstat(number).st_size)
        fsync(number)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append("replace"), replace(a, b)))
    io.save(tmp_path / "x", {"x": randn(100)})
    assert calls == [(tmp_path / "x").stat().st_size, "replace", "folder"]


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        io.save(tmp_path / "nowhere" / "x", {"x": tensor([1.0])})


def test_relative_paths_and_usual_permissions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    io.save("x", {"x": tensor([1.0])})
    (tmp_path / "y").touch()
    assert (tmp_path / "x").stat().st_mode == (tmp_path / "y").stat().st_mode


WRITER = """
import sys
from tinyadept import full, io
for i in range(10_000):
    io.save(sys.argv[1], {"x": full((300_000,), float(i))}, {"i": str(i)})
    print(i, flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_killed_process_leaves_a_whole_file(tmp_path):
    path = tmp_path / "x.safetensors"
    for delay in (0.0, 0.003, 0.011):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            for _ in range(3):
                last = int(writer.stdout.readline())
            time.sleep(delay)
            writer.kill()
        x, number = io.load(path)["x"].numpy(), int(io.load_metadata(path)["i"])
        assert number >= last and (x == number).all() and x.shape == (300_000,)
        leftover = [p for p in tmp_path.iterdir() if p != path]
        assert all(p.name.startswith(".x.safetensors.") and p.name.endswith(".tmp") for p in leftover)
        io.save(path, {"x": tensor([1.0])})
        assert io.load(path)["x"].item() == 1.0
