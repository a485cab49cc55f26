"""The gallery: pictures and answers are those of the stored files, and private samples stay out."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from residuum.core.counts import Counts
from residuum.core.errors import InputError
from residuum.reporting.gallery import MISSING, NO_IMAGES, PRIVATE, SWITCHED_OFF, gallery_of, strip_uri


def decoded(uri):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.removeprefix("data:image/png;base64,")))))


@pytest.mark.parametrize("channels", [1, 3])
def test_a_strip_holds_every_picture_unchanged(channels):
    images = np.random.default_rng(0).integers(0, 256, (6, channels, 8, 8), dtype=np.uint8)
    strip = decoded(strip_uri(images))
    assert strip.shape == (8, 6 * 9, channels + 1)
    for k in range(6):
        shown = strip[:, 9 * k : 9 * k + 8, :channels]
        assert np.array_equal(shown, images[k].transpose(1, 2, 0))
        assert (strip[:, 9 * k + 8, -1] == 0).all()


def test_large_pictures_are_made_smaller_and_it_is_said(make_run):
    run = make_run(gallery=True)
    path = run.folder / "gallery" / "1.npz"
    arrays = dict(np.load(path))
    arrays["images"] = np.zeros((6, 2, 6, 3, 100, 100), np.uint8)
    np.savez(path, **arrays)
    found = gallery_of(run, None)
    assert decoded(found.cards[0]["strips"][0]["picture"]).shape[0] == 64
    assert "64 instead of 100 pixels" in found.notes[-1]


def test_cards_repeat_the_stored_answers_and_counts(make_run):
    run = make_run(gallery=True)
    arrays = np.load(run.folder / "gallery" / "1.npz")
    counts = Counts.load(run.folder / "counts" / "1" / "gd" / "gaussian.npz")
    found = gallery_of(run, None)
    assert found.seed == "1"
    assert "gallery/2.npz, gallery/3.npz" in found.notes[0]
    assert "retrain" not in found.rows
    row = list(run.rows).index("gd")
    for i, card in enumerate(found.cards):
        assert card["id"] == arrays["ids"][i]
        for k, strip in enumerate(card["strips"]):
            assert [mark == "1" for mark in strip["right"]["gd"]] == arrays["right"][row, i, k].tolist()
            assert [mark == "1" for mark in strip["reference"]] == arrays["reference_right"][i, k].tolist()
            tables = ("method_right", "reference_right", "draws")
            assert strip["counted"]["gd"] == [getattr(counts, name)[i, k + 1] for name in tables]


def test_the_first_shown_model_is_the_method_that_leads_most(make_run):
    run = make_run(gallery=True)
    for seed in run.seeds:
        path = run.folder / "gallery" / f"{seed}.npz"
        arrays = dict(np.load(path))
        arrays["right"][:] = False
        arrays["right"][list(run.rows).index("rurk")] = True
        arrays["right"][list(run.rows).index("original")] = True
        np.savez(path, **arrays)
    assert gallery_of(run, None).shown_row == "rurk"


def test_whose_pictures_are_shown(make_run):
    assert gallery_of(make_run(gallery=True), False).notes == [SWITCHED_OFF]
    own = make_run(gallery=True, data="patients.npz")
    assert gallery_of(own, None).notes == [PRIVATE]
    assert not gallery_of(own, None).cards
    assert gallery_of(own, True).cards
    assert gallery_of(make_run(), None).notes == [MISSING]


def test_samples_that_are_no_images(make_run):
    run = make_run(gallery=True)
    for seed in run.seeds:
        path = run.folder / "gallery" / f"{seed}.npz"
        np.savez(path, **dict(np.load(path)) | {"images": np.zeros((4, 2, 6, 4), np.uint8)})
    assert gallery_of(run, None).notes == [NO_IMAGES]


def test_a_damaged_gallery_is_refused(make_run):
    run = make_run(gallery=True)
    (run.folder / "gallery" / "1.npz").write_bytes(b"no archive")
    with pytest.raises(InputError, match="expected a gallery"):
        gallery_of(run, None)
