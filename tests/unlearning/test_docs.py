"""The pages of methods: the guide names every method, and docstrings describe every setting and nothing else."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import pytest
from website import method_pages

from residuum.studies import Study
from residuum.training import Recipe
from residuum.unlearning import METHODS, RURK
from residuum.unlearning.layers import Layers
from residuum.unlearning.start import KnownStart

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "methods" / "index.md").read_text(encoding="utf-8")
HOW_TO = (DOCS / "guides" / "add-a-method.md").read_text(encoding="utf-8")


def test_the_table_has_one_line_a_method_in_order():
    assert re.findall(r"^\| \[`(\w+)`\]", TEXT, re.M) == list(METHODS)


@pytest.mark.parametrize("name", list(METHODS))
def test_every_setting_has_a_description(name):
    for setting, owner in METHODS[name].setting_owners().items():
        assert method_pages.descriptions(owner).get(setting, "").endswith("."), setting


@pytest.mark.parametrize("kind", [*METHODS.values(), Recipe, KnownStart, Layers], ids=lambda kind: kind.__name__)
def test_docstrings_describe_nothing_that_does_not_exist(kind):
    section = (inspect.getdoc(kind) or "").partition("Attributes:\n")[2].partition("\n\n")[0]
    described = re.findall(r"^    (\w+): ", section, re.M)
    assert set(described) <= {field.name for field in dataclasses.fields(kind)}


@pytest.mark.parametrize("name", list(METHODS))
def test_every_reference_has_a_link(name):
    reference = method_pages.Docstring.read(METHODS[name]).reference
    assert ("](https://arxiv.org/abs/" in reference) == (name != "teacher")


def test_the_settings_of_rurk_in_the_guide_are_those_measured():
    (shown,) = re.findall(r"^capped = (RURK\(.*?^\))", TEXT, re.M | re.S)
    (row,) = Study.create("digits", methods="rurk").rows
    assert eval(shown, {"RURK": RURK}).settings == row.settings


@pytest.mark.parametrize("name", list(METHODS))
def test_the_table_says_what_each_method_reads(name):
    cell = re.search(rf"^\| \[`{name}`\]\([^)]*/{name}\.py\) \| ([^|]+) \|", TEXT, re.M)[1]
    part, _, more = cell.partition(", ")
    expected = {"`S_r`": {"retain"}, "`S_f`": {"forget"}, "both": {"retain", "forget"}}[part] | set(
        filter(None, [more])
    )
    assert METHODS[name].reads == expected


def squeezed(text: str) -> str:
    """Return a text without its spaces: the guide has shorter lines."""
    return "".join(text.split())


def test_the_guide_shows_the_example_as_it_is():
    example = (DOCS.parent / "examples" / "random_labels" / "residuum_random_labels.py").read_text()
    for line in (
        "wrong = (paired.y + torch.randint(1,",
        "return F.cross_entropy(model(batch.x), batch.y) + self.weight",
    ):
        assert squeezed(line) in squeezed(example)
        assert squeezed(line) in squeezed(HOW_TO)
    assert f"{len(example.splitlines())} lines" in HOW_TO
