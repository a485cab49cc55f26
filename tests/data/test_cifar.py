"""CIFAR-10 batches in the flavors that exist, and pickles that must not be obeyed."""

import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from residuum.core.errors import InputError
from residuum.data import cifar, load_dataset

BATCHES = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]


def content(batch: str) -> tuple[np.ndarray, list[int]]:
    shift = BATCHES.index(batch)
    rows = ((np.arange(4 * 3072) + shift) % 256).astype(np.uint8).reshape(4, 3072)
    return rows, [(3 * i + shift) % 10 for i in range(4)]


def python3_pickle(rows: np.ndarray, labels: list[int], protocol: int = 4) -> bytes:
    return pickle.dumps({b"data": rows, b"labels": labels, b"filenames": [b"x.png"] * len(labels)}, protocol=protocol)


def python2_pickle(rows: np.ndarray, labels: list[int]) -> bytes:
    """Return what Python 2's cPickle wrote: protocol 2, byte strings, old numpy paths, integers as dtype flags."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    def integer(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + integer(0) + b"\x85" + text(b"b") + b"\x87R"
    dtype = b"cnumpy\ndtype\n" + text(b"u1") + integer(0) + integer(1) + b"\x87R"
    dtype += b"(" + integer(3) + text(b"|") + b"NNN" + integer(-1) + integer(-1) + integer(0) + b"tb"
    shape = integer(rows.shape[0]) + integer(rows.shape[1]) + b"\x86"
    values = b"T" + struct.pack("<i", rows.size) + rows.tobytes()
    array += b"(" + integer(1) + shape + dtype + b"\x89" + values + b"tb"
    numbers = b"](" + b"".join(integer(label) for label in labels) + b"e"
    label = text(b"batch_label") + text(b"training batch 1 of 5")
    return b"\x80\x02}(" + label + text(b"labels") + numbers + text(b"data") + array + b"u."


def write_folder(root: Path, write) -> Path:
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for batch in BATCHES:
        (folder / batch).write_bytes(write(*content(batch)))
    return folder


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    monkeypatch.delenv("RESIDUUM_DATA", raising=False)


@pytest.mark.parametrize(
    "write",
    [python2_pickle, *(lambda rows, labels, p=p: python3_pickle(rows, labels, p) for p in (2, 4, 5))],
    ids=["python2", "python3-protocol2", "python3-protocol4", "python3-protocol5"],
)
def test_every_flavor_gives_the_same_data(tmp_path, write):
    write_folder(tmp_path, write)
    data = load_dataset("cifar10", root=tmp_path)
    rows = np.concatenate([content(batch)[0] for batch in BATCHES[:5]])
    np.testing.assert_array_equal(data.train.x.numpy().reshape(20, 3072), rows / np.float32(255))
    assert data.train.y.tolist() == [label for batch in BATCHES[:5] for label in content(batch)[1]]
    assert data.shape == (3, 32, 32)
    assert len(data.test) == 4


def test_ids_are_ranks_within_the_class_over_all_files(tmp_path):
    write_folder(tmp_path, python2_pickle)
    data = load_dataset("cifar10", root=tmp_path)
    assert data.train.ids[0] == "train/airplane/0000"
    seen: dict[str, int] = {}
    for label, name in zip(data.train.y.tolist(), data.train.ids, strict=True):
        split, class_name, rank = name.split("/")
        assert (split, class_name) == ("train", data.class_names[label])
        assert int(rank) == seen.get(class_name, 0)
        seen[class_name] = int(rank) + 1
    assert max(seen.values()) > 1
    assert all(name.startswith("test/") for name in data.test.ids)


def test_environment_and_the_folder_itself_are_found(tmp_path, monkeypatch):
    folder = write_folder(tmp_path, python3_pickle)
    assert len(load_dataset("cifar10", root=folder).train) == 20
    monkeypatch.setenv("RESIDUUM_DATA", str(tmp_path))
    assert len(load_dataset("cifar10").train) == 20


def test_absent_says_what_to_put_where(tmp_path):
    with pytest.raises(
        InputError, match=r"CIFAR-10 was not found.*no data root given.*data_batch_1 exists.*--data-root"
    ):
        load_dataset("cifar10")
    with pytest.raises(InputError, match=str(tmp_path)):
        load_dataset("cifar10", root=tmp_path)


class Evil:
    """Writes a file if its pickle is obeyed."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return (Path.touch, (self.target,))


def test_a_malicious_pickle_is_refused_and_not_run(tmp_path):
    folder = write_folder(tmp_path, python3_pickle)
    mark = tmp_path / "was-run"
    evil = pickle.dumps({b"data": Evil(mark), b"labels": [1]})
    pickle.loads(evil)
    assert mark.exists(), "the pickle must be harmful for this test to mean anything"
    mark.unlink()
    (folder / "data_batch_2").write_bytes(evil)
    with pytest.raises(InputError, match=r"data_batch_2 is not a readable CIFAR-10 batch .*it asks for "):
        load_dataset("cifar10", root=tmp_path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "harm",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cnumpy\nload\n(S'x'\ntR.",
        b"c_codecs\ndecode\n.",
    ],
)
def test_any_other_name_is_refused(tmp_path, harm):
    file = tmp_path / "batch"
    file.write_bytes(harm)
    with pytest.raises(InputError, match=r"it asks for"):
        cifar.read_batch(file)


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (python3_pickle(*content("test_batch"))[:-200], "not a readable CIFAR-10 batch"),
        (b"", "not a readable CIFAR-10 batch"),
        (b"\x00\x01\x02", "not a readable CIFAR-10 batch"),
        (pickle.dumps({b"data": np.zeros((2, 3072)), b"labels": [1, 2]}), "expected uint8"),
        (pickle.dumps({b"data": np.array([None])}), "expected uint8"),
        (pickle.dumps([1, 2]), "is not a CIFAR-10 batch: expected"),
        (pickle.dumps({b"data": 3, b"labels": [1]}), "is not a CIFAR-10 batch"),
        (pickle.dumps({b"fine_labels": [1]}), "is not a CIFAR-10 batch"),
        (python3_pickle(np.zeros((2, 3071), np.uint8), [1, 2]), "is not a CIFAR-10 batch"),
        (python3_pickle(np.zeros((2, 3072), np.uint8), [1]), "is not a CIFAR-10 batch"),
        (python3_pickle(np.zeros((2, 3072), np.uint8), [1, 10]), "is not a CIFAR-10 batch"),
        (pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": 5}), "is not a CIFAR-10 batch"),
    ],
)
def test_damaged_batches_are_refused(tmp_path, damaged, message):
    file = tmp_path / "data_batch_1"
    file.write_bytes(damaged)
    with pytest.raises(InputError, match=message):
        cifar.read_batch(file)


def test_a_missing_batch_is_named(tmp_path):
    (write_folder(tmp_path, python3_pickle) / "data_batch_4").unlink()
    with pytest.raises(InputError, match=r"cannot read .*data_batch_4"):
        load_dataset("cifar10", root=tmp_path)


def test_text_in_other_encodings_is_refused():
    with pytest.raises(pickle.UnpicklingError, match="expected latin1"):
        cifar.ArrayUnpickler.allowed["_codecs", "encode"]("a", "rot13")
