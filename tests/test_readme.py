"""What README and documents say works: their Python runs, their commands are understood, their make targets exist."""

from __future__ import annotations

import math
import re
import shlex
import subprocess
import tomllib
from itertools import pairwise
from pathlib import Path
from string import Template

import pytest
from typer.main import get_command
from website import tables

from residuum.cli import make_app, run_command
from residuum.cli.options import parse_seeds, parse_setting
from residuum.cli.tune import grid_points, row_text
from residuum.studies import Study
from residuum.unlearning import METHODS
from residuum.unlearning.soft_reset import QUARTER

ROOT = Path(__file__).parents[1]
PAGES = sorted(ROOT.glob("docs/**/*.md"))


def text_of(file):
    return (ROOT / file).read_text(encoding="utf-8")


def blocks(file):
    return re.findall(r"^```([^\n]*)\n(.*?)^```", (ROOT / file).read_text(encoding="utf-8"), re.M | re.S)


def command_lines(file, languages=("sh",)):
    """Return the words of each command; shell variables are those that the page, or the script, has set before."""
    found, known = [], {}
    script = Path(file).suffix == ".sh"
    shown = [text_of(file)] if script else [block for language, block in blocks(file) if language in languages]
    for line in "\n".join(shown).replace("\\\n", " ").splitlines():
        words = shlex.split(Template(line).safe_substitute(known), comments=True)
        if words and (setting := re.fullmatch(r"([A-Z]+)=(.*)", words[0])):
            known[setting[1]] = setting[2]
        elif words:
            found.append(words)
    return found


README = text_of("README.md")
BLOCKS = blocks("README.md")
# other pages have tests of their own
PYTHON = [
    block
    for page in ("README.md", "docs/get-started/read-your-report.md", "docs/guides/trackers.md")
    for name, block in blocks(page)
    if name == "python"
]
COMMANDS = command_lines("README.md") + command_lines("docs/get-started/install.md")
DOCUMENTED = [
    command[1:]
    for page in PAGES
    for command in command_lines(page, ("sh", ""))
    if command[0] == "residuum" and not {"...", "|", ">", "&&"} & set(command)
]

STUDIES = [
    command[1:]
    for script in sorted((ROOT / "benchmarks" / "reproduction").glob("*.sh"))
    for command in command_lines(script.relative_to(ROOT))
    if command[0] == "residuum"
]


def commands(program):
    found = [command[1:] for command in COMMANDS if command[0] == program]
    assert found
    return found


def test_every_command_is_known_to_these_tests():
    assert {command[0] for command in COMMANDS} == {"make", "pip", "residuum"}
    assert commands("make") == [["demo"], ["test"]]
    assert commands("pip")[:2] == 2 * [["install", "-c", "constraints-cpu.txt", "."]]


def test_the_readme_opens_with_what_works_in_a_fresh_clone():
    assert COMMANDS[:2] == [["make", "demo"], ["make", "test"]]
    assert next(language for language, _ in BLOCKS) == "sh"


def test_nothing_promises_a_package_index():
    """Nothing is published: `pip install residuum`, or an extra of it, would find nothing or another package."""
    folders = ("docs", "notebooks", "website", "examples", "src", ".ci", ".github")
    endings = {".md", ".py", ".ipynb", ".j2", ".html", ".yml", ".toml", ".sh", ""}
    inside = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in endings]
    inside = [path for path in inside if path.parent.suffix != ".egg-info"]  # what pip makes of this checkout
    texts = {path: path.read_text(encoding="utf-8") for path in (*ROOT.glob("*.md"), *inside) if path.is_file()}
    assert len(texts) > 200
    promise = re.compile(
        r"pip3? install[^\n#`]*(?<![\w./-])residuum\b(?!'s)|(?<!\w)residuum\[|pypi\.org/project/residuum"
    )
    assert {str(path): promise.findall(text) for path, text in texts.items() if promise.search(text)} == {}


def test_the_table_of_extras_names_those_that_exist():
    table = text_of("docs/get-started/install.md").partition("| extra | adds |")[2].partition("\n\n")[0]
    named = re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines() if "|" in line))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert sorted(named) == sorted(project["optional-dependencies"])


@pytest.mark.filterwarnings("ignore::residuum.core.errors.ResiduumWarning")
@pytest.mark.parametrize("block", PYTHON)
def test_python_examples_run(block, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    space = {"__name__": "readme"}
    exec(compile(block, "README.md", "exec"), space)
    printed = capsys.readouterr().out.strip()
    assert printed
    if block in README:
        accuracy = {label: row.summary.metric("test_accuracy").mean for label, row in space["run"].rows.items()}
        before, after = accuracy.pop("original"), accuracy.pop("soft_reset")
        assert f"fell from {before:.1f} to {after:.1f} %" in README
        assert f"models have {min(accuracy.values()):.1f} to {max(accuracy.values()):.1f} %" in README
        assert printed == re.search(re.escape(block) + r"```\n\n```text\n(.*?)```", README, re.S)[1].strip()


@pytest.mark.parametrize("arguments", commands("residuum"), ids=" ".join)
def test_residuum_commands_run(arguments, tmp_path, monkeypatch, capsys):
    """A long run is planned here; tests/studies/test_demo.py carries it out."""
    monkeypatch.chdir(tmp_path)
    assert run_command([*arguments, *(["--dry-run"] if arguments[0] == "run" else [])]) == 0
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("arguments", DOCUMENTED, ids=" ".join)
def test_documented_commands_are_understood(arguments):
    name, rest = None, arguments
    group = get_command(make_app())
    while hasattr(group, "commands"):
        name, *rest = rest
        assert name in group.commands
        group = group.commands[name]
    group.make_context(name, list(rest))  # refuses unknown options, missing arguments and values of a wrong type


def values(arguments, option):
    return [value for name, value in pairwise(arguments) if name == option]


@pytest.mark.parametrize("arguments", [own for own in STUDIES if own[0] == "run"], ids=" ".join)
def test_studies_that_take_hours_have_the_rows_and_seeds_of_their_records(arguments):
    overrides = dict(parse_setting(text) for text in values(arguments, "--set"))
    (profile,) = values(arguments, "--profile") or ["cpu"]
    (rows,), (seeds,) = values(arguments, "--methods"), values(arguments, "--seeds")
    asked = Study.create(arguments[1], methods=rows, overrides=overrides, profile=profile)
    for folder in values(arguments, "--out"):
        record = tables.recorded(Path(folder).name).record
        assert list(record.methods) == [label for label in asked.labels if label not in record.failed]
        assert record.seeds == parse_seeds(seeds)


@pytest.mark.parametrize("arguments", [own for own in STUDIES if own[0] == "tune"], ids=" ".join)
def test_grids_of_studies_can_be_built(arguments):
    (method,) = values(arguments, "--method")
    points = grid_points(method, values(arguments, "--grid"))
    rows = [row_text(method, point) for point in points]
    assert len(Study.create(arguments[1], methods=rows, profile="paper").rows) == len(points) > 1


@pytest.mark.parametrize("arguments", commands("make"), ids=" ".join)
def test_make_targets_exist(arguments):
    planned = subprocess.check_output(["make", "-n", *arguments], cwd=ROOT, text=True)
    assert "residuum run digits" in planned or "pytest" in planned


def test_the_readme_is_short_and_its_example_shorter_and_a_success():
    assert len(README.splitlines()) <= 125
    ((_, example), (_, output)) = [block for block in BLOCKS if block[0] in ("python", "text")]
    assert len(example.strip().splitlines()) <= 15
    label = "residual knowledge found"
    assert output.splitlines() == [f"original: {label}", f"soft_reset: {CLEAN}"]


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.stem)
def test_links_to_files_resolve(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", tables.PAGES, ids=lambda page: page.stem)
def test_tables_show_what_was_measured(page):
    text = page.read_text(encoding="utf-8")
    assert re.search(r"^ *<!-- table", text, re.M)
    assert text == tables.with_tables(text)


def first_number(cell):
    return float(cell.split()[0])


CLEAN = "not detected"


def clean_methods(scenario):
    lines = {row: tables.measured()[scenario, row] for row in tables.labels(scenario)}
    return {row for row, line in lines.items() if line["verdict"] == CLEAN}


def test_pages_name_the_methods_in_which_nothing_was_found():
    both = clean_methods("digits") & clean_methods("digits-random")
    named = re.search(
        r"^In (\w+) methods nothing was found on either scenario: (.*?)\.", text_of("docs/benchmarks/digits.md"), re.M
    )
    assert set(re.findall(r"`(\w+)`", named[2])) == both
    assert named[1] == {4: "four"}[len(both)]
    newer = {"teacher", "salun", "amun", "msg", "ct", "falw", "regun"}
    assert newer & both == {"teacher"}
    assert newer & (clean_methods("digits") ^ clean_methods("digits-random")) == set()
    settings = text_of("docs/benchmarks/digits-settings.md")
    assert "Of the newer methods, only the teacher" in settings
    memory = [tables.measured()[name, row]["M"].split()[0] for name in tables.SCENARIOS for row in newer - both]
    assert f"most of it is memory (M {min(memory)} to {max(memory)})" in settings


def test_soft_reset_costs_and_loses_what_the_results_page_says():
    lines = [(tables.measured()[name, "soft_reset"], tables.measured()[name, "retrain"]) for name in tables.SCENARIOS]
    cost, lost = re.search(
        r"at (\d+) % of retraining's cost and within ([\d.]+) points", text_of("docs/benchmarks/digits.md")
    ).groups()
    assert {float(row["cost"]) for row, _ in lines} == {float(cost)}
    assert round(
        max(float(reference["test_accuracy"]) - float(row["test_accuracy"]) for row, reference in lines), 1
    ) == float(lost)


def test_the_shipped_soft_reset_has_the_settings_that_were_measured():
    (row,) = Study.create("digits", methods="soft_reset").rows
    shipped = METHODS.find("soft_reset")()
    assert row.settings["keep"] == shipped.start.keep
    assert row.settings["share"] == shipped.share
    assert row.settings["batch_share"] == QUARTER  # shipped as auto: this without batch-norm


def test_the_lines_to_copy_have_the_settings_that_were_measured():
    space, copied = {}, text_of("docs/methods/index.md")
    block = next(block for name, block in blocks("docs/methods/index.md") if "capped = RURK(" in block)
    exec(block.partition("done =")[0], space)
    (row,) = Study.create("digits", methods="rurk").rows
    assert space["capped"].settings == row.settings
    assert 'request.unlearn(model, "soft_reset", seed=1)' in copied


def test_the_rate_of_false_alarms_is_the_largest_of_the_table():
    rates = [rate for cells in tables.calibrated("null").values() for rate in cells.values()]
    (said,) = re.findall(r"called out in at most ([\d.]+) % of trials", text_of("docs/reference/verdict.md"))
    assert float(said) == max(rates)
    assert max(rates) <= 5 + 2 * math.sqrt(5 * 95 / 1000)  # two standard errors of a thousand trials


def test_originals_are_found_where_three_seeds_have_a_control_each():
    least = {"digits": 95, "digits-random": 95, "cancer": 90}
    for place, cells in tables.calibrated("originals").items():
        assert cells["3x1"] >= least.get(place.partition(", ")[0], 0), place


def test_the_number_of_methods_is_that_of_the_package():
    assert len(METHODS.built_in) == 20
    assert "20 unlearning methods" in README


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES], ids=lambda page: page.stem)
def test_tests_that_a_page_names_exist(page):
    files = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    for name in re.findall(r"`(?:tests/[\w/]*)?(test_\w+\.py)`", page.read_text(encoding="utf-8")):
        assert name in files, name
    for name in re.findall(r"`(test_\w+_\w+_\w+)`", page.read_text(encoding="utf-8")):
        assert any(f"def {name}(" in text for text in files.values()), name


def test_what_the_first_request_forgets_is_what_the_command_prints(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = next(line for line in command_lines("docs/guides/requests.md") if line[2] == "tiny")
    assert run_command([*command[1:], "--dry-run"]) == 0
    (said,) = re.findall(r"^residuum: (request 1 forgets .*)$", text_of("docs/guides/requests.md"), re.M)
    assert said in capsys.readouterr().out.splitlines()


def test_gates_are_linked_where_they_are_explained():
    assert "([the gates](../reference/verdict.md#a-fair-reference))" in text_of("docs/guides/ci-gate.md")
    section = text_of("docs/reference/verdict.md").partition("## A fair reference\n")[2].partition("\n## ")[0]
    assert "| gate | refused when |" in section


def test_notebooks_standardize_with_constants_as_the_guide_asks():
    assert "Standardize with constants that were fixed before training" in text_of("docs/guides/tables.md")
    assert not [
        path
        for path in (ROOT / "notebooks").glob("*.ipynb")
        if re.search(r"(?<!\[public\])\.mean\(0\)", path.read_text("utf-8"))
    ]
