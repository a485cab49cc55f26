"""The format of evidence packs: the worked numbers of its page are those of the example pack, which agrees."""

import json
import re
import zipfile
from pathlib import Path

import pytest

from residuum.pack import verify
from residuum.pack.manifest import SCHEMA
from residuum.record import Results, Verdict

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
EXAMPLE = REFERENCE / "evidence-example.zip"


def member(name: str) -> dict:
    with zipfile.ZipFile(EXAMPLE) as archive:
        return json.loads(archive.read(name))


@pytest.fixture(scope="module")
def page() -> str:
    return (REFERENCE / "evidence-format.md").read_text(encoding="utf-8")


def test_the_example_agrees():
    found = verify(EXAMPLE, accept_page=True)  # the page is of the version that made it
    assert found.sound, found.differences


def test_the_worked_numbers_are_those_of_the_example(page):
    record, lines = member("results.json"), re.findall(r"^\| `(\w[\w/]+)` \| (\S+) \|$", page, re.MULTILINE)
    worked = [(path, value) for path, value in lines if path.startswith(("methods/", "judgments/", "noise_floor/"))]
    assert len(worked) > 40
    for path, value in worked:
        part = record
        for step in path.split("/"):
            part = part[int(step)] if isinstance(part, list) else part[step]
        assert (part if isinstance(part, str) else json.dumps(part)) == value, path
    manifest = member("manifest.json")
    assert {manifest["seal"], manifest["root"], record["record_sha256"]} <= set(re.findall(r"`([0-9a-f]{64})`", page))


def test_versions_and_labels_are_those_of_the_code(page):
    assert f'"schema": "{SCHEMA}"' in page
    assert f'"schema": "{Results.SCHEMA}"' in page
    for verdict in Verdict:
        assert f"| `{verdict.name}` | {verdict.label} |" in page


def test_the_functions_of_the_page_have_the_values_that_scipy_gives(page):
    from scipy.special import betaincinv, ndtri, stdtr, stdtrit
    from scipy.stats import binom

    stated = [float(text) for text in re.findall(r"^\| (?:normal|t |inv|Pr).* \| ([\d.]+) \|$", page, re.MULTILINE)]
    computed = [ndtri(0.975), stdtrit(8, 1 - 0.035 * 0.7 / 2), stdtrit(2, 0.95), stdtr(8, -3.863225437067589)]
    computed += [betaincinv(5.5, 6.25, 0.025), binom.sf(6, 9, 0.5)]
    assert stated == pytest.approx(computed, rel=1e-11)
