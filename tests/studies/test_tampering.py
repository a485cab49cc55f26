"""What a store serves is what was computed for its key: swaps, altered checkpoints and changing data are noticed."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image

from residuum.cli import run_command
from residuum.core.errors import InputError, ResiduumWarning
from residuum.studies import Study, maintenance, run_all
from residuum.studies.artifacts import Manifest, digest
from residuum.studies.maintenance import made_with
from residuum.training import PlainSGD, fit
from residuum.training.checkpoint import Checkpoint, Position, resume_training, training_state


def swap(first, second):
    aside = first.with_name("aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


def test_swapped_artifacts_are_found_and_computed_again(toy):
    stage, store, log = toy
    first, second = store.compute(stage(seed=1)), store.compute(stage(seed=2))
    swap(first, second)
    assert maintenance.verify(store.root) == {first.name: ["manifest.json"], second.name: ["manifest.json"]}
    with pytest.warns(ResiduumWarning, match="is not what was written"):
        store.compute(stage(seed=1))
    assert (first / "value.txt").read_text() == "1"
    assert log.read_text() == "1\n2\n1\n"


@pytest.mark.parametrize("field", ["kind", "settings", "parents", "code"])
def test_a_manifest_with_another_content_is_found_though_its_seal_fits(toy, field):
    stage, store, _ = toy
    folder = store.compute(stage())
    content = json.loads((folder / "manifest.json").read_text())
    content[field] = {"seed": 7} if field == "settings" else {"model": "0"} if field == "parents" else "other"
    content["seal"] = digest({name: value for name, value in content.items() if name != "seal"})
    (folder / "manifest.json").write_text(json.dumps(content))
    assert maintenance.verify(store.root) == {folder.name: ["manifest.json"]}


def test_the_key_of_a_manifest_is_that_of_its_stage(toy):
    stage, store, _ = toy
    asked = stage(parents={"original": stage(seed=2)})
    manifest = Manifest.read(store.compute(asked))
    assert manifest.key == asked.key
    assert manifest.parents == {"original": stage(seed=2).key}


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"version": "2"}', '{"version": null}', "\x00", "[" * 99_999])
def test_a_store_file_that_is_none_gets_one_line(toy, content, capsys):
    stage, store, _ = toy
    store.prepare()
    (store.root / "store.json").write_text(content)
    with pytest.raises(InputError, match=r'expected \{"version": 1\}, got something else'):
        store.compute(stage())
    assert run_command(["store", "gc", "--store", str(store.root)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def state(seed):
    torch.manual_seed(seed)
    model = torch.nn.Linear(3, 2)
    return model, PlainSGD(model.parameters(), lr=0.1), {"noise": torch.Generator().manual_seed(seed)}


def saved(folder, *epochs):
    folder.mkdir(parents=True, exist_ok=True)
    for epoch in epochs:
        kept = partial(training_state, Position(epoch, epoch, epoch), *state(epoch))
        Checkpoint(folder / "training.pt", every=0, key=folder.name).save(kept)
    return folder / "training.pt"


def restored(folder):
    model, optimizer, generators = state(0)
    kept = Checkpoint(folder / "training.pt", key=folder.name).restore()
    position = resume_training(kept, model, optimizer, generators)
    return position.epoch, model.weight.detach()


def test_a_checkpoint_comes_back_as_it_was_and_is_the_only_one(tmp_path):
    saved(tmp_path / "key", 1, 2)
    assert len(list((tmp_path / "key").iterdir())) == 1
    epoch, weight = restored(tmp_path / "key")
    assert epoch == 2
    assert torch.equal(weight, state(2)[0].weight)


def test_every_altered_byte_of_a_checkpoint_is_found_and_the_training_starts_again(tmp_path, capsys):
    path = saved(tmp_path / "scratch" / "key", 3)
    content = path.read_bytes()
    for place in [*range(0, len(content), len(content) // 40), len(content) - 1]:
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert maintenance.verify(tmp_path) == {"key": [path.name]}
    assert restored(path.parent)[0] == 0
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert f"{path} is not the checkpoint that was written" in said[0]
    path.write_bytes(b"")
    assert restored(path.parent)[0] == 0
    path.write_bytes(content)
    assert restored(path.parent)[0] == 3


def test_the_checkpoint_of_another_stage_is_left_out(tmp_path):
    path = saved(tmp_path / "scratch" / "one", 3)
    (tmp_path / "scratch" / "two").mkdir()
    moved = shutil.copy(path, tmp_path / "scratch" / "two")
    assert maintenance.verify(tmp_path) == {"two": [path.name]}
    assert restored(tmp_path / "scratch" / "two")[0] == 0
    assert moved


def test_a_save_that_was_killed_leaves_the_one_before(tmp_path):
    saved(tmp_path / "scratch" / "key", 1)
    (tmp_path / "scratch" / "key" / ".training.pt.0").write_bytes(b"half")  # written, but not yet renamed
    assert restored(tmp_path / "scratch" / "key")[0] == 1
    assert maintenance.verify(tmp_path) == {}


class Stopped(Exception):
    """As a kill, but the test goes on."""


def test_a_stage_starts_again_from_a_damaged_checkpoint_and_gives_the_same_model(
    quick, finished, tmp_path, monkeypatch, capsys
):
    save = Checkpoint.save

    def stopping(self, state):
        self.every = 0
        save(self, state)
        if state()["position"][0] == 3:
            raise Stopped

    undisturbed = finished[2]
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", stopping)
        with pytest.raises(Stopped):
            run_all([quick], store=tmp_path / "b")
    found = next((tmp_path / "b" / "scratch").glob("*/training.pt"))
    sample_id = quick.splits().forget.ids[0]
    assert made_with(tmp_path / "b", [sample_id]).half == [found.parent]
    assert made_with(tmp_path / "b", ["of other data"]).half == []
    found.write_bytes(found.read_bytes()[:-50] + b"0" * 50)
    results = run_all([quick], store=tmp_path / "b")[0]
    assert f"{found} is not the checkpoint" in capsys.readouterr().err
    assert [r.model.read_bytes() for r in results] == [r.model.read_bytes() for r in undisturbed]
    assert not any((tmp_path / "b" / "scratch").iterdir())


@pytest.fixture
def images(tmp_path):
    """A folder of images and a study with it."""
    rng = np.random.default_rng(0)
    for number in range(40):
        path = tmp_path / "images" / f"class{number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (8, 8, 3), np.uint8)).save(path)
    overrides = {
        "data.name": str(tmp_path / "images"),
        "data.train_size": 20,
        "data.validation_size": 5,
        "data.test_size": 10,
        "forget.forget_class": "class1",
        "train.epochs": 2,
        "audit.draws": 2,
        "relearn.epochs": 0,
    }
    return tmp_path / "images", Study.create("tiny", methods="gd", seeds=[1], overrides=overrides)


def test_a_folder_overwritten_during_a_stage_and_put_back_leaves_nothing(images, tmp_path, monkeypatch):
    folder, study = images
    sound = run_all([study], store=tmp_path / "a")[0]
    Image.new("RGB", (8, 8)).save(tmp_path / "black.png")

    def disturbed(*arguments, **options):
        pictures = {path: path.read_bytes() for path in folder.rglob("*.png")}
        for path in pictures:
            path.write_bytes((tmp_path / "black.png").read_bytes())
        passes = fit(*arguments, **options)
        for path, content in pictures.items():
            path.write_bytes(content)
        return passes

    with monkeypatch.context() as patch:
        patch.setattr("residuum.studies.stages.fit", disturbed)
        with pytest.raises(InputError, match="were written while they were read; results since then are discarded"):
            run_all([study], store=tmp_path / "b")
    assert maintenance.artifacts(tmp_path / "b") == []
    again = run_all([study], store=tmp_path / "b")[0]
    assert [r.model.read_bytes() for r in again] == [r.model.read_bytes() for r in sound]


def test_a_stopped_audit_leaves_what_it_has_counted_and_goes_on(quick, finished, tmp_path, monkeypatch):
    save, undisturbed, groups = Checkpoint.save, finished[2], []

    def noting(self, state):
        self.every = 0
        save(self, state)
        if "states" in state():
            groups.append([counted["batches"] for counted in state()["states"]])
            if len(groups) == 3:
                raise Stopped

    monkeypatch.setattr(Checkpoint, "save", noting)
    with pytest.raises(Stopped):
        run_all([quick], store=tmp_path)
    (folder,) = (tmp_path / "scratch").iterdir()
    assert len(list(folder.glob("audit-*.pt"))) == 1
    assert maintenance.verify(tmp_path) == {}
    assert made_with(tmp_path, [quick.splits().forget.ids[0]]).half == [folder]
    results = run_all([quick], store=tmp_path)[0]
    assert groups[:4] == [[1], [2], [2, 1], [2, 2]]  # of the forgotten samples, then of the held-out ones
    assert [r.audits["gaussian"].counts.read_bytes() for r in results] == [
        r.audits["gaussian"].counts.read_bytes() for r in undisturbed
    ]
    assert not any((tmp_path / "scratch").iterdir())


def test_a_row_may_be_called_as_the_folder_of_checkpoints(tmp_path, monkeypatch):
    save = Checkpoint.save
    monkeypatch.setattr(Checkpoint, "save", lambda self, state: save(replace(self, every=0), state))
    few = {"train.epochs": 1, "audit.draws": 2}
    study = Study.create("tiny", methods="scratch=gd", seeds=[1], overrides=few)
    run_all([study], store=tmp_path)
    assert maintenance.verify(tmp_path) == {}


def test_a_checkpoint_knows_the_seconds_of_all_sessions(tmp_path):
    for session in (1, 2, 3):
        checkpoint = Checkpoint(tmp_path / "training.pt", every=0)
        checkpoint.restore()
        assert 100 * (session - 1) <= checkpoint.before < 100 * session
        checkpoint._begun -= 100
        checkpoint.save(dict)
