"""Every reader answers any input with a result or an InputError: damaged and foreign files, made from valid ones."""

from __future__ import annotations

import copy
import io
import json
import shutil
import struct
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import save

from residuum.core.errors import InputError
from residuum.data import load_dataset
from residuum.judging import parse_condition
from residuum.models import build_model, load_weights
from residuum.models.weights import RECORD, read_manifest
from residuum.record import Results
from residuum.studies import load_scenario, maintenance
from residuum.studies.artifacts import Manifest, key_of
from residuum.studies.parsing import build_perturbation, override, parse_request
from residuum.studies.store import Store
from residuum.studies.study import parse_row

GOLDEN = Path(__file__).parent / "golden" / "tiny.json"
SCENARIO = Path(__file__).parents[1] / "src/residuum/studies/scenarios/tiny.toml"
QUICK, LONG = 100, 3000  # examples of each reader
FREELY = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.just("../x")
TREES = st.recursive(SCALARS, lambda t: st.lists(t, max_size=3) | st.dictionaries(st.text(max_size=5), t, max_size=3))


@st.composite
def damaged(draw, whole: bytes):
    """Return the bytes with some replaced, a piece cut out or doubled, or the end missing."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 6))):
        place = draw(st.integers(0, max(len(data) - 1, 0)))
        kind = draw(st.sampled_from(["byte", "cut", "end", "double"]))
        length = draw(st.integers(1, 40))
        if kind == "byte" and data:
            data[place] = draw(st.integers(0, 255))
        elif kind == "cut":
            del data[place : place + length]
        elif kind == "double":
            data[place:place] = data[place : place + length]
        else:
            del data[place:]
    return bytes(data)


def places(node, path=()):
    """Yield the path of every value in a tree."""
    yield path
    inside = node.items() if isinstance(node, dict) else enumerate(node[:2]) if isinstance(node, list) else ()
    for key, value in inside:
        yield from places(value, (*path, key))


@st.composite
def changed(draw, tree):
    """Return the tree with some values replaced or removed."""
    new = {"root": copy.deepcopy(tree)}
    for _ in range(draw(st.integers(1, 3))):
        path = ("root", *draw(st.sampled_from(list(places(new["root"])))))
        node = new
        for key in path[:-1]:
            node = node[key]
        if draw(st.booleans()) and len(path) > 1 and isinstance(node, dict):
            del node[path[-1]]
        else:
            node[path[-1]] = draw(TREES)
        if not isinstance(new["root"], dict | list):
            break
    return new["root"]


def json_bytes(tree):
    return changed(tree).map(lambda value: json.dumps(value).encode()) | damaged(json.dumps(tree).encode())


def npz():
    file = io.BytesIO()
    x = np.linspace(0, 1, 12 * 4, dtype=np.float32).reshape(12, 4)
    np.savez(
        file, x=x, y=np.arange(12) % 3, ids=np.array([f"i{k}" for k in range(12)]), class_names=np.array(list("abc"))
    )
    return file.getvalue()


def png():
    file = io.BytesIO()
    Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(file, "PNG")
    return file.getvalue()


MODEL = build_model("mlp", (4,), 3, width=3, seed=0)


def weights():
    record = {"architecture": MODEL.architecture}
    whole = save(MODEL.state_dict(), {RECORD: json.dumps(record)})
    return damaged(whole) | changed(record).map(lambda odd: save(MODEL.state_dict(), {RECORD: json.dumps(odd)}))


def header(draw_tree):
    """Return safetensors bytes whose own header is this tree."""
    text = json.dumps(draw_tree).encode()
    return struct.pack("<Q", len(text)) + text + bytes(64)


HEADER = {"w": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]}, "__metadata__": {RECORD: "{}"}}
TEXTS = st.text(st.sampled_from("gdrurk=:,.x1-e0[]{}\"' \n\0é/"), max_size=30)
ROWS = TEXTS | st.builds("{}:{}={}".format, st.sampled_from(["gd", "rurk", "x=gd", "ssd"]), TEXTS, TEXTS)
KEYS = st.sampled_from(["lr", "epochs", "tau", "clip", "keep", "steps", "target", "bounds"])
SPECS = st.builds("{}:{}={}".format, st.sampled_from(["gd", "rurk", "pgd", "fgsm", "gaussian"]), KEYS, TEXTS)
SETTINGS = st.tuples(
    st.sampled_from(["audit.draws", "audit.taus.x", "seeds", "rurk.tau", "rurk", "", "."]) | TEXTS, TEXTS
)
CONDITIONS = TEXTS | st.builds(
    "{}{}{}".format,
    st.sampled_from(["r", "gd.r", "cost", "residual", "warnings"]),
    st.sampled_from(["<", ">=", ""]),
    TEXTS,
)
REQUESTS = TEXTS | st.lists(
    st.builds("{}={}".format, st.sampled_from(["class", "fraction", "id", "clas"]), TEXTS), max_size=3
).map(",".join)


def read_folder(file: Path) -> None:
    folder = file.parent / "images"
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "a" / "1.png").write_bytes(file.read_bytes())
    (folder / "b" / "1.png").write_bytes(png())
    samples = load_dataset(str(folder), size=8).train
    for _ in samples.batches([torch.arange(len(samples))]):
        pass


def set_one(pair):
    override({"audit": {"draws": 1, "taus": {}}, "seeds": [1], "methods": {}}, *pair)


def record(file: Path) -> None:
    file.rename(file.with_name("results.json"))
    Results.load(file.parent)


MANIFEST = {"schema": "residuum.manifest/1", "seen_ids": ["a", "b"]}
CONTENT = {"kind": "train", "settings": {"requests": [{"forget_ids": ["a"]}]}, "parents": {}, "code": "c"}
KEY = key_of(CONTENT)
PLACE = f"train/{KEY}/manifest.json"


def whole_store() -> dict[str, bytes]:
    """Return the files of a store with one artifact and the note of one run."""
    with tempfile.TemporaryDirectory() as folder:
        root, artifact = Path(folder), Path(folder) / "train" / KEY
        artifact.mkdir(parents=True)
        (artifact / "ids.txt").write_text("a\nb\n")
        (artifact / "record.json").write_text('{"seconds": 1.0}')
        Manifest.describe(artifact, CONTENT, title="t").write(artifact)
        (root / "runs").mkdir()
        (root / "runs" / "x.json").write_text(json.dumps({"folder": folder, "stages": [KEY]}))
        Store(root).prepare()
        return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


STORE = whole_store()


def stored(place, tree):
    """Return what makes contents of one file of a store, and what reads a store in which it stands."""

    def read(file: Path) -> None:
        root = file.parent / "store"
        shutil.rmtree(root, ignore_errors=True)
        for name, content in (STORE | {place: file.read_bytes()}).items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
        maintenance.verify(root)
        assert all(artifact.record() for artifact in maintenance.artifacts(root))
        maintenance.forget(root, ["a"])

    return lambda: json_bytes(tree), read


FILES = {
    "artifact": stored(PLACE, json.loads(STORE[PLACE])),
    "mark": stored("store.json", {"version": 1}),
    "begun": stored("maintenance.json", ["a", "b"]),
    "note": stored("runs/x.json", {"folder": "/tmp/x", "stages": [KEY]}),
    "data.npz": (lambda: damaged(npz()), lambda file: load_dataset(str(file))),
    "image.png": (lambda: damaged(png()), read_folder),
    "weights.safetensors": (weights, load_weights),
    "header.safetensors": (lambda: changed(HEADER).map(header), load_weights),
    "manifest.json": (lambda: json_bytes(MANIFEST), read_manifest),
    "results.json": (lambda: json_bytes(json.loads(GOLDEN.read_text())), record),
    "own.toml": (lambda: damaged(SCENARIO.read_bytes()), lambda file: load_scenario(str(file))),
}
WRITTEN = {
    "row": (lambda: ROWS | SPECS, parse_row),
    "perturbation": (lambda: SPECS | TEXTS, build_perturbation),
    "request": (lambda: REQUESTS, parse_request),
    "setting": (lambda: SETTINGS, set_one),
    "condition": (lambda: CONDITIONS, parse_condition),
}


def answered(read, given) -> None:
    """Call the reader; anything but a result, an InputError or a warning gets through and fails the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with suppress(InputError):
            read(given)


def try_files(name, folder, examples, seeded):
    made, read = FILES[name]

    @settings(max_examples=examples, derandomize=seeded, **FREELY)
    @given(made())
    def try_one(content):
        (folder / name).write_bytes(content)
        answered(read, folder / name)

    try_one()


def try_texts(name, examples, seeded):
    made, read = WRITTEN[name]

    @settings(max_examples=examples, derandomize=seeded, **FREELY)
    @given(made())
    def try_one(text):
        answered(read, text)

    try_one()


@pytest.mark.parametrize("name", FILES)
def test_no_file_ends_in_anything_but_a_line(name, tmp_path):
    try_files(name, tmp_path, QUICK, True)


ODD_SCENARIOS = {
    'based_on = "own.toml"': "the name of another scenario",
    "based_on = 3": "the name of another scenario",
    'profiles = "cpu"': "expected tables",
    "[profiles]\ncpu = 3": "expected tables",
    "x = " + "[" * 5000: "expected a scenario in TOML",
    "data = 3": "data",
}


@pytest.mark.parametrize("text", ODD_SCENARIOS, ids=lambda text: text[:20])
def test_scenarios_of_another_shape_are_refused(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.toml").write_text(text)
    with pytest.raises(InputError, match=ODD_SCENARIOS[text]):
        load_scenario("own.toml")


@pytest.mark.parametrize("name", WRITTEN)
def test_no_text_ends_in_anything_but_a_line(name):
    try_texts(name, 5 * QUICK, True)


@pytest.mark.long
@pytest.mark.parametrize("name", FILES)
def test_no_file_ends_in_anything_but_a_line_for_minutes(name, tmp_path):
    try_files(name, tmp_path, LONG, False)


@pytest.mark.long
@pytest.mark.parametrize("name", WRITTEN)
def test_no_text_ends_in_anything_but_a_line_for_minutes(name):
    try_texts(name, 10 * LONG, False)
