"""The same samples, however they are brought; and what is no single-label classification is refused with its scope."""

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

from residuum.core.errors import InputError
from residuum.core.samples import Samples
from residuum.data import Dataset, read_data
from residuum.data.ids import matched_ids
from residuum.data.read import Reading

X = torch.tensor([[0.0, -1.5], [2.0, 3.25], [4.0, 5.0]])
Y = [0, 1, 1]
IDS = ("a", "b", "c")


class Items:
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, row):
        return self.items[row]


def written_npz(folder):
    np.savez(folder / "d.npz", x=X.numpy(), y=Y, ids=IDS)
    return folder / "d.npz"


def written_csv(folder):
    (folder / "d.csv").write_text("id,height,width,label\na,0,-1.5,0\nb,2,3.25,1\nc,4,5,1\n")
    return folder / "d.csv"


SOURCES = {
    "tensors": lambda folder: (X, torch.tensor(Y), IDS),
    "arrays": lambda folder: (X.numpy().astype("float64"), np.array(Y), list(IDS)),
    "samples": lambda folder: Samples(X, torch.tensor(Y), IDS),
    "npz": written_npz,
    "csv": written_csv,
    "frame": lambda folder: pd.DataFrame({"id": IDS, "u": X[:, 0], "v": X[:, 1], "label": Y}),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_every_kind_of_source_gives_the_same_samples(kind, tmp_path):
    found = read_data(SOURCES[kind](tmp_path)).samples
    assert torch.equal(found.x, X)
    assert found.y.tolist() == Y
    assert found.ids == IDS


def test_data_sets_of_tuples_and_of_dictionaries_are_read():
    plain = read_data(TensorDataset(X, torch.tensor(Y))).samples
    assert torch.equal(plain.x, X)
    assert plain.ids == ("0", "1", "2")
    texts = Items(
        [
            {"id": name, "input_ids": [7, 8], "attention_mask": [1, 0], "labels": y}
            for name, y in zip(IDS, Y, strict=True)
        ]
    )
    found = read_data(texts)
    assert found.samples.ids == IDS
    assert found.samples.x[0].tolist() == [[7.0, 8.0], [1.0, 0.0]]
    assert found.inputs == ("input_ids", "attention_mask")
    swapped = read_data(texts, reading=Reading(inputs=["attention_mask", "input_ids"]))
    assert swapped.samples.x[0].tolist() == [[1.0, 0.0], [7.0, 8.0]]


def test_ids_of_items_are_read_as_they_are_and_none_is_left_out():
    items = [{"x": x, "label": y, "id": torch.tensor(k)} for k, (x, y) in enumerate(zip(X, Y, strict=True), start=5)]
    assert read_data(Items(items)).samples.ids == ("5", "6", "7")
    with pytest.raises(InputError, match="data: item 1 has no id, but others have; give every item one, or none"):
        read_data(Items([items[0], items[1] | {"id": None}, items[2]]))
    pairs = [{"x": x, "label": y, "id": np.array([k, 0])} for k, (x, y) in enumerate(zip(X, Y, strict=True))]
    assert read_data(Items(pairs)).samples.ids == ("[0 0]", "[1 0]", "[2 0]")
    assert read_data(Items([item | {"id": None} for item in items])).samples.ids == ("0", "1", "2")


def test_folders_and_eight_bit_images_become_pixels(tmp_path):
    for name in ("cat/1.png", "dog/2.png"):
        (tmp_path / name).parent.mkdir()
        Image.new("RGB", (4, 4), (255, 0, 51)).save(tmp_path / name)
    found = read_data(tmp_path)
    assert found.class_names == ("cat", "dog")
    assert found.samples[0][0][:, 0, 0].tolist() == pytest.approx([1.0, 0.0, 0.2])
    eight = read_data((np.full((2, 1, 3, 3), 51, "uint8"), [0, 1])).samples
    assert eight.x.max() == pytest.approx(0.2)


def test_names_of_classes_in_a_table_are_numbered(tmp_path):
    (tmp_path / "t.csv").write_text("who,age,risk\np1,3,low\np2,9,high\n")
    found = read_data(tmp_path / "t.csv", reading=Reading(label="risk", id_column="who"))
    assert found.class_names == ("high", "low")
    assert found.samples.y.tolist() == [1, 0]
    assert found.samples.ids == ("p1", "p2")


@pytest.mark.parametrize(
    "y", [np.eye(3), np.array([0.25, 1.5, 2.0]), np.array([0.0, 1.0, 2.0]), np.array([[0, 1], [1, 1], [0, 0]])]
)
def test_multi_label_and_regression_are_refused_by_their_scope_without_advice_that_ruins_the_data(y):
    with pytest.raises(InputError, match="single label") as error:
        read_data((X, y))
    assert "astype" not in str(error.value)
    assert "argmax" not in str(error.value)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (7, "expected a folder"),
        ({"x": 1}, "expected a folder"),
        ("nowhere", "expected a folder of class folders"),
        (Items([]), "empty"),
        (Items([(torch.zeros(2), 0), (torch.zeros(3), 1)]), "item 1 has an input of shape"),
        (Items([3, 4]), "expected items"),
        (Items([{"a": 1}]), "expected a column label"),
        (Items([{"ids": "a", "tokens": [1], "mask": [1, 2], "labels": 0}]), "parts of one shape"),
        ((torch.zeros(0, 2), torch.zeros(0).long()), "one input per row"),
        ((X, [0, 1]), "one per sample"),
        ((X, [0, -1, 1]), "0 or more"),
        ((torch.tensor([[float("nan")]]), [0]), "nan"),
        ((X, Y, ["a", "a", "b"]), "occurs 2 times"),
        ((torch.full((1, 1), 2**24), [0]), "integers below"),
    ],
)
def test_what_is_no_data_is_one_line(source, words):
    with pytest.raises(InputError, match=words) as error:
        read_data(source)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "0 lines"),
        ("a,label\n1\n", "line 2: expected 2 values"),
        ("a,label\nred,1\n", "expected a number, got 'red'"),
        ("a,b\n1,2\n", "name it with label="),
        ("a,a,label\n1,1,1\n", "occurs 2 times"),
        ("a,label\n1,0.5\n", "single label"),
    ],
)
def test_what_is_no_table_is_one_line(text, words, tmp_path):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InputError, match=words):
        read_data(tmp_path / "t.csv")


def test_a_data_set_that_augments_is_refused():
    class Random(Items):
        def __getitem__(self, row):
            return torch.rand(2), 0

    with pytest.raises(InputError, match="without random augmentation"):
        read_data(Random([1, 2]))


def test_ids_are_matched_by_path_by_name_and_by_stem():
    samples = Samples(
        torch.zeros(4, 1), torch.tensor([0, 0, 1, 1]), ("cat/a.png", "cat/b.png", "dog/b.png", "dog/c.d.png")
    )
    assert matched_ids(["a", "cat/b.png", "c.d"], samples) == ("cat/a.png", "cat/b.png", "dog/c.d.png")
    assert matched_ids(["/home/me/images/dog/b.png", "dog/c.d"], samples) == ("dog/b.png", "dog/c.d.png")
    for asked, words in (
        (["b"], "can mean 'cat/b.png' or 'dog/b.png'"),
        (["x"], "not among"),
        ([], "nothing to forget"),
    ):
        with pytest.raises(InputError, match=words):
            matched_ids(asked, samples)
    with pytest.raises(InputError, match="occurs 2 times"):
        matched_ids(["a", "cat/a.png"], samples)


def test_positions_are_ids_where_nothing_else_is():
    assert matched_ids([2, 0], read_data((X, Y)).samples) == ("2", "0")


def test_images_with_the_channels_last_are_refused_as_by_from_arrays(tmp_path):
    x, y = np.zeros((3, 8, 8, 3), np.uint8), [0, 1, 1]
    with pytest.raises(InputError, match="with the channels last") as refused:
        Dataset.from_arrays(x, y)
    np.savez(tmp_path / "last.npz", x=x, y=y)
    for given in ((x, y), (torch.from_numpy(x), y), tmp_path / "last.npz"):
        with pytest.raises(InputError, match="with the channels last") as also:
            read_data(given)
        assert str(also.value).endswith(str(refused.value))
    arrays = Items([(image, label) for image, label in zip(x, y, strict=True)])
    with pytest.raises(InputError, match=r"got \(8, 8, 3\) with the channels last; give the data set transform="):
        read_data(arrays)
    assert read_data((x.transpose(0, 3, 1, 2), y)).samples.shape == (3, 8, 8)


def test_vectors_of_a_hugging_face_data_set_are_not_stacked():
    items = Items([{"features": row.tolist(), "label": label} for row, label in zip(X, Y, strict=True)])
    assert torch.equal(read_data(items).samples.x, X)


@pytest.mark.parametrize(("mode", "channels"), [("RGB", 3), ("L", 1)])
def test_pictures_of_a_hugging_face_data_set_have_their_channels_first(mode, channels):
    pictures = [Image.new(mode, (5, 4), 51 * k if mode == "L" else (51 * k, 0, 255)) for k in range(3)]
    items = Items([{"image": picture, "label": label} for picture, label in zip(pictures, Y, strict=True)])
    read = read_data(items).samples
    assert read.shape == (channels, 4, 5)
    assert torch.allclose(read.x[:, 0, 0, 0], torch.tensor([0, 0.2, 0.4]))


def test_items_that_a_loader_cannot_join_are_refused_with_what_to_do():
    from torch import nn
    from torch.utils.data import DataLoader

    from residuum import Request

    def train(samples, seed):
        for _ in DataLoader(samples, batch_size=2):
            pass

    pictures = Items([{"image": Image.new("L", (2, 2), k), "label": k % 2} for k in range(6)])
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    with pytest.raises(
        InputError, match=r"a DataLoader cannot join the items .* turn them into tensors there or in coll"
    ):
        Request(pictures, ["0"], retrain=train).retrained(net, 0)


def test_data_of_hugging_face_name_their_classes_and_say_which_part_to_give():
    class Parts(dict):
        """As `DatasetDict`: a mapping of splits."""

    items = Items([{"image": row.reshape(1, 2, -1), "label": label} for row, label in zip(X, Y, strict=True)])
    items.features = {"image": None, "label": type("ClassLabel", (), {"names": ["cat", "dog", "owl"]})()}
    assert read_data(items).class_names == ("cat", "dog", "owl")
    with pytest.raises(InputError, match=r"got Parts; give one of its parts, such as \['train'\]"):
        read_data(Parts(train=items))
    with pytest.raises(InputError, match="number the classes, and tokenize texts"):
        read_data(Items([{"text": "hello", "label": 0}]))
