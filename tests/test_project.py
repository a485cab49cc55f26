"""The project's own files agree with each other: version, citation, layers, and what CONTRIBUTING.md names."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

import residuum

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert residuum.__version__ == PROJECT["project"]["version"] == citation["version"]
    assert citation["license"] == PROJECT["project"]["license"]
    assert citation["keywords"] == PROJECT["project"]["keywords"]


def loaded_after(code):
    """Return which of the expensive packages a fresh Python has loaded after this code."""
    ending = "import sys; print(*({'torch', 'numpy', 'pydantic', 'importlib.metadata'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{ending}"], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_residuum_loads_nothing_and_the_version_next_to_nothing():
    assert loaded_after("import residuum") == loaded_after("")
    assert loaded_after("import residuum; residuum.__version__") <= {"importlib.metadata"}


def test_reports_are_written_without_torch():
    files = (ROOT / "src" / "residuum" / "reporting").glob("*.py")
    modules = [f"residuum.reporting.{path.stem}" for path in files if path.stem != "__init__"]
    assert modules
    assert "torch" not in loaded_after(f"import residuum.reporting, {', '.join(modules)}")


def test_contributing_draws_the_layers_that_are_guarded():
    drawn = re.search(r"```text\n(.*?)```", CONTRIBUTING, re.S)[1]
    layers = [re.split(r"\s{2,}", line)[0].split(" | ") for line in drawn.splitlines()]
    guarded = next(c["layers"] for c in PROJECT["tool"]["importlinter"]["contracts"] if c["type"] == "layers")
    assert layers == [[name.removeprefix("residuum.") for name in layer.split(" | ")] for layer in guarded]


def walks():
    """Return the steps of every walk in CONTRIBUTING.md: its depth, its file below the package, its function."""
    section = CONTRIBUTING.partition("\n## Six walks\n")[2].partition("\n## ")[0]
    named = re.findall(r"`([\w/]+\.py): ([\w.]+)`", section)
    steps = re.findall(r"^( *)- `([\w/]+\.py): ([\w.]+)`", section, re.M)
    assert [(file, name) for _, file, name in steps] == named
    titles = re.split(r"^\*\*", section, flags=re.M)[1:]
    found = [re.findall(r"^( *)- `([\w/]+\.py): ([\w.]+)`", walk, re.M) for walk in titles]
    return [[(len(indent) // 4, file, name) for indent, file, name in walk] for walk in found]


def definitions(file):
    """Return the functions, classes and methods that a module defines."""
    names = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return names


def test_the_six_walks_name_functions_that_exist():
    assert [len(walk) > 5 for walk in walks()] == [True] * 6
    package = ROOT / "src" / "residuum"
    steps = {(file, name) for walk in walks() for _, file, name in walk}
    assert [step for step in sorted(steps) if step[1] not in definitions(package / step[0])] == []


def test_the_six_walks_go_downwards():
    guarded = next(c["layers"] for c in PROJECT["tool"]["importlinter"]["contracts"] if c["type"] == "layers")
    layers = {name.removeprefix("residuum."): k for k, layer in enumerate(guarded) for name in layer.split(" | ")}
    for walk in walks():
        above = []
        for depth, file, name in walk:
            assert depth <= len(above), f"{file}: {name} is indented too far"
            above = [*above[:depth], layers[file.removesuffix(".py").partition("/")[0]]]
            assert above == sorted(above), f"{file}: {name} lies above what calls it"


def test_contributing_names_what_exists():
    paths = re.findall(r"`((?:src|tests|docs)/[\w/.-]+)`", CONTRIBUTING)
    assert len(paths) > 15
    assert [path for path in paths if not (ROOT / path).exists()] == []
    targets = set(re.findall(r"(?:^|`)make ([a-z-]+)", CONTRIBUTING, re.M))
    assert targets == {"test", "format", "test-long", "test-oldest", "lint", "docs", "site-figures", "release-check"}
    rules = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(rf"^{target}:", rules, re.M) for target in targets)


def test_the_commit_hook_runs_what_ci_runs_before_its_tests():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    make = shlex.split(hooks[0]["entry"])
    assert make[0] == "make"
    needed = re.search(r"^test: (.*?)(?:##|$)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)[1].split()
    assert make[1] in needed


def test_workflows_run_what_the_makefile_has():
    folder = ROOT / ".github"
    workflows = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted((folder / "workflows").glob("*"))]
    steps = [
        step["run"] for flow in workflows for job in flow["jobs"].values() for step in job["steps"] if "run" in step
    ]
    rules = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {word for step in steps for word in re.findall(r"^make ([a-z-]+)", step)}
    assert targets == {"docs", "release-check", "test-long", "test-oldest"}
    assert all(re.search(rf"^{target}:", rules, re.M) for target in targets)
    assert ".ci/run" in steps
    assert [yaml.safe_load(path.read_text(encoding="utf-8")) for path in (folder / "ISSUE_TEMPLATE").glob("*.yml")]


def test_the_oldest_libraries_tested_are_those_promised():
    lines = (ROOT / "constraints-oldest.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    for text in PROJECT["project"]["dependencies"]:
        name, least = text.split(">=")
        assert f"{pinned[name]}.0.0".startswith(f"{least}."), name
        assert set(pinned[name].removeprefix(least)) <= set(".0"), name
