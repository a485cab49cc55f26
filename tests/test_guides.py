"""The guides for a model of one's own run as they stand, on smaller data where they say how much."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from residuum.cli import run_command

DOCS = Path(__file__).parents[1] / "docs"
SMALLER = {
    '"fashion-mnist"': '"digits"',
    "TRAIN, HELD_OUT = 1500, 600": "TRAIN, HELD_OUT = 200, 200",
    "epochs=12": "epochs=3",
    "draws=50": "draws=10",
    "audit.draws=20": "audit.draws=5",
}


def blocks(name):
    text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    for whole, small in SMALLER.items():
        text = text.replace(whole, small)
    return re.findall(r"^```(python|sh)\n(.*?)^```", text, re.M | re.S)


def run_block(kind, block, space):
    file = re.match(r"# (\w+\.py)\n", block)
    if kind == "python" and file:
        Path(file[1]).write_text(block, encoding="utf-8")
    elif kind == "python":
        exec(compile(block, "guide", "exec"), space)
    for line in block.replace("\\\n", " ").splitlines() if kind == "sh" else ():
        command = shlex.split(line)
        assert command[0] in ("residuum", "pip")
        assert command[0] == "pip" or run_command(command[1:]) == 0


@pytest.mark.filterwarnings("ignore::residuum.core.errors.ResiduumWarning")
@pytest.mark.parametrize(("name", "made"), [
    ("get-started/quickstart", ["evidence.zip", "unlearned.safetensors", "runs/deletion/report.html", "runs/weaker"]),
    ("guides/text", ["runs/request/results.json"]),
    ("guides/tables", ["runs/request/results.json", "runs/customers/report.html"]),
    ("guides/classifiers", ["runs/request/results.json"]),
])  # fmt: skip
def test_every_block_of_a_guide_runs(name, made, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "hernet", raising=False)
    space = {"__name__": "guide"}
    for kind, block in blocks(name):
        run_block(kind, block, space)
    assert all(Path(file).exists() for file in made)
    verdicts = [verdict.verdict.label for verdict in space["proof"].verdicts.values()]
    assert verdicts[0] in ("residual knowledge found", "inconclusive", "reference not comparable")
    assert capsys.readouterr().out.strip()
