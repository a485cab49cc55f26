"""The statement of a deletion: three sentences that follow the verdict, and one printed page."""

import re
from datetime import date

import pytest

from residuum.record import Verdict
from residuum.record.folder import note_pack
from residuum.reporting import write_report
from residuum.reporting.statement import Deletion, statement_text, write_statement

HOSTILE = "<script>alert(1)"
FACTS = Deletion(
    "gd",
    {"hernet.pt": "a" * 64, HOSTILE: "b" * 64},
    number="2026-117",
    received=date(2026, 11, 2),
    answered_by="Example Ltd, data protection",
    checked_by="the regulator",
    evidence="evidence.zip",
    seal="c" * 64,
)


@pytest.fixture
def clean_run(demo_run, tmp_path):
    """The run in a folder of this test, with a verdict of each kind to choose."""

    def judged(verdict):
        record = demo_run.record
        judgment = record.judgments["gd"].model_copy(update={"verdict": verdict, "doubts": ["too few models"]})
        scenario = record.scenario.model_copy(update={"sizes": {"retain": 1988, "forget": 12}})
        changes = {"judgments": record.judgments | {"gd": judgment}, "scenario": scenario}
        return type(demo_run)(tmp_path, demo_run.name, record.model_copy(update=changes))

    return judged


@pytest.mark.parametrize(("verdict", "words"), [
    (Verdict.NOT_DETECTED, r"did not detect .* would have detected .* in 80 of 100 such audits, and it cannot prove"),
    (Verdict.FOUND, r"found a difference: .*; at most 5 of 100 models that never saw the samples would be called so"),
    (Verdict.INCONCLUSIVE, r"allows no conclusion \(too few models\)"),
])  # fmt: skip
def test_it_says_what_was_asked_done_and_found(verdict, words, clean_run):
    text = statement_text(clean_run(verdict), FACTS)
    asked, done, found = re.findall(r"<dd>(.*)</dd>", text)
    assert asked.startswith("A request (number 2026-117) asked on 2026-11-02 to delete")
    assert "12 of the 2000 training samples" in asked
    assert done.startswith("New weights were made by Example Ltd, data protection with machine unlearning (gd)")
    assert re.search(words, found)
    assert "a" * 64 in text
    assert "residuum verify evidence.zip" in text
    assert HOSTILE not in text


def test_it_is_one_page_on_paper(browser, clean_run):
    run = clean_run(Verdict.NOT_DETECTED)
    page = browser.new_page()
    page.goto(write_statement(run, FACTS).as_uri())
    for paper in ("A4", "Letter"):
        assert len(re.findall(rb"/Type ?/Page\b", page.pdf(format=paper))) == 1
    page.close()


def test_the_report_links_it_where_it_is(demo_run, tmp_path):
    (tmp_path / "statement.html").write_text("")
    report = write_report(demo_run, out=tmp_path)[0].read_text()
    assert '<a href="statement.html">' in report
    assert '<a href="statement.html">' not in write_report(demo_run, out=tmp_path / "other")[0].read_text()


def test_the_report_links_a_pack_that_lies_beside_it(make_run):
    run = make_run()
    assert "evidence.zip" not in write_report(run)[0].read_text()
    pack = run.folder / "evidence.zip"
    pack.write_bytes(b"")
    note_pack(run.folder, pack)
    assert '<a href="evidence.zip">evidence pack</a>' in write_report(run)[0].read_text()
