"""Forgetting: nothing made with a sample stays in the store, whatever happens on the way; the rest is named."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import zipfile
from contextlib import nullcontext
from datetime import date
from pathlib import Path

import pytest

from residuum.cli import run_command
from residuum.core.errors import InputError, ResiduumWarning
from residuum.core.files import ASIDE
from residuum.record.folder import OWN_RUN, OWN_STORE, hashes, note_pack, note_written
from residuum.reporting import report, write_report
from residuum.studies import Study, maintenance
from residuum.studies.artifacts import note_ids
from residuum.studies.maintenance import Forgotten, forget, known_runs
from residuum.studies.store import Store

FORK = multiprocessing.get_context("fork")


def has_bytes(folder: Path, wanted: bytes) -> list[Path]:
    """Return the files below a folder that hold these bytes: in their name, as they are, or inside an archive."""
    found = []
    for path in (path for path in folder.rglob("*") if path.is_file()):
        contents = [path.read_bytes(), path.name.encode()]
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                contents += [archive.read(name) for name in archive.namelist()]
        # arrays of texts have four bytes a letter
        if any(form in content for content in contents for form in (wanted, wanted.decode().encode("utf-32-le"))):
            found.append(path)
    return found


@pytest.fixture
def chain(toy):
    """A stage that read "b", one that did not, and a child and a grandchild of the first that read only "c"."""
    stage, store, _ = toy
    reader, stranger = stage(ids=["a", "b"]), stage(seed=2, ids=["c"])
    child = stage(seed=3, parents={"original": reader}, ids=["c"])
    grandchild = stage(seed=4, parents={"model": child}, ids=["c"])
    for each in (reader, stranger, child, grandchild):
        store.compute(each)
    return store, reader, stranger, child, grandchild


def test_what_read_a_sample_and_all_that_came_of_it_is_removed(chain):
    store, reader, stranger, child, grandchild = chain
    listed = forget(store.root, ["b"], dry_run=True)
    assert len(listed.removed) == 3
    assert store.has(reader)
    assert forget(store.root, ["b"]).removed == listed.removed
    assert [store.has(each) for each in (reader, stranger, child, grandchild)] == [False, True, False, False]
    with pytest.raises(InputError, match="at least one id"):
        forget(store.root, [])


@pytest.mark.parametrize("renames", range(4))
def test_a_forgetting_that_stops_anywhere_is_finished_by_the_next(chain, renames, monkeypatch):
    store, reader, stranger, child, grandchild = chain
    left, rename = iter(range(renames)), Path.rename
    listed = forget(store.root, ["b"], dry_run=True)

    def dying(path, target):
        if ASIDE in str(target) and next(left, None) is None:
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", dying)
        if renames < 3:
            with pytest.raises(KeyboardInterrupt):
                forget(store.root, ["b"])
        else:
            forget(store.root, ["b"])
    again = forget(store.root, ["b"] if renames < 3 else ["c"], dry_run=renames == 3)
    assert again.unknown == []
    if renames < 3:  # the person is told of what was removed before the kill, too
        assert (sorted(again.removed), again.unreachable) == (sorted(listed.removed), listed.unreachable)
    assert [store.has(each) for each in (reader, stranger, child, grandchild)] == [False, True, False, False]
    assert not (store.root / "maintenance.json").exists()
    assert list(store.root.glob(f"{ASIDE}*")) == []


def test_a_chain_that_was_lost_counts_as_made_with_the_sample(chain):
    store, reader, stranger, child, grandchild = chain
    shutil.rmtree(store.folder(reader))
    assert len(forget(store.root, ["c"], dry_run=True).removed) == 3
    forget(store.root, ["b"])
    assert [store.has(each) for each in (stranger, child, grandchild)] == [True, False, False]


@pytest.mark.parametrize("content", ["", "[]", "{}", "not json", '{"kind": 3}', "[" * 100_000, None])
def test_an_artifact_that_cannot_be_read_blocks_nothing_and_is_forgotten(chain, content, capsys):
    store, _, stranger, *_ = chain
    manifest, where = store.folder(stranger) / "manifest.json", ["--store", str(store.root)]
    manifest.write_bytes(b"\xff\xfe" if content is None else content.encode())
    assert run_command(["store", "ls", *where]) == 0
    assert run_command(["store", "verify", *where]) == 1
    assert f"broken: {stranger.key} (manifest.json)" in capsys.readouterr().out
    assert run_command(["store", "gc", "--dry-run", *where]) == 0
    assert f"would remove: train {stranger.key}, whose manifest cannot be trusted" in capsys.readouterr().out
    assert run_command(["forget", "b", *where]) == 0
    assert "4 removed" in capsys.readouterr().out
    assert maintenance.artifacts(store.root) == []


@pytest.mark.parametrize("damage", [None, b"", b"a\nx\n", b"\xff"])
def test_a_list_of_ids_that_was_changed_is_not_believed(chain, damage):
    store, reader, *_ = chain
    ids = store.folder(reader) / "ids.txt"
    ids.unlink() if damage is None else ids.write_bytes(damage)
    forget(store.root, ["c"])
    assert not store.has(reader)


def test_stray_files_and_links_are_named_and_left(chain, tmp_path, capsys):
    store, *_ = chain
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("mine")
    (store.root / "train" / "link").symlink_to(tmp_path / "precious")
    (store.root / "train" / "note.txt").write_text("hello")
    assert maintenance.verify(store.root).keys() == {"train/link", "train/note.txt"}
    assert run_command(["forget", "b", "--store", str(store.root)]) == 0
    said = capsys.readouterr().out
    assert f"out of reach: {store.root / 'train' / 'note.txt'}" in said
    assert run_command(["store", "gc", "--store", str(store.root)]) == 0
    assert (tmp_path / "precious" / "file").read_text() == "mine"


def test_checkpoints_and_half_written_folders_go_unless_they_are_known_to_be_others(chain):
    store, *_ = chain
    scratch, half = store.root / "scratch", store.root / "train"
    for key, ids in (("11", ["b"]), ("22", ["z"]), ("33", None)):
        (half / f".writing-{key}-x").mkdir()
        (scratch / key).mkdir(parents=True)
        (scratch / key / "training.pt").write_bytes(b"...b...")
        if ids:
            note_ids(scratch / key, ids)
    (half / ".writing-44-x").mkdir()
    forget(store.root, ["b"])
    assert sorted(path.name for path in scratch.iterdir()) == ["22"]
    assert sorted(path.name for path in half.glob(".writing-*")) == [".writing-22-x"]
    ids = scratch / "22" / "ids.txt"
    ids.write_text("y\n")  # no longer what was sealed
    forget(store.root, ["c"])
    assert list(scratch.iterdir()) == []


def test_nothing_is_forgotten_while_a_run_could_bring_it_back(chain, capsys):
    store, reader, *_ = chain
    for using in (store.in_use(), store.lock(reader.key)):
        with using:
            assert run_command(["forget", "b", "--store", str(store.root)]) == 2
            assert "a run is using the store" in capsys.readouterr().err
    with store.alone():
        assert run_command(["forget", "b", "--store", str(store.root)]) == 2
        assert "another command is cleaning the store" in capsys.readouterr().err
    assert store.has(reader)
    assert run_command(["forget", "b", "--store", str(store.root)]) == 0


def test_unknown_ids_are_said_and_files_are_read_only_when_asked(chain, tmp_path, capsys, monkeypatch):
    store, _, stranger, *_ = chain
    where = ["--store", str(store.root)]
    monkeypatch.chdir(tmp_path)
    Path("a").write_text("c\n")  # a file with the name of a sample
    Path("ids").write_text("# to forget\na\n")
    assert run_command(["forget", "nobody", *where]) == 2
    assert "was made with 1 id of those given: nobody" in capsys.readouterr().err
    assert run_command(["forget", "--ids", "ids", "--dry-run", *where]) == 0
    assert "3 to remove" in capsys.readouterr().out
    assert run_command(["forget", "a", "--json", *where]) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["removed"]) == 3
    assert "backups" in told["unreachable"][-1]
    assert store.has(stranger)


def test_samples_are_named_as_in_the_request_by_file_or_stem(toy, capsys):
    stage, store, _ = toy
    reader, stranger = stage(ids=["cat/1.png", "dog/2.png"]), stage(seed=2, ids=["dog/2.png", "cow/2.png"])
    held_out = stage(seed=3, ids=["held_out/cat/1.png"])
    for each in (reader, stranger, held_out):
        store.compute(each)
    where = ["--store", str(store.root)]
    assert run_command(["forget", "2", *where]) == 2
    assert "error: '2' can mean 'cow/2.png' or 'dog/2.png'; give the whole id" in capsys.readouterr().err
    for name in ("1", "1.png", "cat/1", "cat/1.png"):
        assert len(forget(store.root, [name], dry_run=True).removed) == 1
    assert run_command(["forget", "1", *where]) == 0
    assert [store.has(each) for each in (reader, stranger, held_out)] == [False, True, True]


def test_of_what_may_be_somebody_elses_the_person_is_told_no_more():
    answer = Forgotten(["half-written 1"], [], ["backups"], ["nobody"])
    assert answer.statement(date(2026, 11, 2), cleaned=True)[0] == (
        "On 2026-11-02 we deleted 1 stored model or measurement that may have been made with your data."
    )


def test_one_unknown_id_among_others_leaves_everything_as_it_is(chain, capsys):
    store, reader, *_ = chain
    before = sorted(store.root.rglob("*"))
    for more in ([], ["--runs"], ["--dry-run"]):
        assert run_command(["forget", "b", "nobody", *more, "--store", str(store.root)]) == 2
        said = capsys.readouterr()
        assert "was made with 1 id of those given: nobody; nothing was removed" in said.err
        assert said.out == ""
    assert store.has(reader)
    assert {path for path in store.root.rglob("*") if path.parent.name != "locks"} <= set(before)
    assert not (store.root / "maintenance.json").exists()


def test_without_permission_there_is_one_line(chain, capsys, monkeypatch):
    (store, reader, *_), rename = chain, Path.rename

    def refused(path, target):
        if path.parent.name == "train":
            raise PermissionError(13, "Permission denied")
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refused)
        assert run_command(["forget", "b", "--store", str(store.root)]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1
    assert "cannot write to the store" in errors[0]
    forget(store.root, [])  # goes on with what was begun
    assert not store.has(reader)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A store with a run of `tiny` that forgot by class and one that forgot by ids, and a forgotten id of both."""
    folder = tmp_path_factory.mktemp("tiny")
    ids = Study.create("tiny").splits().forget.ids[:3]
    command = ["run", "tiny", "--seeds", "1", "--methods", "gd", "--workers", "1", "--store", str(folder / "store")]
    assert run_command([*command, "--out", str(folder / "class")]) == 0
    named = ",".join(f"id={name}" for name in ids)
    assert run_command([*command, "--request", named, "--out", str(folder / "ids")]) == 0
    return folder, ids[0]


@pytest.fixture
def copied(tiny, tmp_path):
    """A copy of that store which knows of copies of its runs."""
    folder, sample_id = tiny
    for name in ("store", "class", "ids"):
        shutil.copytree(folder / name, tmp_path / name)
    for note in (tmp_path / "store" / "runs").iterdir():
        note.write_text(note.read_text().replace(str(folder), str(tmp_path)))
    return tmp_path, sample_id


def test_runs_that_hold_a_sample_are_named_and_cleaned_on_request(copied, capsys):
    folder, sample_id = copied
    (folder / "class" / "mine.txt").write_text("not the run's")
    where = ["--store", str(folder / "store")]
    assert len(known_runs(folder / "store")) == 2
    assert has_bytes(folder, sample_id.encode())
    assert run_command(["forget", sample_id, *where]) == 0
    said = capsys.readouterr().out
    assert f"holds such samples (--runs cleans it): {folder / 'class'}" in said
    assert f"holds such samples (--runs cleans it): {folder / 'ids'}" in said
    assert has_bytes(folder / "store", sample_id.encode()) == []
    assert run_command(["forget", sample_id, "--runs", *where]) == 0  # by now only the runs know of it
    assert f"cleaned the run: {folder / 'class'}" in capsys.readouterr().out
    assert [path.name for path in (folder / "class").iterdir() if path.name != ".lock"] == ["mine.txt"]
    assert not (folder / "ids").exists()
    assert has_bytes(folder, sample_id.encode()) == []
    assert known_runs(folder / "store") == []


def test_runs_of_models_made_elsewhere_and_packs_are_found_too(copied, capsys, monkeypatch):
    folder, sample_id = copied
    monkeypatch.chdir(folder)
    (folder / "runs").mkdir()
    (folder / "class").rename(folder / "runs" / "request")  # as a request's audit: no note of the store leads there
    shutil.copytree(folder / "runs" / "request", folder / "runs" / "damaged")
    (folder / "runs" / "damaged" / "results.json").write_text("{")
    (folder / "evidence.zip").write_bytes(b"a pack")
    note_pack(folder / "runs" / "request", Path("evidence.zip"))
    note_pack(folder / "runs" / "request", Path("moved.zip"))
    assert run_command(["forget", sample_id, "--store", "store", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert f"holds such samples (--runs cleans it): {folder / 'runs' / 'request'}" in said
    assert f"out of reach: {folder / 'evidence.zip'}, the evidence pack of {folder / 'runs' / 'request'}" in said
    assert "moved.zip" not in said
    assert run_command(["forget", sample_id, "--store", "store", "--runs"]) == 0
    assert f"out of reach: {folder / 'evidence.zip'}" in capsys.readouterr().out
    assert has_bytes(folder, sample_id.encode()) == []
    assert [*(folder / "runs").iterdir()] == []


def test_a_run_of_other_samples_stays_known_when_what_a_killed_command_left_there_goes(copied):
    folder, _ = copied
    (folder / "store" / "train" / ".writing-11-x").mkdir()
    scratch = folder / "store" / "scratch" / "11"
    scratch.mkdir(parents=True)
    note_ids(scratch, ["b"])
    half = folder / "class" / f"{ASIDE}killed"
    half.mkdir()
    (half / "results.json").write_text("{")
    before = known_runs(folder / "store")
    answer = forget(folder / "store", ["b"], runs=True, place=folder)
    assert set(answer.removed) == {"half-written 11"}
    assert answer.runs == [str(folder / "class")]
    assert not half.exists()
    assert (folder / "class" / "results.json").is_file()
    assert known_runs(folder / "store") == before


def test_a_copied_store_leaves_the_runs_of_the_original_alone(copied, tmp_path_factory, capsys, monkeypatch):
    folder, sample_id = copied
    backup = tmp_path_factory.mktemp("backup")
    (folder / "runs").mkdir()
    for name in ("class", "ids"):
        (folder / name).rename(folder / "runs" / name)
        note = next(path for path in (folder / "store" / "runs").iterdir() if f"/{name}" in path.read_text())
        note.write_text(note.read_text().replace(f"{folder}/{name}", f"{folder}/runs/{name}"))
    shutil.copytree(folder, backup, dirs_exist_ok=True)
    before = hashes(folder)
    monkeypatch.chdir(backup)
    assert run_command(["forget", sample_id, "--runs", "--store", "store"]) == 0
    said = capsys.readouterr().out
    assert hashes(folder) == before
    assert f"out of reach: {folder / 'runs' / 'class'}, a run of the store {folder / 'store'}: forget it there" in said
    assert f"cleaned the run: {backup / 'runs' / 'class'}" in said
    assert has_bytes(backup, sample_id.encode()) == []


@pytest.mark.parametrize("with_record", [False, True])
def test_a_planted_note_removes_nothing(copied, with_record, tmp_path_factory, capsys):
    folder, sample_id = copied
    victim = tmp_path_factory.mktemp("victim")
    for name in ("models/1/best.safetensors", "figures/a.svg", "request-2024/letter.txt", "index.html", "report.html"):
        (victim / name).parent.mkdir(parents=True, exist_ok=True)
        (victim / name).write_text("mine")
    if with_record:
        record = {"schema": "residuum.results/4", "files": {"models/1/best.safetensors": "0" * 64}}
        (victim / "results.json").write_text(json.dumps(record))
    before = hashes(victim)
    note = next((folder / "store" / "runs").iterdir())
    planted = json.loads(note.read_text()) | {"folder": str(victim)}
    (note.parent / "planted.json").write_text(json.dumps(planted))
    (note.parent / "old.json").write_text(json.dumps({"folder": str(victim), "stages": planted["stages"]}))
    for text in ("3", "[]", '{"folder": 3}', '{"folder": "x", "stages": 3}'):
        (note.parent / "damaged.json").write_text(text)
        assert run_command(["forget", sample_id, "--runs", "--store", str(folder / "store"), "--dry-run"]) == 0
    assert run_command(["forget", sample_id, "--runs", "--store", str(folder / "store")]) == 0
    assert hashes(victim) == before
    assert f"out of reach: {victim}, " in capsys.readouterr().out


def test_runs_made_with_a_retained_sample_are_known_by_what_they_copied(copied, capsys, monkeypatch):
    folder, _ = copied
    monkeypatch.chdir(folder)
    sample_id = Study.create("tiny").splits().retain.ids[0]  # no counts of any run name it
    (folder / "runs").mkdir()
    shutil.copytree(folder / "class", folder / "runs" / "copy")
    assert run_command(["forget", sample_id, "--store", "store"]) == 0
    said = capsys.readouterr().out
    for name in ("class", "ids", "runs/copy"):
        assert f"holds such samples (--runs cleans it): {folder / name}" in said
    assert run_command(["forget", sample_id, "--runs", "--store", "store"]) == 0  # the store has forgotten it
    said = capsys.readouterr().out
    assert f"not known, but some of the above cannot tell its samples: {sample_id}" in said
    assert not (folder / "class").exists()
    assert not (folder / "ids").exists()


def test_reports_and_cards_that_were_written_elsewhere_are_named(copied, tmp_path_factory, capsys, monkeypatch):
    (folder, sample_id), elsewhere = copied, tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    (elsewhere / "samples.csv").write_text("mine")
    assert run_command(["report", str(folder / "class"), "--out", ".", "--no-samples"]) == 0
    assert Path("samples.csv").read_text() == "mine"
    assert run_command(["report", str(folder / "class"), "--out", "pages"]) == 0
    assert run_command(["report", str(folder / "class"), "--out", "pages", "--no-samples"]) == 0
    assert not Path("pages/samples.csv").exists()  # those were ours
    assert run_command(["report", str(folder / "class"), str(folder / "ids" / "request-1"), "--out", "both"]) == 0
    assert run_command(["report", str(folder / "ids"), "--out", "sequence"]) == 0
    assert run_command(["export", "card", str(folder / "class"), "gd", "--out", "card"]) == 0
    report(folder / "class", page="page.html")
    capsys.readouterr()
    assert run_command(["forget", sample_id, "--runs", "--store", str(folder / "store")]) == 0
    said = capsys.readouterr().out
    for name, what, run in (
        ("pages", "report", "class"),
        ("both", "report", "ids/request-1"),
        ("sequence", "report", "ids"),
        ("card", "model card", "class"),
        ("page.html", "report", "class"),
    ):
        assert f"out of reach: {elsewhere / name}, the {what} of {folder / run}" in said
    assert sample_id in Path("both/report.html").read_text()  # named, and left


def test_a_folder_for_notes_that_cannot_be_written_is_a_warning(copied, tmp_path, monkeypatch):
    (tmp_path / "state").write_text("a file")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with pytest.warns(ResiduumWarning, match="residuum forget will not name it; set XDG_STATE_HOME"):
        write_report(copied[0] / "class", out=tmp_path / "pages")


def test_a_request_means_the_samples_that_a_run_forgot_for_it(copied, capsys):
    folder, _ = copied
    splits = Study.create("tiny").splits()
    request = {"forget_class": "8", "forget_fraction": 0.5}
    assert maintenance.requested_ids([folder / "store"], request) == set(splits.forget.ids)
    with pytest.raises(InputError, match=r"no run of the store .* carried out this request"):
        maintenance.requested_ids([folder / "store"], {"forget_class": "7"})
    where = ["--store", str(folder / "store")]
    assert run_command(["forget", "--request", "class=8,fraction=0.5", "--runs", *where]) == 0
    for each in splits.forget.ids:
        assert has_bytes(folder, each.encode()) == []
    kept = {artifact.title for artifact in maintenance.artifacts(folder / "store")}
    assert {"train retrain (seed 1)", "train control (seed 1)"} <= kept  # of the class: they never saw one of them


def test_from_any_folder_every_known_store_forgets_and_a_wrong_id_changes_none(toy, tmp_path, monkeypatch, capsys):
    stage, _, _ = toy
    stores = [Store(tmp_path / name) for name in ("one", "two")]
    for store, ids in zip(stores, (["a", "b"], ["b", "c"]), strict=True):
        store.compute(stage(ids=ids))
        note_written(store.root, OWN_STORE)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    def stages():
        return [len(maintenance.artifacts(store.root)) for store in stores]

    assert run_command(["forget", "b", "nobody"]) == 2
    assert f"nothing in the stores {stores[0].root}, {stores[1].root} was made with 1 id" in capsys.readouterr().err
    with stores[1].in_use():
        assert run_command(["forget", "b"]) == 2
    assert stages() == [1, 1]
    assert run_command(["forget", "a", "--dry-run"]) == 0
    assert "You may tell" not in capsys.readouterr().out
    assert run_command(["forget", "a", "c"]) == 0
    said = capsys.readouterr().out
    assert [f"({store.root})" in said for store in stores] == [True, True]
    assert stages() == [0, 0]
    assert list((tmp_path / "elsewhere").iterdir()) == []
    words = "You may tell the person:\n  On .* we deleted 2 stored models .*\n  This does not cover the data"
    assert re.search(words, said)


def test_a_run_that_its_store_made_without_the_samples_is_not_named(toy, tmp_path):
    stage, store, _ = toy
    reader, stranger = stage(ids=["a"]), stage(seed=2, ids=["z"])
    for each in (reader, stranger):
        store.compute(each)
    for name, source in (("clean", stranger), ("unknown", None)):
        (tmp_path / name).mkdir()
        note_written(tmp_path / name, OWN_RUN)
        with maintenance.noted(tmp_path / name, {store.folder(source)}) if source else nullcontext():
            pass
    named = forget(store.root, ["a"], dry_run=True).unreachable
    assert [str(tmp_path / name) in " ".join(named) for name in ("clean", "unknown")] == [False, True]


@pytest.mark.parametrize("cleaned", [False, True])
def test_the_person_is_told_what_is_kept_and_what_is_looked_for_by_hand(cleaned):
    answer = Forgotten(["train original"], ["runs/a", "runs/b"], ["evidence.zip", "backups"])
    assert answer.statement(date(2026, 11, 2), cleaned=cleaned)[1:3] == [
        f"We {'deleted' if cleaned else 'keep'} 2 reports with results about your data.",
        "We look by hand at 1 other place where something made with your data may be.",
    ]


def killed(arguments, moment):
    """Run a command that is killed when it is about to rename or remove something for the `moment`-th time."""
    process = FORK.Process(target=dying, args=(arguments, moment))
    process.start()
    process.join()
    return process.exitcode == -signal.SIGKILL


def dying(arguments, moment):
    left = iter(range(moment))

    def hook(event, details):
        if event in ("os.rename", "os.remove", "os.rmdir") and next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    os._exit(run_command(arguments))


@pytest.mark.parametrize("further", [2, pytest.param(17, marks=pytest.mark.long)])
def test_kills_of_forgetting_leave_nothing(further, tiny, tmp_path):
    folder, sample_id = tiny
    store, chance, kept = tmp_path / "store", random.Random(3), None
    arguments = ["forget", sample_id, "--store", str(store)]
    for moment in (0, 1, 2, *(chance.randrange(3, 100) for _ in range(further))):
        shutil.copytree(folder / "store", store)
        (store / "scratch" / "k").mkdir(parents=True)
        (store / "scratch" / "k" / "training.pt").write_bytes(sample_id.encode())
        (store / "train" / ".writing-k-1").mkdir()
        (store / "train" / ".writing-k-1" / "ids.txt").write_text(sample_id)
        assert killed(arguments, moment)
        run_command(arguments)
        assert has_bytes(store, sample_id.encode()) == []
        left = {artifact.key for artifact in maintenance.artifacts(store)}
        assert kept in (None, left)
        assert maintenance.verify(store) == {}
        assert maintenance.leftovers(store) == []
        kept = left
        shutil.rmtree(store)
    assert kept
