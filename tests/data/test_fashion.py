"""Fashion-MNIST from a small folder of IDX files written by the test."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from residuum.core.errors import InputError
from residuum.data import load_dataset, loaders

LABELS = {"train": [9, 0, 9, 4], "t10k": [4, 1]}


def idx(values: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return gzip.compress(head + values.astype(np.uint8).tobytes())


def images(prefix: str) -> np.ndarray:
    count = len(LABELS[prefix])
    return (np.arange(count * 28 * 28) % 256).reshape(count, 28, 28).astype(np.uint8)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.delenv("RESIDUUM_DATA", raising=False)
    monkeypatch.setattr(loaders, "DEBIAN_FOLDER", tmp_path / "absent")
    place = tmp_path / "files"
    place.mkdir()
    for prefix, labels in LABELS.items():
        (place / f"{prefix}-images-idx3-ubyte.gz").write_bytes(idx(images(prefix)))
        (place / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(idx(np.array(labels)))
    return place


def test_pixels_labels_and_ids(folder):
    data = load_dataset("fashion-mnist", root=folder)
    np.testing.assert_array_equal(data.train.x.numpy()[:, 0], images("train") / np.float32(255))
    assert data.train.y.tolist() == LABELS["train"]
    assert data.train.ids == ("train/ankle-boot/0000", "train/t-shirt/0000", "train/ankle-boot/0001", "train/coat/0000")
    assert data.test.ids == ("test/coat/0000", "test/trouser/0000")
    assert (data.shape, data.mean, data.std) == ((1, 28, 28), (0.2860,), (0.3530,))


@pytest.mark.parametrize("sub", ["fashion-mnist", "FashionMNIST/raw"])
def test_usual_subfolders_of_the_root_are_found(folder, tmp_path, sub):
    target = tmp_path / "root" / sub
    target.parent.mkdir(parents=True)
    folder.rename(target)
    assert len(load_dataset("fashion-mnist", root=str(tmp_path / "root")).train) == 4


def test_environment_then_debian_folder_are_tried(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("RESIDUUM_DATA", str(folder))
    assert len(load_dataset("fashion-mnist", root=tmp_path / "nothing").train) == 4
    monkeypatch.delenv("RESIDUUM_DATA")
    monkeypatch.setattr(loaders, "DEBIAN_FOLDER", folder)
    assert len(load_dataset("fashion-mnist").train) == 4


def test_absent_says_what_to_put_where(folder, tmp_path):
    with pytest.raises(InputError, match=r"Fashion-MNIST was not found; .*nothing.*dataset-fashion-mnist.*--data-root"):
        load_dataset("fashion-mnist", root=tmp_path / "nothing")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: raw[:-20], "train-images-idx3-ubyte.gz is truncated or not a gzip file"),
        (lambda raw: b"no gzip", "is truncated or not a gzip file"),
        (lambda raw: raw[:30] + bytes(20) + raw[50:], "truncated or not a gzip|not an IDX file|promises"),
        (lambda raw: gzip.compress(gzip.decompress(raw)[:-1]), "holds 3135 values, its header promises"),
        (lambda raw: gzip.compress(gzip.decompress(raw)[:7]), "not an IDX file"),
        (lambda raw: idx(np.zeros(4)), "not an IDX file of unsigned bytes with 3 dimensions"),
        (lambda raw: idx(images("train")[:3]), "3 train images but 4 labels"),
    ],
)
def test_damaged_images_are_refused(folder, change, message):
    file = folder / "train-images-idx3-ubyte.gz"
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(InputError, match=message):
        load_dataset("fashion-mnist", root=folder)


def test_foreign_labels_and_missing_files_are_refused(folder):
    labels = folder / "t10k-labels-idx1-ubyte.gz"
    labels.write_bytes(idx(np.array([4, 10])))
    with pytest.raises(InputError, match=r"labels reach 10"):
        load_dataset("fashion-mnist", root=folder)
    labels.unlink()
    with pytest.raises(InputError, match=r"cannot read .*t10k-labels"):
        load_dataset("fashion-mnist", root=folder)
