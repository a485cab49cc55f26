"""The model card: a head that YAML reads with the record's numbers, words that are the verdict's, weights that load."""

from __future__ import annotations

import pytest
import torch
import yaml

from residuum.cli import run_command
from residuum.core.errors import InputError
from residuum.models import build_model, load_weights, save_weights
from residuum.reporting import wording
from residuum.reporting.exports import model_card


def parts(card):
    _, head, body = card.split("---\n", 2)
    return yaml.safe_load(head), body


def test_the_head_has_the_records_numbers(demo_run):
    head, _ = parts(model_card(demo_run, "rurk"))
    (entry,) = head["model-index"]
    assert entry["name"] == "digits-rurk"
    (result,) = entry["results"]
    assert result["dataset"]["name"] == "digits"
    values = {metric["type"]: metric["value"] for metric in result["metrics"]}
    summary = demo_run.rows["rurk"].summary
    assert values["test_accuracy"] == pytest.approx(summary.test_accuracy.mean, abs=1e-4)
    level = demo_run.verdicts["rurk"].finding.value()
    assert values["residual_knowledge"] == pytest.approx(level, abs=1e-4)
    assert "rurk" in head["tags"]


def test_the_words_are_those_of_the_page(demo_run):
    verdict = demo_run.verdicts["gd"]
    _, body = parts(model_card(demo_run, "gd"))
    assert wording.verdict_sentence(demo_run, verdict) in body
    assert all(text in body for text in wording.not_proved(demo_run))
    with pytest.raises(InputError, match="unknown row"):
        model_card(demo_run, "nobody")


def test_the_command_writes_weights_and_card(make_run, tmp_path, capsys):
    run = make_run()
    out = tmp_path / "hub"
    assert run_command(["export", "card", str(run.folder), "gd", "--out", str(out)]) == 2
    assert "repeat the run's command" in capsys.readouterr().err
    model = build_model("mlp", (4,), 3, seed=0)
    (run.folder / "models" / "2").mkdir(parents=True)
    save_weights(model, run.folder / "models" / "2" / "gd.safetensors")
    assert run_command(["export", "card", str(run.folder), "gd", "--out", str(out), "--seed", "2"]) == 0
    again = load_weights(out / "model.safetensors")
    assert torch.equal(again(torch.ones(1, 4)), model(torch.ones(1, 4)))
    assert parts((out / "README.md").read_text(encoding="utf-8"))[0]["library_name"] == "residuum"
    assert run_command(["export", "card", str(run.folder), "gd", "--out", str(out), "--seed", "77"]) == 2
