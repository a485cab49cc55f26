"""Names, the bundled data sets against scikit-learn's own numbers, and `.npz` files."""

import os
import pickle
import zipfile

import numpy as np
import pytest
from sklearn import datasets

from residuum.core.errors import InputError
from residuum.data import DATASETS, load_dataset

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
        ({"x": X, "y": Y, "ids": np.zeros(6)}, "'0.0' occurs 6 times"),
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
    with pytest.raises(InputError, match=r"is truncated, not an .npz file"):
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
    with pytest.raises(InputError, match=r"a\.npz is truncated, not an \.npz file"):
        load_dataset(str(tmp_path / "a.npz"))


def test_absent_file(tmp_path):
    with pytest.raises(InputError, match=r"does not exist; give the path of an .npz file"):
        load_dataset(str(tmp_path / "no.npz"))


def test_digits_are_sixteenths_in_file_order():
    data, raw = load_dataset("digits"), datasets.load_digits()
    assert data.train.x.shape == (1797, 1, 8, 8)
    np.testing.assert_array_equal(data.train.x.numpy()[:, 0] * 16, raw.images)
    np.testing.assert_array_equal(data.train.y.numpy(), raw.target)
    assert data.train.ids[42] == "digits/0042"
    assert data.class_names == tuple("0123456789")
    assert data.test is None


def test_iris_is_scaled_by_fixed_bounds():
    data, raw = load_dataset("iris"), datasets.load_iris()
    low, high = np.array([4, 2, 1, 0]), np.array([8, 4.5, 7, 2.5])
    np.testing.assert_allclose(data.train.x.numpy() * (high - low) + low, raw.data, atol=1e-6)
    assert data.train.ids[17] == "iris/017"
    assert data.class_names == ("setosa", "versicolor", "virginica")


def test_loading_twice_gives_the_same_fingerprint():
    assert load_dataset("digits").fingerprint == load_dataset("digits").fingerprint
    assert load_dataset("digits").fingerprint != load_dataset("iris").fingerprint


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("ids", np.array(b"abcdef"), r"ids must be a list of texts, or an array of one dimension, got shape \(\)"),
        ("ids", np.array([list("abc"), list("def")]), r"ids must be .* of one dimension, got shape \(2, 3\)"),
        ("ids", np.array([b"a", b"b", b"c", b"d", b"e", b"caf\xe9"]), r"ids: b'caf\\xe9' is not UTF-8"),
        ("class_names", np.array("no yes"), r"class_names must be .* of one dimension, got shape \(\)"),
        ("class_names", np.array([["no"], ["yes"]]), r"class_names must be .* of one dimension, got shape \(2, 1\)"),
        ("class_names", np.array([b"no", b"\xff\xfe"]), r"class_names: b'\\xff\\xfe' is not UTF-8"),
        ("ids", np.array(["a", "b", "c", "d", "e", "x\0y"]), r"ids\[5\] is 'x\\x00y'; an id is one line"),
    ],
)
def test_names_of_another_shape_or_encoding_are_refused(tmp_path, name, array, message):
    with pytest.raises(InputError, match=f"mine.npz: {message}") as caught:
        load_dataset(str(saved(tmp_path, **{"x": X, "y": Y, name: array})))
    assert "\n" not in str(caught.value)


def test_ids_that_are_bytes_are_texts(tmp_path):
    data = load_dataset(str(saved(tmp_path, x=X, y=Y, ids=np.array([b"a", b"b", b"c", b"d", b"e", "é".encode()]))))
    assert data.train.ids == ("a", "b", "c", "d", "e", "é")


def npy(shape, content, dtype="'<f8'"):
    header = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}}}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content


def test_headers_that_promise_what_is_not_there_are_refused_before_anything_is_reserved(tmp_path, monkeypatch):
    monkeypatch.setattr(np, "load", lambda *arguments, **options: pytest.fail("the arrays were read"))
    for shape in (f"({10**15},)", f"({2**40}, {2**40})", "(-1,)"):
        with zipfile.ZipFile(tmp_path / "mine.npz", "w") as archive:
            archive.writestr("x.npy", npy(shape, X.tobytes()))
        with pytest.raises(InputError, match=r"the header of x.npy promises -?\d+ bytes, but 96 follow"):
            load_dataset(str(tmp_path / "mine.npz"))


def test_arrays_larger_than_the_memory_are_refused_before_they_are_read(tmp_path, monkeypatch):
    file = saved(tmp_path, x=np.zeros((2**18, 8)), y=np.zeros(2**18, dtype=np.int64))
    assert file.stat().st_size < 10**5
    monkeypatch.setattr("residuum.data.read.machine_memory", lambda: 2**24)
    monkeypatch.setattr(np, "load", lambda *arguments, **options: pytest.fail("the arrays were read"))
    with pytest.raises(InputError, match=r"its arrays need 0.0176 GiB, this machine has 0.0156"):
        load_dataset(str(file))


@pytest.mark.parametrize("name", ["a" * 5000, "a" * 5000 + ".npz", "~nobody-of-this-name/x", "a\0b"])
def test_names_that_no_file_can_have_are_not_found(name):
    with pytest.raises(InputError, match=r"unknown data set|does not exist"):
        load_dataset(name)


def test_a_name_that_is_not_utf8_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (b"caf\xe9", b"caf\xe9.npz"):
        with pytest.raises(InputError, match=r"expected a data set's name in UTF-8, got 'caf\\udce9"):
            load_dataset(os.fsdecode(name))


@pytest.mark.parametrize(
    ("name", "file"), [("cifar10", "data_batch_1"), ("fashion-mnist", "train-images-idx3-ubyte.gz")]
)
def test_a_named_pipe_in_place_of_a_data_file_is_not_waited_for(tmp_path, name, file):
    os.mkfifo(tmp_path / file)
    with pytest.raises(InputError, match=f"cannot read .*{file}: it is not a regular file"):
        load_dataset(name, root=tmp_path)
