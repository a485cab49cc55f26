"""A pack of pictures of faces, or of a table about people, names nobody: no person, folder, file, column or row."""

import html
import json
import zipfile
from urllib.parse import unquote

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from residuum import Request, wrap
from residuum.data.read import Reading
from residuum.pack import pack, verify
from residuum.request import AuditOptions

PEOPLE = ["Ada Winterfeld", "Bruno Castellan", "Chloé Østergård", "Dmitri Volkonsky"]
FORGOTTEN = PEOPLE[2]
SIDE, PICTURES = 12, 24


def face(person: int, rng) -> Image.Image:
    """Draw a head, two eyes and a mouth, in the person's proportions, with the noise of a bad camera."""
    y, x = np.mgrid[0:SIDE, 0:SIDE] / (SIDE - 1) * 2 - 1 + rng.normal(0, 0.05, (2, 1, 1))
    shapes = np.random.default_rng(person).uniform(0.6, 1.0, 6)
    picture = np.where((x / shapes[0]) ** 2 + (y / shapes[1]) ** 2 < 0.9, 0.5 + 0.4 * shapes[2], 0.1)
    for side in (-1, 1):
        picture[(x - side * 0.4 * shapes[3]) ** 2 + (y + 0.3) ** 2 < 0.05 * shapes[4]] = 0.0
    picture[(abs(y - 0.5) < 0.1) & (abs(x) < 0.5 * shapes[5])] = 0.3
    return Image.fromarray((255 * np.clip(picture + rng.normal(0, 0.1, picture.shape), 0, 1)).astype(np.uint8), "L")


def album(folder, seed):
    """Save the faces, one folder a person, in files named after them."""
    rng = np.random.default_rng(seed)
    for number, person in enumerate(PEOPLE):
        (folder / person).mkdir(parents=True)
        for k in range(PICTURES):
            face(number, rng).save(folder / person / f"{person.split()[1].lower()}-on-holiday-{k:02d}.png")
    return folder


def trained(samples, seed, epochs=20):
    torch.manual_seed(seed)
    x, y = samples.batch(torch.arange(len(samples)))
    net = nn.Sequential(nn.Flatten(), nn.Linear(x[0].numel(), len(PEOPLE)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(epochs):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    return net.eval()


def audited(request, tmp_path, **wrapping):
    """Return the run of a request whose rows, too, are named after the person who is forgotten."""
    model, other = (wrap(trained(request.source.samples, seed), **wrapping) for seed in (0, 1))
    options = AuditOptions(draws=3, taus=[0, 0.1], gallery=True)
    return request.audit(model, {f"no {FORGOTTEN}": other}, options, controls=2, out=tmp_path / "runs" / FORGOTTEN)


def texts(file):
    """Return each member's text in lower case: as it is, and as HTML, addresses and JSON unescape it."""
    with zipfile.ZipFile(file) as archive:
        for member in archive.namelist():
            text = f"{member}\n{archive.read(member).decode()}"
            plain = text.encode("latin-1", "backslashreplace").decode("unicode-escape")
            yield member, "\n".join([text, html.unescape(text), unquote(text), plain]).lower()


def found(file, names):
    return [(member, name) for member, text in texts(file) for name in names if name.lower() in text]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("album of the Winterfelds")
    people, others = album(folder / "club members 2025", 1), album(folder / "club members 2026", 2)
    ids = [f"{FORGOTTEN}/{FORGOTTEN.split()[1].lower()}-on-holiday-{k:02d}.png" for k in range(0, PICTURES, 2)]
    request = Request(people, forget=ids, held_out=others, retrain=trained, reading=Reading(channels=1))
    return audited(request, folder)


NAMES = [*PEOPLE, *(person.split()[1] for person in PEOPLE), "on-holiday", "winterfelds", "club members"]


def test_a_pack_of_faces_names_nobody(run, tmp_path):
    packed = pack(run, tmp_path / "evidence.zip")
    assert found(packed.file, [*NAMES, ".png", str(run.folder)]) == []
    with zipfile.ZipFile(packed.file) as archive:
        record = json.loads(archive.read("results.json"))
    assert sorted(record["scenario"]["class_names"]) == [f"class {k}" for k in range(len(PEOPLE))]
    assert "row 1" in record["methods"]
    assert verify(packed.file).sound


def test_the_same_search_finds_the_names_where_they_are_allowed(run, tmp_path):
    packed = pack(run, tmp_path / "named.zip", names=True)
    there = {name for _, name in found(packed.file, NAMES)}
    assert {*PEOPLE} <= there
    assert "on-holiday" not in there  # ids are never in a pack
