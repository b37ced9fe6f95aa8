"""What the documents show is what the code does."""

import doctest
import importlib.util
import re
from pathlib import Path

import numpy as np

import tinyadept as ta

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_readme_examples():
    found = doctest.DocTestParser().get_doctest(README, {}, "README.md", "README.md", 0)
    assert len(found.examples) > 5
    assert doctest.DocTestRunner().run(found).failed == 0


def test_readme_values_and_gradients():
    rows = re.findall(r"^\| (?:first|second|third) \|(.*)\|$", README, re.MULTILINE)
    shown = np.array([[float(cell) for cell in row.split("|")] for row in rows])
    a = ta.tensor(shown[:, 0], requires_grad=True)
    b = ta.tensor(shown[:, 1], requires_grad=True)
    y = (a * b).tanh()
    y.sum().backward()
    columns = [(a * b).detach(), y.detach(), a.grad, b.grad]
    np.testing.assert_allclose(shown[:, 2:], np.stack([c.numpy() for c in columns], axis=1), atol=5e-5)


def test_the_table_of_ops_is_current():
    spec = importlib.util.spec_from_file_location("op_table", ROOT / "scripts" / "op_table.py")
    op_table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(op_table)
    assert op_table.updated(README) == README, "run python scripts/op_table.py --write"


def test_links_lead_somewhere():
    for document in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text(encoding="utf-8")):
            assert target.startswith("http") or (document.parent / target).exists(), (
                f"{document.name}: {target}"
            )
