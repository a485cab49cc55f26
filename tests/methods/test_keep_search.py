"""keep="auto": the smallest keep with which validation accuracy comes back, within a budget of passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from residuum.methods import GA, GD, RURK, CFk, Context, SoftReset, make_method, unlearn
from residuum.methods import fresh as searching
from residuum.methods.streams import error_rate
from residuum.models.weights import state_hash
from residuum.training import Recipe
from residuum.types import InputError, ResiduumWarning

RECIPE = Recipe(epochs=8, lr=0.05, batch_size=32)


def search(original, splits, method):
    context = Context(3, recipe=RECIPE)
    return unlearn(original, splits, method, seed=3, context=context), context


@pytest.fixture
def comes_back_from(monkeypatch):
    """Let validation accuracy come back if at least so much was kept, whatever the models do."""

    def pretend(threshold):
        monkeypatch.setattr(SoftReset, "edit", lambda self, model, splits, context: (self.keep, context))
        answers = {True: 0.1, False: 0.5}

        def error(model, samples, team):
            if not isinstance(model, tuple):
                return 0.1
            keep, context = model
            context.passes = 100
            return answers[keep >= threshold]

        monkeypatch.setattr(searching, "error_rate", error)
        monkeypatch.setattr("residuum.methods.same_bits", lambda *_: False)
        monkeypatch.setattr("residuum.methods.check_answer", lambda method, model, answer, *_: answer)

    return pretend


@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.3, 0.5, 0.66, 0.93])
def test_bisection_ends_at_the_smallest_sufficient_keep_of_a_fine_grid(threshold, original, splits, comes_back_from):
    comes_back_from(threshold)
    (keep, _), context = search(original, splits, SoftReset(keep="auto", keep_budget=100))
    grid = np.arange(1, 32) / 32
    assert keep == grid[grid >= threshold][0]
    assert len(context.notes["keep_trials"]) == 5


def test_a_trial_is_made_only_while_it_fits_the_budget_and_the_first_always(original, splits, monkeypatch):
    monkeypatch.setattr(searching, "LOSS", 1.0)  # every trial comes back
    passes = 2 * len(splits.retain)
    for budget, trials in ((1e-6, 1), (2 * passes, 2), (3 * passes - 1, 2), (3 * passes, 3)):
        share = budget / (RECIPE.epochs * len(splits.train))
        _, context = search(original, splits, SoftReset(keep="auto", epochs=2, keep_budget=share))
        assert len(context.notes["keep_trials"]) == trials
        assert context.passes == trials * passes


@pytest.mark.parametrize(
    "method",
    [
        GD(keep="auto", epochs=4, lr=0.1, batch_size=16, keep_budget=1.5),
        RURK(keep="auto", epochs=4, lr=0.1, batch_size=16, lambda_f=0.001, lambda_a=0.001, keep_budget=4.0),
        CFk(keep="auto", epochs=4, lr=0.1, batch_size=16, k=2, keep_budget=1.5),
        SoftReset(keep="auto", epochs=4, lr=0.1, batch_size=16, keep_budget=1.5),
    ],
    ids=lambda method: method.name,
)
def test_the_result_is_that_of_the_number_found(method, original, splits, monkeypatch):
    monkeypatch.setattr(searching, "LOSS", 0.45)  # so that some trial of this small network comes back
    found, context = search(original, splits, method)
    chosen, trials = context.notes["keep"], context.notes["keep_trials"]
    again, plain = search(original, splits, replace(method, keep=chosen))
    assert state_hash(found.state_dict()) == state_hash(again.state_dict())
    assert context.passes == sum(trial["passes"] for trial in trials) == len(trials) * plain.passes
    least = 100 * (1 - error_rate(original, splits.validation) - 0.45)
    enough = [trial["keep"] for trial in trials if trial["validation_accuracy"] >= least]
    assert chosen == min(enough)
    assert plain.notes["cosines"] == context.notes["cosines"]


def test_where_nothing_comes_back_the_largest_keep_tried_is_taken_and_a_warning_says_so(original, splits, monkeypatch):
    monkeypatch.setattr(searching, "LOSS", -1.0)
    with pytest.warns(ResiduumWarning, match=r"soft_reset: no keep tried brought validation accuracy back to \d"):
        _, context = search(original, splits, SoftReset(keep="auto", epochs=1, keep_budget=0.4))
    trials = [trial["keep"] for trial in context.notes["keep_trials"]]
    assert trials == [0.5, 0.75, 0.875]
    assert context.notes["keep"] == 0.875


def test_validation_samples_are_read_and_needed_for_the_search_only(original, splits):
    assert SoftReset(keep="auto").parts_read == {"retain", "validation"}
    assert SoftReset().parts_read == {"retain"}
    assert RURK(keep="auto").parts_read == {"retain", "forget", "validation"}
    without = replace(splits, validation=splits.validation.subset(np.array([], dtype=np.int64)))
    for method in (SoftReset(keep="auto"), RURK(keep="auto"), make_method("neggrad", {"keep": "auto"})):
        with pytest.raises(InputError, match=rf"{method.name}: keep=auto needs validation samples"):
            unlearn(original, without, method, seed=3)


def test_texts_and_numbers_are_read_and_others_refused():
    assert make_method("soft_reset", {"keep": "auto"}).keep == "auto"
    assert make_method("soft_reset", {"keep": "0.25"}).keep == 0.25
    for wrong in ("automatic", 1.5, -0.1):
        with pytest.raises(InputError, match="keep"):
            make_method("soft_reset", {"keep": wrong})
    with pytest.raises(InputError, match="ga: keep: expected 1"):
        GA.configured({"keep": "auto"})


def test_edit_alone_does_not_search(original, splits):
    with pytest.raises(InputError, match=r"keep='auto' is searched by unlearn\(\)"):
        GD(keep="auto").edit(original, splits, Context(3, recipe=RECIPE))
