"""Evidence packs: sound ones agree, every alteration is named, and nothing in them names a sample or a person."""

from __future__ import annotations

import getpass
import hashlib
import hmac
import io
import json
import platform
import re
import shlex
import shutil
import zipfile
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from residuum import Run
from residuum.auditing import Counts
from residuum.auditing.measures import OWN_MEASURES
from residuum.cli import run_command
from residuum.core.errors import InputError
from residuum.core.samples import Samples, Splits
from residuum.pack import pack, verify
from residuum.pack.hashing import Pseudonyms, canonical, ids_root, key_at, listed, read_key, root_of, seal_of
from residuum.pack.manifest import LEFT_OUT, NON_CLAIMS, data_fingerprint, training_facts
from residuum.pack.reading import splits_of
from residuum.pack.verifying import NOT_CHECKED
from residuum.record import Verdict, sealed
from residuum.record.folder import noted_packs

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A small run, its pack and its key, in one folder."""
    folder = tmp_path_factory.mktemp("made")
    options = ["--methods", "gd", "--seeds", "1", "--draws", "10", "--workers", "1", "--no-gallery"]
    arguments = ["--out", f"{folder}/run", "--store", f"{folder}/store"]
    more = ["--set", "relearn.epochs=1", "--set", "data.test_size=200"]  # with held-out samples
    assert run_command(["run", "tiny", *options, *arguments, *more]) == 0
    assert run_command(["pack", f"{folder}/run", "--output", f"{folder}/evidence.zip", "--with-data"]) == 0
    return folder


def contents(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewritten(target: Path, members: dict[str, bytes], *, reseal: bool) -> Path:
    """Write a pack with these members; a careful forger also mends hashes and root."""
    if reseal:
        manifest = json.loads(members["manifest.json"])
        manifest["files"] = listed({k: v for k, v in members.items() if k != "manifest.json"})
        manifest["root"] = root_of(manifest["files"])
        manifest["seal"] = seal_of(manifest)
        members = members | {"manifest.json": canonical(manifest)}
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return target


def counts_file(members: dict[str, bytes], label: str) -> str:
    return json.loads(members["results.json"])["methods"][label]["per_seed"]["1"]["audits"]["gaussian"]["counts"]


def tables_of(content: bytes) -> dict[str, np.ndarray]:
    return {name: np.array(values) for name, values in json.loads(content).items()}


def as_counts(tables: dict[str, np.ndarray]) -> bytes:
    return canonical({name: values.tolist() for name, values in tables.items()})


def with_count(content: bytes) -> bytes:
    """One more draw of one sample on which model and reference were right, within all rules of counts."""
    tables = tables_of(content)
    row = int(np.flatnonzero(tables["joint"][:, 2, 0] > 0)[0])
    tables["joint"][row, 2, 0] -= 1
    tables["joint"][row, 2, 2] += 1
    alike = tables["joint"][..., [0, 3, 4, 7]].sum(-1)
    tables["same_prediction"] = np.minimum(tables["same_prediction"], alike)
    return as_counts(tables)


def with_json(members: dict[str, bytes], name: str, change) -> dict[str, bytes]:
    value = json.loads(members[name])
    change(value)
    return members | {name: canonical(value) if name == "manifest.json" else canonical(sealed(value), sort_keys=False)}


ODD = {
    "models": ["a", {"gd/1": 3}],
    "files": [["manifest.json"], None],
    "request": ["class"],
    "data": [float("nan"), "\ud800"],
    "tool": [None],
    "name": [float("inf")],
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in ODD.items() for value in values])
def test_a_manifest_of_another_shape_is_one_line(field, value, made, tmp_path):
    members = contents(made / "evidence.zip")
    manifest = json.loads(members["manifest.json"]) | {field: value}
    odd = rewritten(tmp_path / "odd.zip", members | {"manifest.json": json.dumps(manifest).encode()}, reseal=False)
    with pytest.raises(InputError, match=r"^manifest\.json: expected"):
        verify(odd)


def test_a_record_of_another_shape_is_named(made, tmp_path, capsys):
    members = with_json(contents(made / "evidence.zip"), "results.json", lambda record: record.update(methods=3))
    odd = rewritten(tmp_path / "odd.zip", members, reseal=False)
    assert run_command(["verify", str(odd), "--with-data", "--key", str(made / "evidence.key")]) == 1
    assert "results.json: methods: " in capsys.readouterr().out


def test_a_full_disk_leaves_no_empty_key(tmp_path, monkeypatch):
    def full(size):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("residuum.pack.hashing.secrets.token_hex", full)
        with pytest.raises(InputError, match=r"cannot write the key .*No space left"):
            key_at(tmp_path / "evidence.key")
    assert list(tmp_path.iterdir()) == []
    assert len(key_at(tmp_path / "evidence.key")) == 32


def test_a_record_that_contradicts_itself_is_a_difference(made, tmp_path):
    def forget_settings(record):
        del record["methods"]["gd"]["per_seed"]["1"]["audits"]["gaussian"]["settings"]["confidence"]

    members = with_json(contents(made / "evidence.zip"), "results.json", forget_settings)
    found = verify(rewritten(tmp_path / "odd.zip", members, reseal=True)).differences
    assert found == ["results.json: its numbers cannot be derived (KeyError: 'confidence')"]


def test_a_sound_pack_agrees(made):
    assert made / "evidence.zip" in noted_packs(made / "run")
    found = verify(made / "evidence.zip")
    assert found.sound
    assert found.differences == []
    assert found.not_checked == [
        "the weights (give --models)",
        "ids, accuracies and counts (give --models, the data and --key)",
        *NOT_CHECKED,
    ]


def test_with_models_data_and_key_everything_is_checked(made, capsys):
    more = ["--models", f"{made}/run", "--with-data", "--key", f"{made}/evidence.key", "--number", "7", "--cells", "6"]
    assert run_command(["verify", f"{made}/evidence.zip", *more]) == 0
    printed = capsys.readouterr()
    assert "6 cells of the counts, picked by 7" in printed.out
    open_points = [line for line in printed.out.splitlines() if line.startswith("not checked: ")]
    record = Run.load(made / "run").record
    tables = [audit for *_, audit in record.each_audit()]
    cells = sum((audit.samples + audit.heldout.samples) * len(audit.taus) for audit in tables)
    other_cells = f"the other cells of the counts: the pack has {cells}"
    assert open_points == [f"not checked: {text}" for text in (other_cells, *NOT_CHECKED)]
    assert "everything that was checked agrees" in printed.err


def number(record):
    record["methods"]["gd"]["per_seed"]["1"]["audits"]["gaussian"]["residual_knowledge"]["pooled"][1] += 0.001


def word(record):
    record["judgments"]["gd"]["verdict"] = "NOT_DETECTED"


def gate(record):
    record["gates"][0]["passed"] = not record["gates"][0]["passed"]


def size(manifest):
    manifest["request"]["size"] += 1


def noise(record):
    for row in record["methods"].values():
        for result in row["per_seed"].values():
            result["audits"]["gaussian"]["settings"]["noise_check"] = "0" * 16


@pytest.mark.parametrize(
    ("name", "change", "named"),
    [
        ("results.json", number, "methods.gd.per_seed.1.audits.gaussian.residual_knowledge.pooled.1"),
        ("results.json", word, "judgments.gd.verdict"),
        ("results.json", noise, "the check value of the noise is not that of its seed"),
        ("results.json", gate, "gates.0.passed"),
        ("manifest.json", size, "manifest.json.request.size"),
    ],
)
def test_one_altered_statement_is_named_even_if_all_hashes_are_mended(made, tmp_path, name, change, named):
    forged = rewritten(tmp_path / "forged.zip", with_json(contents(made / "evidence.zip"), name, change), reseal=True)
    found = verify(forged).differences
    assert any(text.startswith(named) or named in text for text in found), found


@pytest.mark.parametrize("reseal", [False, True])
def test_one_altered_count_is_named(made, tmp_path, capsys, reseal):
    members = contents(made / "evidence.zip")
    path = counts_file(members, "gd")
    members[path] = with_count(members[path])
    forged = rewritten(tmp_path / "forged.zip", members, reseal=reseal)
    assert run_command(["verify", str(forged)]) == 1
    printed = capsys.readouterr()
    assert (f"{path}: its SHA-256 is not the one in the manifest" in printed.out) is not reseal
    assert "methods.gd.per_seed.1.audits.gaussian.residual_knowledge.pooled.2: the pack says" in printed.out
    assert "differences" in printed.err


def test_impossible_counts_are_named(made, tmp_path):
    members = contents(made / "evidence.zip")
    path = counts_file(members, "gd")
    tables = tables_of(members[path])
    tables["joint"][0, 1, 0] = -1
    forged = rewritten(tmp_path / "forged.zip", members | {path: as_counts(tables)}, reseal=True)
    (found,) = verify(forged).differences
    assert "impossible counts" in found
    assert str(tmp_path) not in found


@pytest.mark.parametrize("name", ["results.json", "report.html", "counts/0000.json", "manifest.json"])
def test_one_changed_byte_is_found(made, tmp_path, name):
    members = contents(made / "evidence.zip")
    place = len(members[name]) // 2 if name != "manifest.json" else members[name].index(b'"root":"') + 12
    changed = bytearray(members[name])
    changed[place] ^= 1
    forged = rewritten(tmp_path / "forged.zip", members | {name: bytes(changed)}, reseal=False)
    try:
        assert verify(forged).differences
    except InputError as error:
        assert name in str(error)  # noqa: PT017 (either is an answer)


def test_a_page_of_another_record_is_found(made, tmp_path):
    members = contents(made / "evidence.zip")
    members["report.html"] = members["report.html"].replace(b"gd", b"ga", 1)
    assert (
        "report.html: not the page of results.json"
        in verify(rewritten(tmp_path / "forged.zip", members, reseal=True)).differences
    )


def test_one_altered_or_missing_weights_file_is_named(made, tmp_path, capsys):
    models = shutil.copytree(made / "run" / "models", tmp_path / "models")
    weights = load_file(models / "1" / "gd.safetensors")
    next(iter(weights.values())).flat[0] += 1e-3
    save_file(weights, models / "1" / "gd.safetensors")
    (models / "1" / "control.safetensors").unlink()
    assert run_command(["verify", f"{made}/evidence.zip", "--models", str(models)]) == 1
    printed = capsys.readouterr().out
    assert "gd/1: the weights are not those that were audited" in printed
    assert "control/1: no weights of its hash below" in printed


def never_right(counts):
    """Say that the model was never right, and leave the answers of the others as they were."""
    joint = np.zeros_like(counts.joint)
    for pattern in range(8):
        joint[..., pattern & 5] += counts.joint[..., pattern]
    return replace(counts, joint=joint, same_prediction=np.zeros_like(counts.draws))


def invented(made, tmp_path, part):
    """Pack a run whose counts of one row were invented, together with everything that rests on them."""
    run = shutil.copytree(made / "run", tmp_path / "run")
    record = Run.load(run).record
    audit = record.methods["gd"].per_seed["1"].audits["gaussian"]
    path = run / (audit.counts if part == "forgotten" else audit.heldout.counts)
    never_right(Counts.load(path)).save(path)
    (tmp_path / "lie.key").write_text("ab" * 32)  # key and name decide the order of samples, and so which are picked
    return record, pack(Run(run, "tiny", record), tmp_path / "lie.zip", name="lie")


@pytest.mark.parametrize("part", ["forgotten", "held-out"])
def test_counts_that_were_invented_together_with_all_numbers_are_found_by_counting_again(made, tmp_path, part):
    record, lie = invented(made, tmp_path, part)
    assert verify(lie.file).sound
    found = verify(lie.file, models=made / "run", splits=splits_of(record), key=lie.key, cells=40, number=3)
    wrong = [text for text in found.differences if "when counted again" in text]
    assert wrong
    assert all(("held-out sample" in text) is (part == "held-out") for text in wrong)


def test_invented_accuracies_are_found_with_models_and_data(made, tmp_path):
    run = shutil.copytree(made / "run", tmp_path / "run")
    content = json.loads((run / "results.json").read_text())
    content["methods"]["gd"]["per_seed"]["1"]["metrics"]["test_accuracy"] = 100.0
    (run / "results.json").write_text(json.dumps(sealed(content)))
    lie = pack(run, tmp_path / "lie.zip")
    assert verify(lie.file).sound
    splits = splits_of(Run.load(run).record)
    found = verify(lie.file, models=run, splits=splits, key=lie.key, cells=1).differences
    assert any(text.startswith("gd, seed 1.test_accuracy: the pack says 100.0, its weights give") for text in found)


def test_another_key_or_other_data_do_not_fit(made, tmp_path):
    splits = splits_of(Run.load(made / "run").record)
    (tmp_path / "other.key").write_text("ab" * 32)
    found = verify(made / "evidence.zip", splits=splits, key=tmp_path / "other.key").differences
    assert any("of the pack or the data only" in text for text in found)


def test_nothing_in_a_pack_names_a_sample_a_picture_a_path_or_a_person(made):
    splits = splits_of(Run.load(made / "run").record)
    host = [platform.node()] if len(platform.node()) > 3 else []  # two letters are in any base64 text by chance
    texts = [*splits.forget.ids, *splits.heldout.ids, str(made), str(Path.home()), *host]
    texts += [(made / "evidence.key").read_text().strip(), getpass.getuser() + "@"]
    pixels, _ = splits.forget.batch(__import__("torch").arange(len(splits.forget)))
    pictures = [
        form
        for picture in pixels.numpy()
        for form in (
            picture.tobytes(),
            picture.astype(np.float64).tobytes(),
            (picture * 255).astype(np.uint8).tobytes(),
        )
    ]
    searched = [form for text in texts for form in (text.encode(), text.encode("utf-32-le"), text.encode("utf-16-le"))]
    whole = contents(made / "evidence.zip")
    found = [(name, form) for name, content in whole.items() for form in (*searched, *pictures) if form in content]
    assert found == []
    assert b"data:image" not in whole["report.html"]


def test_two_packs_of_one_run_share_no_pseudonym_and_the_numbers_agree(made, tmp_path):
    other = pack(made / "run", tmp_path / "other.zip", key=made / "evidence.key")
    one, two = contents(made / "evidence.zip"), contents(other.file)

    def ids(members):
        return {i for k, v in members.items() if k.startswith("counts/") for i in json.loads(v)["ids"]}

    assert len(ids(one)) == len(ids(two)) > 0
    assert not ids(one) & ids(two)
    first, second = (json.loads(members["manifest.json"]) for members in (one, two))
    assert first["request"]["ids_hmac_root"] != second["request"]["ids_hmac_root"]
    first, second = (json.loads(members["results.json"]) for members in (one, two))
    verdicts = [{label: found["verdict"] for label, found in of["judgments"].items()} for of in (first, second)]
    assert verdicts[0] == verdicts[1]
    floors = [np.array(found["noise_floor"]["gaussian"]["high"]) for found in (first, second)]
    assert np.allclose(*floors, rtol=1e-9)  # the order of the samples differs
    own = Run.load(made / "run").record.methods["gd"].per_seed["1"].audits["gaussian"]
    packed = json.loads(two["results.json"])["methods"]["gd"]["per_seed"]["1"]["audits"]["gaussian"]
    assert np.allclose(packed["residual_knowledge"]["pooled"], own.residual_knowledge.pooled, rtol=1e-12)
    assert np.allclose(packed["residual_knowledge"]["high"], own.residual_knowledge.high, rtol=1e-9)


def test_the_same_name_and_key_give_the_same_bytes(made, tmp_path):
    files = [pack(made / "run", tmp_path / f"{k}.zip", key=made / "evidence.key", name="same").file for k in "ab"]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_pseudonyms_and_root_by_hand(made):
    key, manifest = read_key(made / "evidence.key"), json.loads(contents(made / "evidence.zip")["manifest.json"])
    own = hmac.new(key, manifest["name"].encode(), hashlib.sha256).digest()
    splits = splits_of(Run.load(made / "run").record)
    names = sorted(hmac.new(own, i.encode(), hashlib.sha256).hexdigest()[:32] for i in splits.forget.ids)
    root = hashlib.sha256(b"".join(name.encode() + b"\n" for name in names)).hexdigest()
    assert manifest["request"]["ids_hmac_root"] == root == ids_root(names)
    assert manifest["request"]["size"] == len(names) == 10
    assert Pseudonyms(key, manifest["name"])(splits.forget.ids[0]) in names


def test_names_paths_and_ids_of_own_data_are_left_out(made, tmp_path):
    run = shutil.copytree(made / "run", tmp_path / "run")
    content = json.loads((run / "results.json").read_text())
    ids = Run.load(run).record.methods["gd"].per_seed["1"].audits["gaussian"].first_radius
    content["scenario"] |= {"name": "ann-faces", "public_data": False, "class_names": [HOSTILE, "b", "c"]}
    content["scenario"]["settings"]["data"]["name"] = "/home/ann/faces.npz"
    content["scenario"]["settings"]["forget"] = {"forget_ids": list(ids)}
    content["scenario"]["init_from"] = {"weights": {"file": "ann.safetensors", "sha256": "ab"}, "manifest": None}
    content["warnings"] = ["/home/ann/store/x: broken", "a plain warning"]
    (run / "results.json").write_text(json.dumps(sealed(content)))
    members = contents(pack(run, tmp_path / "own.zip").file)
    assert verify(tmp_path / "own.zip").sound
    for name in ("results.json", "manifest.json", "report.html"):
        assert b"ann" not in members[name].replace(b"annot", b"").replace(b"canno", b"").replace(b"Planned", b""), name
    assert b"a plain warning" in members["results.json"]
    assert HOSTILE.encode() not in members["report.html"]
    with pytest.raises(InputError, match="does not name its data"):
        splits_of(Run.load(run).record)


def test_a_label_that_names_a_sample_is_refused_and_nothing_is_written(made, tmp_path):
    run = shutil.copytree(made / "run", tmp_path / "run")
    content = json.loads((run / "results.json").read_text())
    first = next(iter(content["methods"]["gd"]["per_seed"]["1"]["audits"]["gaussian"]["first_radius"]))
    content["methods"]["gd"]["settings"]["comment"] = f"for {first}"
    (run / "results.json").write_text(json.dumps(sealed(content)))
    with pytest.raises(InputError, match="the pack would hold the id"):
        pack(run, tmp_path / "leak.zip")
    assert not (tmp_path / "leak.zip").exists()


@pytest.mark.parametrize(
    "name", ["../evil.txt", "/tmp/evil.txt", "counts/../../evil.json", "counts/0000.json/x", "counts/0000.npz", "a.exe"]
)
def test_strange_names_in_a_zip_are_refused_before_anything_is_read(made, tmp_path, capsys, name):
    (tmp_path / "in").mkdir()
    forged = rewritten(tmp_path / "in" / "x.zip", contents(made / "evidence.zip") | {name: b"evil"}, reseal=False)
    assert run_command(["verify", str(forged)]) == 2
    assert "expected the files of a pack only" in capsys.readouterr().err
    assert [path.name for path in tmp_path.rglob("*")] == ["in", "x.zip"]


def test_what_is_no_pack_gets_one_line(tmp_path, made, capsys):
    (tmp_path / "text.zip").write_text("no zip")
    rewritten(tmp_path / "empty.zip", {"results.json": b"{}"}, reseal=False)
    other = {"manifest.json": b'{"schema":"x"}', "results.json": b"{}", "report.html": b""}
    rewritten(tmp_path / "other.zip", other, reseal=False)
    for name, words in {
        "missing.zip": "cannot read",
        "text.zip": "expected a pack",
        "empty.zip": "with manifest.json",
        "other.zip": "expected schema",
    }.items():
        assert run_command(["verify", str(tmp_path / name)]) == 2
        assert words in capsys.readouterr().err
    assert run_command(["pack", f"{made}/run", "--output", str(tmp_path / "pack.tar")]) == 2
    assert "ends in .zip" in capsys.readouterr().err
    (tmp_path / "bad.key").write_text("xyz")
    assert (
        run_command(["pack", f"{made}/run", "--output", str(tmp_path / "p.zip"), "--key", str(tmp_path / "bad.key")])
        == 2
    )
    assert "expected a key" in capsys.readouterr().err


def test_the_key_is_made_once_for_its_owner_alone(made, tmp_path):
    first = pack(made / "run", tmp_path / "a.zip", key=tmp_path / "my.key")
    text = first.key.read_text()
    assert first.key.stat().st_mode & 0o077 == 0
    pack(made / "run", tmp_path / "b.zip", key=tmp_path / "my.key")
    assert (tmp_path / "my.key").read_text() == text


def test_a_run_packs_itself(made, tmp_path):
    packed = pack(made / "run", tmp_path / "mine.zip", received="2026-11-01", delete_by="2027-11-01")
    manifest = json.loads(contents(packed.file)["manifest.json"])
    assert (manifest["request"]["received"], manifest["request"]["delete_pack_by"]) == ("2026-11-01", "2027-11-01")
    assert packed.seal == manifest["seal"]
    models = manifest["models"]
    assert set(models) == {f"{label}/1" for label in ("original", "retrain", "control", "gd")}
    file = made / "run" / "models" / "1" / "original.safetensors"
    assert models["original/1"]["weights_sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert models["gd/1"]["architecture"]["name"] == "cnn"


def test_the_guides_commands(made, tmp_path, monkeypatch, capsys):
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "evidence.md").read_text(encoding="utf-8")
    lines = guide.replace("\\\n", "").splitlines()
    commands = [line for line in lines if line.startswith(("residuum pack", "residuum verify"))]
    assert len(commands) == 3
    shutil.copytree(made / "run", tmp_path / "runs" / "tiny")
    monkeypatch.chdir(tmp_path)
    for line in commands:
        assert run_command(shlex.split(line)[1:]) == 0, line
    assert "picked by 20261116" in capsys.readouterr().out
    for text in (*LEFT_OUT, *NON_CLAIMS):
        assert text.partition(":")[0].lower() in " ".join(guide.lower().split()), text


OWN = """
def best(counts, heldout):
    "Best known sample: the largest share right on any forgotten sample."
    return (counts.method_right / counts.draws).max(axis=0)
"""


@pytest.fixture(scope="module")
def probed(made) -> Path:
    """The same run with probes and a measure of one's own, and its pack."""
    (made / "own.py").write_text(OWN)
    options = ["--methods", "gd", "--seeds", "1", "--draws", "10", "--workers", "1", "--no-gallery"]
    more = ["--measures", f"depth,worst_case:restarts=1,{made}/own.py:best", "--set", "relearn.epochs=1"]
    assert run_command(["run", "tiny", *options, *more, "--out", f"{made}/more", "--store", f"{made}/store"]) == 0
    assert run_command(["pack", f"{made}/more", "--output", f"{made}/more.zip", "--with-data"]) == 0
    return made


def test_other_probes_are_derived_again(probed):
    record, splits = Run.load(probed / "more").record, splits_of(Run.load(probed / "more").record)
    packed = json.loads(contents(probed / "more.zip")["results.json"])["methods"]["gd"]
    assert list(packed["probes"]) == ["depth", "worst_case:restarts=1"]
    assert packed["probes"]["depth"]["value"] == record.methods["gd"].probes["depth"].value
    given = {"models": probed / "more", "splits": splits, "key": probed / "more.key", "cells": 2, "number": 5}
    found = verify(probed / "more.zip", **given)
    assert found.differences == []
    assert {"depth, of one seed picked by 5", "worst_case:restarts=1, of one seed picked by 5"} <= {*found.checked}


@pytest.mark.parametrize("name", ["depth", "worst_case:restarts=1"])
@pytest.mark.parametrize("place", ["seed", "row"])
def test_an_altered_probe_is_named_without_models(probed, tmp_path, name, place):
    members = contents(probed / "more.zip")
    record = json.loads(members["results.json"])
    row = record["methods"]["gd"]
    (row["per_seed"]["1"] if place == "seed" else row)["probes"][name]["value"] += 0.25
    members["results.json"] = canonical(sealed(record), sort_keys=False)
    found = verify(rewritten(tmp_path / "w.zip", members, reseal=True))
    where = f"methods.gd.probes.{name}.value"  # which follows from the seeds
    assert any(text.startswith(where) for text in found.differences), found.differences


def test_an_invented_search_is_found_with_models_and_data(probed, tmp_path):
    run = shutil.copytree(probed / "more", tmp_path / "run")
    record = json.loads((run / "results.json").read_text())
    record["methods"]["gd"]["per_seed"]["1"]["probes"]["depth"]["value"] -= 0.2
    (run / "results.json").write_text(json.dumps(sealed(record)))
    packed = pack(run, tmp_path / "w.zip")
    assert verify(packed.file).sound
    found = verify(packed.file, models=run, splits=splits_of(Run.load(run).record), key=packed.key, cells=1)
    assert len(found.differences) == 1
    assert found.differences[0].startswith("gd, seed 1: depth is ")


def test_lists_of_samples_that_a_probe_has_are_left_out(made, tmp_path):
    run = shutil.copytree(made / "run", tmp_path / "run")
    content = json.loads((run / "results.json").read_text())
    seed = content["methods"]["gd"]["per_seed"]["1"]
    worst = list(seed["audits"]["gaussian"]["first_radius"])
    seed["probes"] = {"rmia": {"value": 0.5, "worst": worst, "by_id": {worst[0]: 1.0}}}
    content["methods"]["gd"]["probes"] = {"rmia": {"value": 0.5, "meaning": "a probe"}}
    (run / "results.json").write_text(json.dumps(sealed(content)))
    packed = pack(run, tmp_path / "w.zip")
    assert verify(packed.file).sound
    kept = json.loads(contents(packed.file)["results.json"])["methods"]["gd"]
    assert kept["per_seed"]["1"]["probes"] == {"rmia": {"value": 0.5}}
    assert kept["probes"]["rmia"]["value"] == 0.5


def test_a_measure_of_ones_own_is_recomputed_from_its_file(probed, tmp_path, capsys):
    def residuum(*words):
        OWN_MEASURES.pop("best", None)  # as in a process that has not used the measure yet
        code = run_command(list(words))
        return code, *capsys.readouterr()

    file, function = str(probed / "more.zip"), f"{probed}/own.py:best"
    assert residuum("verify", file, "--measures", function)[0] == 0
    code, _, missing = residuum("verify", file)
    assert (code, len(missing.splitlines())) == (2, 1)
    assert "give its function with --measures FILE.py:best" in missing
    (tmp_path / "own.py").write_text(OWN.replace("max", "min"))
    code, other, _ = residuum("verify", file, "--measures", f"{tmp_path}/own.py:best")
    assert code == 1
    assert "measure best: its file is not the one that the run used" in other
    assert "methods.gd.per_seed.1.audits.gaussian.measures.best.value" in other
    again = ["pack", f"{probed}/more", "--output", f"{tmp_path}/again.zip", "--measures"]
    assert residuum(*again, function)[0] == 0
    assert residuum(*again, f"{tmp_path}/own.py:best")[0] == 2
    OWN_MEASURES.pop("best", None)
    OWN_MEASURES.add(function)


def test_the_data_are_known_again_by_their_fingerprint(made, tmp_path):
    splits = splits_of(Run.load(made / "run").record)
    key, manifest = read_key(made / "evidence.key"), json.loads(contents(made / "evidence.zip")["manifest.json"])
    stated = manifest["data"]["fingerprint_hmac"]
    assert stated == Pseudonyms(key, manifest["name"])(f"data {data_fingerprint(splits)}")
    labels = splits.test.y.clone()
    labels[0] = (labels[0] + 1) % 10
    other = replace(splits, test=replace(splits.test, y=labels))
    found = verify(made / "evidence.zip", splits=other, key=made / "evidence.key")
    assert any("fingerprint_hmac" in text for text in found.differences)


def test_a_pack_with_data_counts_copies_and_near_copies_as_a_slow_loop_does():
    import torch

    x = torch.rand(60, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    x[20:24], x[25:27] = (x[:4] + 0.01).clamp(0, 1), x[5:7]
    ids = tuple(map(str, range(60)))
    train, retain, forget, test = (
        Samples(x[rows], torch.zeros(len(x[rows]), dtype=torch.int64), ids[rows])
        for rows in (slice(0, 50), slice(10, 50), slice(0, 10), slice(50, 60))
    )
    splits = Splits(train, retain, forget, test, test, test, ("a",))

    def nearest(image, others):
        return min(float((image - other).pow(2).sum().sqrt()) for other in others)

    usual = [nearest(x[i], [x[j] for j in range(10, 50) if j != i]) for i in range(10, 50)]
    limit = 0.1 * float(torch.tensor(usual).median())
    slow = sum(nearest(image, retain.x) < limit for image in forget.x)
    found = training_facts(splits, Pseudonyms(b"k" * 32, "name"))["near_duplicates"]
    assert found == {"identical": 2, "near": slow, "limit": 0.1}
    assert slow == 6


def full_check(made, **more):
    given = {"models": made / "run", "splits": splits_of(Run.load(made / "run").record), "key": made / "evidence.key"}
    return verify(made / "evidence.zip", **given, **more)


def test_nobody_can_know_before_which_cells_are_counted_again(made, capsys):
    first, second = full_check(made, cells=1), full_check(made, cells=1)
    assert first.number != second.number
    assert any(f"picked by {first.number}" in text for text in first.checked)
    more = ["--models", f"{made}/run", "--with-data", "--key", f"{made}/evidence.key", "--cells", "1"]
    assert run_command(["verify", f"{made}/evidence.zip", *more, "--number", str(first.number)]) == 0
    assert f"picked by {first.number}" in capsys.readouterr().out


def test_the_reference_s_own_row_is_counted_again(made):
    from residuum.pack.reading import parsed_record
    from residuum.pack.spot_check import Cells, counted_tables

    record = parsed_record(contents(made / "evidence.zip")["results.json"])
    tables = counted_tables(Cells(record, Path(), {}, None, None))
    assert ("retrain", True) in {(label, path == audit.counts) for label, _, _, audit, path in tables}
    assert ("retrain", False) in {(label, path == audit.counts) for label, _, _, audit, path in tables}


def forged_page(made, tmp_path, **tool):
    members = contents(made / "evidence.zip") | {"report.html": b"<h1>Certified: everything was forgotten</h1>"}
    members = with_json(members, "manifest.json", lambda manifest: manifest["tool"].update(tool))
    return rewritten(tmp_path / "forged.zip", members, reseal=True)


def test_a_forged_page_is_never_sound_whatever_code_the_forger_names(made, tmp_path, capsys):
    forged = forged_page(made, tmp_path, code_sha256="0" * 64)
    assert not verify(forged).sound
    assert run_command(["verify", str(forged)]) == 1
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0].startswith("not checked: report.html: the pack says that other code made it")
    assert "the page was not checked" in printed.err
    assert run_command(["verify", str(forged), "--accept-page"]) == 0
    assert "not checked: report.html" in capsys.readouterr().out
    assert (
        "report.html: not the page of results.json" in verify(forged_page(made, tmp_path), accept_page=True).differences
    )


def test_a_page_that_other_code_made_alike_is_checked(made, tmp_path):
    members = with_json(
        contents(made / "evidence.zip"), "manifest.json", lambda manifest: manifest["tool"].update(code_sha256="0" * 64)
    )
    found = verify(rewritten(tmp_path / "other.zip", members, reseal=True))
    assert found.sound
    assert "the page" in found.checked


def certificate(place):
    def add(content):
        part = content
        for step in place:
            part = part[step]
        part["certificate"] = "granted under Art. 17"

    return add


AUDIT = ("methods", "gd", "per_seed", "1", "audits", "gaussian")


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("manifest.json", ()),
        ("manifest.json", ("tool",)),
        ("manifest.json", ("request",)),
        ("manifest.json", ("data",)),
        ("manifest.json", ("models", "gd/1")),
        ("results.json", ("gates", 0)),
        ("results.json", ()),
        ("results.json", ("scenario",)),
        ("results.json", ("scenario", "settings")),
        ("results.json", ("scenario", "settings", "audit")),
        ("results.json", ("versions",)),
        ("results.json", ("methods", "gd")),
        ("results.json", ("methods", "gd", "per_seed", "1", "metrics")),
        ("results.json", AUDIT),
        ("results.json", (*AUDIT, "settings")),
    ],
)
def test_a_key_that_residuum_does_not_write_is_a_difference(made, tmp_path, name, place):
    members = with_json(contents(made / "evidence.zip"), name, certificate(place))
    found = verify(rewritten(tmp_path / "more.zip", members, reseal=True)).differences
    assert any("certificate" in text for text in found), found


@pytest.mark.parametrize("field", ["non_claims", "threat_model", "left_out"])
def test_texts_that_every_pack_has_are_compared(made, tmp_path, field):
    members = with_json(
        contents(made / "evidence.zip"), "manifest.json", lambda manifest: manifest.update({field: ["a certificate"]})
    )
    found = verify(rewritten(tmp_path / "other.zip", members, reseal=True)).differences
    assert any(text.startswith(f"manifest.json.{field}") for text in found)


def test_spot_checks_that_a_difference_prevents_are_listed(made, tmp_path):
    members = with_json(contents(made / "evidence.zip"), "results.json", number)
    forged = rewritten(tmp_path / "forged.zip", members, reseal=True)
    splits = splits_of(Run.load(made / "run").record)
    found = verify(forged, models=made / "run", splits=splits, key=made / "evidence.key")
    assert "accuracies and counts from the models, because of the differences above" in found.not_checked
    assert found.number is None


def private(made, tmp_path, **request):
    """Return the run as one of own data, whose classes are people."""
    run = shutil.copytree(made / "run", tmp_path / "run")
    content = json.loads((run / "results.json").read_text())
    people = [f"Person Number{k}" for k in range(len(content["scenario"]["class_names"]))]
    content["scenario"] |= {"public_data": False, "class_names": people}
    content["scenario"]["settings"]["forget"] = request
    content["warnings"] = ["few held-out samples of Person Number3", "a plain warning"]
    (run / "results.json").write_text(json.dumps(sealed(content)))
    return run, people


def test_classes_of_own_data_have_no_names_in_a_pack(made, tmp_path):
    run, people = private(made, tmp_path, forget_class="Person Number8", forget_fraction=0.5)
    packed = pack(run, tmp_path / "own.zip")
    members = contents(packed.file)
    assert not [name for name in members for person in people if person.encode() in members[name]]
    record = json.loads(members["results.json"])
    assert record["scenario"]["class_names"] == [f"class {k}" for k in range(len(people))]
    assert record["scenario"]["settings"]["forget"]["forget_class"] in record["scenario"]["class_names"]
    assert record["warnings"] == ["a text that names a file or a sample is left out", "a plain warning"]
    assert verify(packed.file).sound
    allowed = contents(pack(run, tmp_path / "named.zip", names=True).file)
    assert json.loads(allowed["results.json"])["scenario"]["class_names"] == people
    assert run_command(["pack", str(run), "--output", str(tmp_path / "by-option.zip"), "--names"]) == 0
    assert people[0].encode() in contents(tmp_path / "by-option.zip")["results.json"]


def test_a_row_that_the_holder_named_gets_a_number_and_its_weights_are_still_known(made, tmp_path):
    run, _ = private(made, tmp_path, forget_fraction=0.5)
    content = json.loads((run / "results.json").read_text())
    content["methods"] = {
        {"gd": "without Person Number8"}.get(label, label): row for label, row in content["methods"].items()
    }
    content |= {"judgments": {}, "files": {}}
    (run / "results.json").write_text(json.dumps(sealed(content)))
    (run / "models" / "1" / "gd.safetensors").rename(run / "models" / "1" / "without Person Number8.safetensors")
    packed = pack(run, tmp_path / "own.zip")
    record = json.loads(contents(packed.file)["results.json"])
    assert list(record["methods"]) == ["original", "retrain", "control", "row 1"]
    found = verify(packed.file, models=run)
    assert found.sound, found.differences
    assert "hashes of the weights" in found.checked
    allowed = contents(pack(run, tmp_path / "named.zip", names=True).file)
    assert "without Person Number8" in json.loads(allowed["results.json"])["methods"]


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (("scenario", "settings", "model", "name"), "the name 'person number3'"),
        (("methods", "gd", "settings", "comment"), "the name 'person number3'"),
        (("methods", "gd", "per_seed", "1", "audits", "gaussian", "settings", "name of a layer"), "the name"),
    ],
)
@pytest.mark.parametrize("text", ["of person number3", "of &#112;erson number3", "of person%20number3"])
def test_every_text_of_every_member_is_searched_for_names(made, tmp_path, place, said, text):
    run, _ = private(made, tmp_path, forget_fraction=0.5)
    content = json.loads((run / "results.json").read_text())
    part = content
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = text
    (run / "results.json").write_text(json.dumps(sealed(content)))
    with pytest.raises(InputError, match=f"the pack would hold {said}.*allow names with --names"):
        pack(run, tmp_path / "own.zip")
    assert not (tmp_path / "own.zip").exists()
    pack(run, tmp_path / "named.zip", names=True)


def test_the_seal_can_be_deposited_before_anybody_sees_the_pack(made, tmp_path, capsys):
    key = f"{tmp_path}/my.key"
    words = ["pack", f"{made}/run", "--output", f"{tmp_path}/later.zip", "--key", key]
    assert run_command([*words, "--seal-only", "--json"]) == 0
    stated = json.loads(capsys.readouterr().out)
    assert stated["file"] is None
    assert [path.name for path in tmp_path.iterdir()] == ["my.key"]
    assert run_command([*words, "--name", stated["name"]]) == 0
    assert json.loads(contents(tmp_path / "later.zip")["manifest.json"])["seal"] == stated["seal"]
    capsys.readouterr()
    assert run_command([*words, "--seal-only"]) == 0
    assert stated["seal"] not in capsys.readouterr().out


def test_classes_of_public_data_keep_their_names(made):
    packed = json.loads(contents(made / "evidence.zip")["results.json"])
    assert packed["scenario"]["class_names"] == list(Run.load(made / "run").record.scenario.class_names)


def test_the_page_of_a_pack_says_how_many_ids_were_listed(made, tmp_path):
    ids = Run.load(made / "run").record.methods["gd"].per_seed["1"].audits["gaussian"].first_radius
    run, _ = private(made, tmp_path, forget_ids=list(ids))
    members = contents(pack(run, tmp_path / "own.zip").file)
    assert json.loads(members["results.json"])["scenario"]["settings"]["forget"]["listed"] == len(ids) == 10
    assert b"10 training samples, listed by id" in members["report.html"]


def with_member(made, target, content, compression=zipfile.ZIP_DEFLATED):
    members = contents(made / "evidence.zip")
    with zipfile.ZipFile(target, "w", compression) as archive:
        for name, old in (members | {counts_file(members, "gd"): content}).items():
            archive.writestr(name, old)
    return target


def test_a_header_that_promises_more_than_follows_is_refused_before_memory_is_reserved(made, tmp_path):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive, archive.open("ids.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"descr": "<i4", "fortran_order": False, "shape": (2**40,)})
    with zipfile.ZipFile(stream, "a") as archive:
        for name in ("labels", "taus", "joint", "same_prediction"):
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, np.zeros(1, np.int32))
    (tmp_path / "counts.npz").write_bytes(stream.getvalue())
    with pytest.raises(InputError, match="promises 4398046511104 bytes, but 0 follow"):
        Counts.load(tmp_path / "counts.npz")


def test_counts_that_are_a_pipe_are_not_waited_for(made, tmp_path):
    import os

    os.mkfifo(tmp_path / "counts.npz")
    with pytest.raises(InputError, match="not a regular file"):
        Counts.load(tmp_path / "counts.npz")


def test_flipped_bytes_anywhere_are_one_line_or_a_difference(made, tmp_path, capsys):
    whole = (made / "evidence.zip").read_bytes()
    for place in np.random.default_rng(3).integers(len(whole), size=40).tolist():
        changed = bytearray(whole)
        changed[place] ^= 0xFF
        (tmp_path / "flipped.zip").write_bytes(changed)
        code = run_command(["verify", str(tmp_path / "flipped.zip")])
        printed = capsys.readouterr()
        assert code == 2 or (code == 0 and verify(tmp_path / "flipped.zip").sound) or "difference" in printed.err
        assert len(printed.err.splitlines()) == 1
        assert "traceback" not in printed.err


def test_a_full_temporary_folder_is_one_line(made, tmp_path, monkeypatch, capsys):
    import errno
    import tempfile

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    for arguments in (["verify", f"{made}/evidence.zip"], ["pack", f"{made}/run", "--output", f"{tmp_path}/p.zip"]):
        assert run_command(arguments) == 2
        err = capsys.readouterr().err
        assert "cannot write to the temporary folder: No space left on device; free some space" in err
        assert len(err.splitlines()) == 1


def test_more_draws_than_the_settings_say_are_a_difference(made, tmp_path):
    members = contents(made / "evidence.zip")
    record = json.loads(members["results.json"])
    for row in record["methods"].values():
        audit = row["per_seed"]["1"]["audits"]["gaussian"]
        tables = tables_of(members[audit["counts"]])
        for name in ("same_prediction", "joint"):
            tables[name][:, 1:] *= 7
        members[audit["counts"]] = as_counts(tables)
        audit["draws"] = [draws * (7 if k else 1) for k, draws in enumerate(audit["draws"])]
    members["results.json"] = canonical(sealed(record), sort_keys=False)
    found = verify(rewritten(tmp_path / "forged.zip", members, reseal=True)).differences
    assert "original, seed 1, gaussian: expected 10 draws, as its settings say, got 70; run it again" in found


def test_measures_that_are_no_function_are_refused(made, tmp_path, capsys):
    assert run_command(["pack", str(made / "run"), "--output", str(tmp_path / "p.zip"), "--measures", "x"]) == 2
    assert "expected FILE.py:FUNCTION of a measure of your own, got 'x'" in capsys.readouterr().err
    assert not (tmp_path / "p.zip").exists()


class Marks(HTMLParser):
    """Collect the text of every element that says where the record has it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[tuple[str, dict[str, str], list[str]]] = []
        self.marks: list[tuple[list[str], str, float]] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "link", "img", "br"):
            self.open.append((tag, dict(attrs), []))

    def handle_data(self, data):
        for *_, texts in self.open:
            texts.append(data)

    def handle_endtag(self, tag):
        name, attributes, texts = self.open.pop()
        assert name == tag
        if "data-of" in attributes:
            self.marks.append((attributes["data-of"].split(), "".join(texts), float(attributes.get("data-times", 1))))


def test_the_marked_numbers_of_a_page_are_those_of_the_record(made):
    members = contents(made / "evidence.zip")
    record, page = json.loads(members["results.json"]), Marks(members["report.html"].decode())
    assert len(page.marks) > 20
    for sources, text, times in page.marks:
        values = []
        for source in sources:
            value = record
            for step in source.split("/"):
                value = value[int(step)] if isinstance(value, list) else value[unquote(step)]
            values.append(value)
        if isinstance(values[0], str):
            assert Verdict(values[0]).label in text
            continue
        shown = re.findall(r"[-+]?\d+(?:\.\d+)?", text)
        assert len(shown) == len(values), text
        for number, value in zip(shown, values, strict=True):
            assert abs(float(number) - times * value) <= 0.5001 * 10 ** -len(number.partition(".")[2]), text
