from types import SimpleNamespace

import numpy as np
import pytest
import torch

from residuum.auditing import Gallery, audit, make_gallery
from residuum.core import devices
from residuum.core.errors import InputError
from residuum.perturbations import FGSM, PGD, Gaussian, block_generator

pytestmark = pytest.mark.filterwarnings("ignore::residuum.core.errors.ResiduumWarning")


@pytest.fixture(scope="module")
def audited(networks, reference, samples):
    return audit(networks, reference, samples, "gaussian", taus=[0, 0.1, 0.2, 0.3, 0.4], draws=30, seed=5)


def test_pictures_are_the_first_draws_of_the_audit(networks, reference, samples, audited):
    gallery = make_gallery(networks, reference, samples, "gaussian", audited.counts, seed=5)
    assert gallery.images.shape == (9, 3, 6, 1, 6, 6)
    assert gallery.right.shape == (2, 9, 3, 6)
    assert gallery.rows.tolist() == ["m", "n"]
    assert gallery.taus.tolist() == [0.1, 0.3, 0.4]
    sample_id = str(gallery.ids[2])
    i = samples.ids.index(sample_id)
    noise = Gaussian().draw(block_generator(5, sample_id, 0), 25, samples.shape).noise[:6]
    expected = (samples.x[i] + 0.3 * noise).clamp(0, 1)
    assert np.abs(gallery.images[2, 1].astype(float) - 255 * expected.numpy()).max() <= 0.5001
    with torch.no_grad():
        right = networks["n"](expected).argmax(1) == samples.y[i]
    assert gallery.right[1, 2, 1].tolist() == right.tolist()
    assert gallery.labels[2] == samples.y[i]


def test_galleries_come_back_and_are_equal_byte_for_byte(networks, reference, samples, audited, tmp_path):
    gallery = make_gallery(networks, reference, samples, "gaussian", audited.counts, seed=5)
    for name in ("a", "b"):
        gallery.save(tmp_path / f"{name}.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    stored = Gallery.load(tmp_path / "a.npz")
    assert all(np.array_equal(getattr(stored, key), value) for key, value in vars(gallery).items())
    (tmp_path / "b.npz").write_bytes(b"nothing")
    with pytest.raises(InputError, match="expected a gallery"):
        Gallery.load(tmp_path / "b.npz")


def test_one_of_several_processes_makes_the_whole_gallery(networks, reference, samples, audited, monkeypatch):
    whole = make_gallery(networks, reference, samples, "gaussian", audited.counts, seed=5)
    precision, device = SimpleNamespace(precision="32-true"), torch.device("cpu")
    fabric = SimpleNamespace(global_rank=0, world_size=2, device=device, _precision=precision)
    monkeypatch.setattr(devices, "current", lambda: fabric)
    alone = make_gallery(networks, reference, samples, "gaussian", audited.counts, seed=5)
    assert all(np.array_equal(getattr(alone, key), value) for key, value in vars(whole).items())


def test_attacks_have_galleries_too(networks, reference, samples, audited):
    for attack in (FGSM(target="random"), PGD(steps=2)):
        gallery = make_gallery(networks, reference, samples, attack, audited.counts, seed=5)
        assert gallery.images.max() > 0
