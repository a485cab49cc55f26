"""Audits until the verdict: rounds of draws that stop, go on, add up and resume."""

from __future__ import annotations

import pytest

from residuum.auditing import Counts
from residuum.cli.options import RunOptions
from residuum.core.errors import InputError
from residuum.record import Results
from residuum.studies import execution, plan, run_all, runner
from residuum.studies.engines import engine
from residuum.studies.results import results_record

DRAWS = 16


@pytest.fixture(scope="module")
def study(quick):
    """A function that returns the quick run with other audits."""

    def make(draws=DRAWS, until=None):
        audit = quick.scenario.audit.model_copy(update={"draws": draws, "until": until})
        return quick.model_copy(update={"scenario": quick.scenario.model_copy(update={"audit": audit})})

    return make


def go_on(record, most):
    """Let gd go on to the end, at radius 0.2 alone after the second round."""
    done = max(record.methods["original"].audits("gaussian")[0].draws)
    return {"gaussian": (["original", "retrain", "control", "gd"], [0.2] if done > 2 else [0.1, 0.2])}


def run_until(asked, store, undecided=go_on, **options):
    """Run with another judge of what goes on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "undecided", undecided)
        return run_all([asked], store=store, **options)[0]


def counts(results, kind="counts"):
    return {(r.label, r.seed): Counts.load(getattr(r.audits["gaussian"], kind)) for r in results}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("until") / "store"


@pytest.fixture(scope="module")
def stopped(study, store):
    return run_until(study(until="verdict"), store)


def test_rows_and_radii_that_go_on_have_all_draws_and_the_others_what_they_had(stopped):
    audits = {result.label: result.audits["gaussian"].measures for result in stopped}
    assert audits["gd"]["draws"] == audits["retrain"]["draws"] == audits["control"]["draws"] == [1, 4, 16]
    assert audits["loud"]["draws"] == [1, 2, 2]
    assert audits["gd"]["settings"]["draws"] == 16
    assert audits["loud"]["settings"]["draws"] == 2


@pytest.mark.parametrize("kind", ["counts", "heldout"])
def test_the_counts_are_those_of_plain_audits_of_as_many_draws(study, stopped, store, kind):
    plain = {draws: counts(run_all([study(draws)], store=store)[0], kind) for draws in (2, 4, 16)}
    for key, found in counts(stopped, kind).items():
        assert found.knows_original
        for column, draws in enumerate((2, 2, 2) if key[0] == "loud" else (4, 4, 16)):
            for field in ("draws", "method_right", "reference_right", "both_right", "same_prediction", "joint"):
                expected = getattr(plain[draws][key], field)[:, column]
                assert (getattr(found, field)[:, column] == expected).all(), (key, column, field)


def test_measures_follow_from_the_counts_of_all_rounds(study, stopped, store):
    whole = run_all([study(16)], store=store)[0]
    for mine, plain in zip(stopped, whole, strict=True):
        if mine.label == "gd":
            ends = [each.audits["gaussian"].measures["residual_knowledge"]["pooled"][2] for each in (mine, plain)]
            assert ends[0] == ends[1]


def test_finished_rounds_are_taken_from_the_store(study, stopped, store):
    log = (store / "log.txt").read_text()
    again = run_until(study(until="verdict"), store)
    assert (store / "log.txt").read_text() == log
    assert again == stopped


@pytest.mark.long
def test_two_workers_count_the_same(study, stopped, tmp_path):
    with engine(2) as pool:
        other = run_until(study(until="verdict"), tmp_path / "store", executor=pool)
    assert counts(other) == counts(stopped)
    measures = [[result.audits["gaussian"].measures for result in results] for results in (other, stopped)]
    assert measures[0] == measures[1]


def test_the_first_round_shares_its_stage_with_a_plain_audit(study):
    first, plain = plan(study(until="verdict"))[0], plan(study(2))[0]
    assert first.audits["gaussian"].key == plain.audits["gaussian"].key


def test_a_run_stops_by_its_verdicts_and_gives_those_of_all_draws(study, store, tmp_path):
    until = execution.run(study(until="verdict"), store=store, out=tmp_path / "until")
    whole = execution.run(study(), store=store, out=tmp_path / "whole")
    words = [{label: verdict.verdict for label, verdict in each.verdicts.items()} for each in (until, whole)]
    assert words[0] == words[1]
    made, all_draws = (sum(sum(a.draws) for *_, a in each.record.each_audit()) for each in (until, whole))
    assert made < all_draws
    record = Results.load(tmp_path / "until").as_dict()
    assert record["scenario"]["settings"]["audit"]["until"] == "verdict"
    assert record["scenario"]["settings"]["audit"]["draws"] == DRAWS


def test_few_draws_are_warned_of_only_where_they_stayed_few(study, stopped, store):
    def few(results):
        return [text for text in results_record(study(until="verdict"), results).warnings if "too few" in text]

    assert any("2 draws are too few" in text for text in few(run_all([study(2)], store=store)[0]))
    assert any("2 draws are too few" in text for text in few(stopped))  # of the row that stopped

    def everything(record, most):
        return {"gaussian": (list(record.methods), [0.1, 0.2])}

    assert not any("2 draws" in t for t in few(run_until(study(until="verdict"), store, everything)))


def test_until_and_a_half_width_exclude_each_other():
    with pytest.raises(InputError, match="expected --until or --half-width, got both"):
        RunOptions(half_width=0.01, until="verdict").overrides()
    assert RunOptions(draws=40, until="verdict").overrides() == {"audit.draws": 40, "audit.until": "verdict"}
