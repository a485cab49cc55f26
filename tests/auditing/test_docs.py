import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "audit.md"
BLOCKS = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.filterwarnings("ignore::residuum.core.errors.ResiduumWarning")
@pytest.mark.parametrize("block", BLOCKS)
def test_examples_of_the_page_run(block, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, str(DOCS), "exec"), {})
    assert (tmp_path / "counts.npz").exists()
    assert capsys.readouterr().out.count("[") == 3


def test_the_page_has_an_example():
    assert BLOCKS
