"""The examples of docs/guides/images.md run as they stand."""

import doctest
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "images.md"


def test_every_example_of_the_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testfile(str(GUIDE), module_relative=False, encoding="utf-8")
    assert failed == 0
    assert tried >= 15
