"""Write the table of ops that stands in the README, from the registry.

python scripts/op_table.py           # print it
python scripts/op_table.py --write   # put it between the markers in README.md
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tinyadept.backends.vulkan.drivers import FAMILIES
from tinyadept.ops import registry

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- ops: scripts/op_table.py --write -->", "<!-- end of ops -->"
TAKES = {
    "any": "all",
    "number": "all but bool",
    "float": "all; integers become float32",
    "strict float": "float32, float64",
    "bool": "all, as bool",
    "whole": "bool and integers",
}


def table() -> str:
    """One line for each family and what its ops take, the ops in the order of the table."""
    groups: dict[tuple[str, str], list[str]] = {}
    for op in registry.values():
        mark = "" if any(op.vjps) else "°"
        groups.setdefault((op.family.name, TAKES[op.takes]), []).append(f"`{op.name}`{mark}")
    lines = ["| family | ops | dtypes | numpy | vulkan |", "|---|---|---|---|---|"]
    for (family, takes), ops in groups.items():
        vulkan = "yes" if on_vulkan(family) else "no"
        lines.append(f"| {family} | {' '.join(ops)} | {takes} | yes | {vulkan} |")
    notes = f"{len(registry)} rows; ° marks those through which no gradient flows."
    return "\n".join([*lines, "", f"{notes} Vulkan has all dtypes but int64 and float64."])


def on_vulkan(family: str) -> bool:
    """Whether the backend has a driver for a family, or needs none: moves change the view alone."""
    return family in FAMILIES or family in ("move", "transfer")


def updated(readme: str) -> str:
    """The README with the present table between its markers."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the table of ops for the README.")
    parser.add_argument("--write", action="store_true", help="update README.md")
    if parser.parse_args().write:
        README.write_text(updated(README.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(table())


if __name__ == "__main__":
    main()
