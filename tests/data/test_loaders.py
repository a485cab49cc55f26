"""Names and `.npz` files."""

import pickle

import numpy as np
import pytest

from residuum.data import DATASETS, load_dataset
from residuum.types import InputError

X, Y = np.linspace(0, 1, 12).reshape(6, 2), np.array([0, 1, 0, 1, 0, 1])


def saved(tmp_path, **arrays):
    file = tmp_path / "mine.npz"
    np.savez_compressed(file, **arrays)
    return file


def test_unknown_names_get_the_nearest_known_ones():
    with pytest.raises(
        InputError, match=r"unknown data set 'cifar-10'; did you mean cifar10\?.*Known: .*FILE.npz.*digits"
    ):
        load_dataset("cifar-10")


def test_the_table_holds_the_documented_names():
    assert list(DATASETS) == ["digits", "iris", "fashion-mnist", "cifar10", "imagenet100"]


def test_npz_with_everything(tmp_path):
    names = {"ids": list("abcdef"), "class_names": ["no", "yes"], "ids_test": ["t1", "t2"]}
    file = saved(tmp_path, x=X, y=Y, x_test=X[:2], y_test=Y[:2], **names)
    data = load_dataset(str(file))
    assert (data.name, data.class_names) == ("mine", ("no", "yes"))
    assert (data.train.ids, data.test.ids) == (tuple("abcdef"), ("t1", "t2"))
    np.testing.assert_array_equal(data.train.x.numpy(), X.astype(np.float32))


def test_npz_without_ids_takes_row_numbers_and_bytes_are_text(tmp_path):
    data = load_dataset(str(saved(tmp_path, x=X, y=Y, class_names=np.array([b"no", b"yes"]))))
    assert (data.train.ids[:2], data.class_names, data.test) == (("0", "1"), ("no", "yes"), None)


def test_npz_below_the_root(tmp_path, monkeypatch):
    saved(tmp_path, x=X, y=Y)
    assert len(load_dataset("mine.npz", root=tmp_path).train) == 6


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": X}, "lacks the array 'y'; it holds: x"),
        ({"x": X, "y": Y, "id": Y}, r"unknown array 'id'; did you mean .*ids"),
        ({"x": X, "y": Y, "x_test": X}, "need both x_test and y_test"),
        ({"x": X, "y": Y, "ids_test": Y}, "need both x_test and y_test"),
        ({"x": X + 1, "y": Y}, r"mine.npz: pixels must lie in \[0, 1\]"),
        ({"x": X, "y": Y, "ids": np.zeros(6)}, "id '0.0' occurs 6 times"),
    ],
)
def test_wrong_arrays_are_refused_with_the_file_name(tmp_path, arrays, message):
    with pytest.raises(InputError, match=message):
        load_dataset(str(saved(tmp_path, **arrays)))


def test_python_objects_are_refused(tmp_path):
    file = saved(tmp_path, x=X, y=Y, ids=np.array(["a", None], dtype=object))
    with pytest.raises(InputError, match=r"holds Python objects"):
        load_dataset(str(file))


@pytest.mark.parametrize("change", [lambda raw: raw[: len(raw) // 2], lambda raw: b"", lambda raw: b"text"])
def test_truncated_files_are_refused(tmp_path, change):
    file = saved(tmp_path, x=X, y=Y)
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(InputError, match=r"is truncated, no .npz file"):
        load_dataset(str(file))


def test_flipped_bytes_are_noticed(tmp_path):
    file = tmp_path / "mine.npz"
    np.savez(file, x=X, y=Y)
    raw = bytearray(file.read_bytes())
    raw[raw.index(X.tobytes()) + 5] ^= 0xFF
    file.write_bytes(raw)
    with pytest.raises(InputError, match=r"CRC"):
        load_dataset(str(file))


def test_other_files_with_that_ending_are_refused(tmp_path):
    for name, content in (("pickle.npz", pickle.dumps({"x": 1})), ("array.npz", b"\x93NUMPY\x01\x00")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=name):
            load_dataset(str(tmp_path / name))


def test_a_plain_array_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", X)
    (tmp_path / "a.npy").rename(tmp_path / "a.npz")
    with pytest.raises(InputError, match=r"a\.npz is truncated, no \.npz file"):
        load_dataset(str(tmp_path / "a.npz"))


def test_absent_file(tmp_path):
    with pytest.raises(InputError, match=r"does not exist; give the path of an .npz file"):
        load_dataset(str(tmp_path / "no.npz"))
