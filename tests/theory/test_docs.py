"""Every example of docs/reference/theory.md runs, and the package stays free of torch and scikit-learn."""

from __future__ import annotations

import doctest
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "theory.md"


def test_examples_of_the_theory_page_run():
    result = doctest.testfile(str(DOCS), module_relative=False)
    assert result.failed == 0
    assert result.attempted > 15


def test_theory_imports_neither_torch_nor_sklearn():
    code = (
        "import importlib, pkgutil, sys, residuum.theory as t\n"
        "for m in pkgutil.iter_modules(t.__path__): importlib.import_module(f'residuum.theory.{m.name}')\n"
        "assert not {'torch', 'sklearn', 'residuum.core.samples'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
