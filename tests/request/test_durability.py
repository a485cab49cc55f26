"""Durability of her own model: her training function fine-tunes it, and nothing else does."""

import torch
from tests.request.conftest import MEAN, STD, HerNet
from torch import nn

from residuum.request import AuditOptions
from residuum.request.study import References, request_study
from residuum.studies.estimates import work_left
from residuum.studies.planning import plan
from residuum.training import Recipe

EPOCHS = 3


def training(calls):
    """Return a training function that takes a model to start from, and notes whom it trains on what."""

    def retrain(samples, seed, model=None):
        calls.append((model is not None, frozenset(samples.ids)))
        torch.manual_seed(seed)
        net = model or HerNet()
        optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
        for _ in range(EPOCHS if model else 10):
            for rows in torch.randperm(len(samples)).split(64):
                x, y = samples.batch(rows)
                optimizer.zero_grad()
                nn.functional.cross_entropy(net((x - MEAN) / STD), y).backward()
                optimizer.step()
        return net.eval()

    return retrain


def test_her_function_fine_tunes_every_model_on_the_retained_samples(case, tmp_path):
    calls = []
    request = case.request(retrain=training(calls))
    options = AuditOptions(measures=["durability:draws=2"])
    done = request.audit(
        case.model, case.net, options, controls=2, draws=5, out=tmp_path / "run", store=tmp_path / "store"
    )
    row = done.rows["unlearned"].probes["durability:draws=2"]
    assert row.value is not None
    assert row.retrained == 3
    retained, forgotten = set(case.train.ids) - set(case.ids), set(case.ids)
    again = [ids for started, ids in calls if started]
    assert len(again) == 2 * 5  # original, row and three retrained models, fine-tuned and re-learned
    assert sum(ids == retained for ids in again) == 5
    assert {len(ids & forgotten) for ids in again} == {0, round(0.1 * len(forgotten))}


def test_the_cost_is_said_before_it_starts(case, tmp_path):
    options = AuditOptions(measures=["durability"])
    request, references = case.request(retrain=training([])), References(controls=2)
    study = request_study(request, case.model, case.net, references, options)
    work = work_left([study], tmp_path, [plan(study)])
    assert work.untimed == 3 + 2 * 5
    assert "13 trainings by your function" in str(work)


def test_without_a_model_to_start_from_there_is_a_note(case, tmp_path):
    options = AuditOptions(measures=["durability"])
    done = case.request().audit(
        case.model, case.net, options, controls=1, draws=5, out=tmp_path / "run", store=tmp_path / "store"
    )
    assert "way to train a model further" in done.rows["unlearned"].probes["durability"].note
    assert case.request(recipe=Recipe(epochs=5)).retraining(case.model).further() is not None
