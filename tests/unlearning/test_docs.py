"""docs/methods/index.md names every method and every setting, and nothing that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from residuum.unlearning import METHODS, GradientMethod

TEXT = (Path(__file__).parents[2] / "docs" / "methods" / "index.md").read_text(encoding="utf-8")
HOW_TO = (Path(__file__).parents[2] / "docs" / "guides" / "add-a-method.md").read_text(encoding="utf-8")
SHARED = set(GradientMethod.setting_owners())


def section(name: str) -> str:
    return TEXT.split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0]


def test_one_section_a_method_in_the_order_of_the_table():
    assert re.findall(r"^## (\w+)$", TEXT, re.M) == list(METHODS)
    assert re.findall(r"^\| \[`(\w+)`\]", TEXT, re.M) == list(METHODS)


@pytest.mark.parametrize("name", list(METHODS))
def test_every_setting_is_explained(name):
    own = set(METHODS[name].setting_owners())
    own -= SHARED if issubclass(METHODS[name], GradientMethod) else set()
    missing = {
        key
        for key in own
        if not re.search(rf"`[^`]*\b{key}\b[^`]*`", section(name) + (section("eu_k") if name == "cf_k" else ""))
    }
    assert not missing


def test_shared_settings_are_explained():
    head = TEXT.split("\n## ", 1)[0]
    assert {key for key in SHARED if not re.search(rf"`[^`]*\b{key}\b[^`]*`", head)} == set()


@pytest.mark.parametrize("name", list(METHODS))
def test_the_table_says_what_each_method_reads(name):
    cell = re.search(rf"^\| \[`{name}`\]\(#{name}\) \| ([^|]+) \|", TEXT, re.M)[1]
    part, _, more = cell.partition(", ")
    expected = {"`S_r`": {"retain"}, "`S_f`": {"forget"}, "both": {"retain", "forget"}}[part] | set(
        filter(None, [more])
    )
    assert METHODS[name].reads == expected


def test_the_guide_shows_the_example_as_it_is():
    example = (Path(__file__).parents[2] / "examples" / "random_labels" / "residuum_random_labels.py").read_text()
    for line in (
        "wrong = (paired.y + torch.randint(1,",
        "return F.cross_entropy(model(batch.x), batch.y) + self.weight",
    ):
        assert line in example
        assert line in HOW_TO
    assert f"{len(example.splitlines())} lines" in HOW_TO
