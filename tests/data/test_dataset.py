"""`Dataset.from_arrays` accepts what it says, and names the first thing that is wrong."""

import hashlib

import numpy as np
import pytest
import torch

from residuum.core.errors import InputError
from residuum.core.samples import Samples
from residuum.data import Dataset

IMAGES = np.linspace(0, 1, 4 * 3 * 5 * 5).reshape(4, 3, 5, 5)
LABELS = np.array([0, 1, 2, 1])


def with_value(value, row=2):
    x = IMAGES.copy()
    x[row, 1, 0, 3] = value
    return x


def test_floats_become_float32_and_labels_int64_with_row_numbers_as_ids():
    data = Dataset.from_arrays(IMAGES, LABELS.astype(np.uint8))
    assert data.train.x.dtype == torch.float32
    assert data.train.y.dtype == torch.int64
    np.testing.assert_array_equal(data.train.x.numpy(), IMAGES.astype(np.float32))
    assert data.train.ids == ("0", "1", "2", "3")
    assert data.class_names == ("0", "1", "2")
    assert (data.mean, data.std, data.test) == ((0.5,), (0.5,), None)


def test_bytes_are_divided_by_255():
    x = np.arange(256, dtype=np.uint8).reshape(4, 1, 8, 8)
    data = Dataset.from_arrays(x, LABELS)
    np.testing.assert_array_equal(data.train.x.numpy(), (x / np.float32(255)).astype(np.float32))


def test_tensors_lists_and_flat_features_are_taken():
    data = Dataset.from_arrays(torch.tensor([[0.0, 1.0], [0.5, 0.5]]), [0, 1], ids=[7, b"b"], class_names=["no", "yes"])
    assert data.train.ids == ("7", "b")
    assert data.shape == (2,)


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_later_changes_of_the_arrays_do_not_reach_the_data_set(kind):
    x, y = kind(IMAGES.astype(np.float32)), kind(LABELS)
    data = Dataset.from_arrays(x, y)
    before = data.train.x.clone(), data.train.y.clone()
    x[:] = 0.25
    y[:] = 0
    assert torch.equal(data.train.x, before[0])
    assert torch.equal(data.train.y, before[1])


@pytest.mark.parametrize(
    ("x", "y", "options", "message"),
    [
        (with_value(1.5), LABELS, {}, r"x\[2\] \(id '2'\) holds 1.5; divide 8-bit images by 255"),
        (with_value(-0.25), LABELS, {"ids": list("abcd")}, r"x\[2\] \(id 'c'\) holds -0.25; undo the normalization"),
        (with_value(np.nan), LABELS, {}, r"x\[2\] \(id '2'\) holds nan; remove or repair"),
        (with_value(np.inf, row=1), LABELS, {}, r"x\[1\] \(id '1'\) holds inf"),
        (IMAGES.astype(np.int32), LABELS, {}, "uint8 or floats in"),
        (IMAGES[:0], LABELS[:0], {}, "x is empty"),
        (IMAGES.transpose(0, 2, 3, 1), LABELS, {}, r"channels last; use x.transpose\(0, 3, 1, 2\)"),
        (IMAGES[:, 0], LABELS, {}, r"for gray images use x\[:, None\]"),
        (IMAGES[0, 0, 0], LABELS, {}, r"must be \(n, features\)"),
        (np.array([["a"], ["b"]]), LABELS[:2], {}, "x must be an array of numbers"),
        ([[0.5], [0.1, 0.2]], LABELS[:2], {}, "x must be an array of numbers"),
        (IMAGES, LABELS[:3], {}, "x has 4 samples but y has 3 labels"),
        (IMAGES, [0, 1, 0.5, 1], {}, r"labels must be integers.*y\[2\] is 0.5"),
        (IMAGES, [0.0, 1, 1, 1], {}, "labels must be integers.*single label"),
        (IMAGES, [True, False, True, True], {}, "labels must be integers"),
        (IMAGES, np.eye(4), {}, r"single label"),
        (IMAGES, [0, 1, -1, 1], {}, r"y\[2\] \(id '2'\) is -1"),
        (IMAGES, LABELS, {"class_names": ["a", "b"]}, r"0..1 \(2 classes\), but y\[2\] \(id '2'\) is 2"),
        (IMAGES, [1, 2, 3, 1], {}, "labels up to 3 but none is 0"),
        (IMAGES, [0, 0, 0, 0], {}, "at least 2 classes"),
        (IMAGES, LABELS, {"class_names": ["a", "b", "a"]}, "'a' occurs 2 times"),
        (IMAGES, LABELS, {"ids": ["a", "b", "c"]}, "ids has 3 entries for 4 samples"),
        (IMAGES, LABELS, {"ids": ["a", "b", "a", "c"]}, "'a' occurs 2 times"),
        (IMAGES, LABELS, {"ids": ["a", "b", "", "c"]}, r"ids\[2\] is ''"),
        (IMAGES, LABELS, {"ids": ["a", "#b", "d", "c"]}, r"ids\[1\] is '#b'"),
        (IMAGES, LABELS, {"ids": ["a", "b\nc", "d", "c"]}, r"ids\[1\]"),
        (IMAGES, LABELS, {"test": (IMAGES, [0, 1, 2, 3])}, r"y_test\[3\] \(id 'test/3'\) is 3"),
        (IMAGES, LABELS, {"test": (with_value(2), LABELS)}, r"x_test\[2\] \(id 'test/2'\) holds 2"),
        (IMAGES, LABELS, {"test": (IMAGES[:, :, :4], LABELS)}, r"x_test holds inputs of shape \(3, 4, 5\)"),
        (IMAGES, LABELS, {"test": (IMAGES, LABELS, "0bcd")}, "ids and ids_test: '0' occurs 2 times"),
        (IMAGES, LABELS, {"test": (IMAGES,)}, r"test must be \(x, y\)"),
    ],
)
def test_bad_arrays_get_one_clear_line(x, y, options, message):
    with pytest.raises(InputError, match=message) as caught:
        Dataset.from_arrays(x, y, **options)
    assert "\n" not in str(caught.value)


def test_the_first_offending_position_is_named():
    x = IMAGES.copy()
    x[1:] = 3
    with pytest.raises(InputError, match=r"x\[1\]"):
        Dataset.from_arrays(x, LABELS)


def test_test_samples_as_pair_triple_and_samples_agree():
    pair = Dataset.from_arrays(IMAGES, LABELS, test=(IMAGES, LABELS))
    triple = Dataset.from_arrays(IMAGES, LABELS, test=(IMAGES, LABELS, [f"test/{i}" for i in range(4)]))
    again = Dataset.from_arrays(IMAGES, LABELS, test=pair.test)
    assert pair.test.ids == ("test/0", "test/1", "test/2", "test/3")
    assert pair.fingerprint == triple.fingerprint == again.fingerprint


def test_fingerprint_is_the_hash_of_its_documented_parts():
    data = Dataset.from_arrays(IMAGES, LABELS)
    parts = [
        b"('0', '1', '2')",
        b"part(4, 3, 5, 5)",
        IMAGES.astype("<f4").tobytes(),
        LABELS.astype("<i8").tobytes(),
        b"0\n1\n2\n3",
        b"part",
    ]
    assert data.fingerprint == hashlib.sha256(b"".join(parts)).hexdigest()


def test_fingerprint_sees_every_change():
    base = {"x": IMAGES, "y": LABELS, "ids": list("abcd"), "class_names": list("pqr"), "test": None}
    changes = [
        {},
        {"x": with_value(0.123)},
        {"x": IMAGES.reshape(4, 3, 25, 1)},
        {"y": LABELS[::-1]},
        {"ids": list("abce")},
        {"class_names": list("pqs")},
        {"test": (IMAGES, LABELS)},
    ]
    prints = [Dataset.from_arrays(**(base | change)).fingerprint for change in changes]
    assert len(set(prints)) == len(changes)
    assert prints[0] == Dataset.from_arrays(**base, name="other").fingerprint


def test_fingerprint_is_computed_once(monkeypatch):
    data = Dataset.from_arrays(IMAGES, LABELS)
    first = data.fingerprint
    monkeypatch.setattr(hashlib, "sha256", None)
    assert data.fingerprint == first


def test_classes_and_shape():
    samples = Samples(torch.zeros(2, 1, 2, 2), torch.tensor([0, 1]), ("a", "b"))
    data = Dataset("x", samples, None, ("p", "q"))
    assert (data.classes, data.shape) == (2, (1, 2, 2))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_tables_of_whole_numbers_are_taken_as_they_are(dtype):
    x = torch.tensor([[0, 100], [7, 3]], dtype=dtype)
    samples = Dataset.from_arrays(x, [0, 1], unbounded=True).train
    assert samples.x.tolist() == [[0.0, 100.0], [7.0, 3.0]]
