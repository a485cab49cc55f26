"""The class that is named is the class that is forgotten, whatever the names look like."""

import re

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from residuum.core.errors import InputError
from residuum.data import Dataset, make_splits
from residuum.data.dataset import class_index
from residuum.studies.parsing import override, parse_request

NUMBERED = ["1", "2", "3"]
LOOKS_LIKE_A_VALUE = [
    "true",
    "false",
    "null",
    "none",
    "None",
    "1",
    "0",
    "2",
    "1.0",
    "01",
    "-1",
    "[1]",
    '"a"',
    "1e0",
    "NaN",
]
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
names = st.lists(st.sampled_from(LOOKS_LIKE_A_VALUE) | texts, min_size=2, max_size=6, unique=True)


def named(class_names):
    """Return a data set of 4 training samples and one test sample per class, with the class's position in the ids."""
    labels = np.repeat(np.arange(len(class_names)), 4)
    ids = [f"{label}/{row}" for row, label in enumerate(labels)]
    test = (np.zeros((len(class_names), 1)), np.arange(len(class_names)))
    return Dataset.from_arrays(np.zeros((len(labels), 1)), labels, ids=ids, class_names=class_names, test=test)


def forgotten(data, **request):
    """Return the positions of the classes whose samples are forgotten, and how many samples."""
    forget = make_splits(data, **request).forget
    return {name.split("/")[0] for name in forget.ids}, len(forget)


def usable(class_names):
    assume(all(name == name.strip() and len(name.splitlines()) == 1 for name in class_names))
    return class_names


@settings(max_examples=150, deadline=None)
@given(names)
@example(["2", "1", "0"])
def test_a_class_given_by_its_name_is_the_one_forgotten(class_names):
    dataset = named(usable(class_names))
    for position, name in enumerate(class_names):
        assert forgotten(dataset, forget_class=name) == ({str(position)}, 4)
        tree = {"forget": {"forget_class": 8}}
        override(tree, "forget.forget_class", name)
        assert forgotten(dataset, **tree["forget"]) == ({str(position)}, 4)


@settings(max_examples=150, deadline=None)
@given(names)
@example(["none", "null", "a, b", "a,b", "x=1"])
def test_a_request_forgets_the_class_that_it_names(class_names):
    assume(not any(re.search(r",\s*\w+=", name) for name in class_names))  # reads like another key of the request
    dataset = named(usable(class_names))
    for position, name in enumerate(class_names):
        whole, half = parse_request(f"class={name}"), parse_request(f"class={name},fraction=0.5")
        assert forgotten(dataset, **whole) == ({str(position)}, 4)
        assert forgotten(dataset, **half) == ({str(position)}, 2)


@settings(max_examples=150, deadline=None)
@given(names, st.integers(-2, 7))
def test_a_number_is_a_position_or_a_name_but_never_one_of_two(class_names, number):
    meant = {k for k, name in enumerate(class_names) if k == number or name == str(number)}
    if len(meant) == 1:
        assert {class_index(number, class_names)} == {class_index(np.int64(number), class_names)} == meant
    else:
        with pytest.raises(InputError, match="can mean two classes" if meant else "unknown class"):
            class_index(number, class_names)


@given(names, st.integers(0, 7))
def test_where_a_number_is_accepted_its_text_means_the_same(class_names, number):
    try:
        expected = class_index(number, class_names)
    except InputError:
        assume(False)
    assert class_index(str(number), class_names) == expected


@pytest.mark.parametrize(
    ("wanted", "class_names", "message"),
    [
        (1, NUMBERED, "class 1 can mean two classes: '1', or '2', which is at position 1.*as a text, '1' or '2'"),
        ("4", NUMBERED, "unknown class '4'"),
        ("00", NUMBERED, "unknown class '00'"),
        ("9" * 5000, NUMBERED, "unknown class '999"),
        ("none", NUMBERED, "unknown class 'none'.*; to name no class, leave it empty"),
        (True, ["true", "false"], "a class is given by name or number, got True"),
        (np.True_, ["true", "false"], "a class is given by name or number, got "),
        (1.0, NUMBERED, "a class is given by name or number, got 1.0"),
        (b"1", NUMBERED, "a class is given by name or number, got b'1'"),
    ],
)
def test_what_names_no_class_or_two_is_refused(wanted, class_names, message):
    with pytest.raises(InputError, match=message):
        make_splits(named(class_names), forget_class=wanted)
    with pytest.raises(InputError, match=message):
        make_splits(named(class_names), forget_fraction=0.5, earlier=[{"forget_class": wanted}])


def test_positions_of_names_that_are_no_numbers_and_of_kept_classes():
    assert forgotten(named(["cat", "dog"]), forget_class=1) == ({"1"}, 4)
    assert forgotten(named(["cat", "dog"]), forget_class="1") == ({"1"}, 4)
    assert forgotten(named(NUMBERED), forget_class=3) == ({"2"}, 4)
    assert forgotten(named(list("0123456789")), classes=["1", "3", "8"], forget_class=2) == ({"8"}, 4)
    with pytest.raises(InputError, match="class 1 can mean two classes: '1', or '3'"):
        make_splits(named(list("0123456789")), classes=["1", "3", "8"], forget_class=1)


@pytest.mark.parametrize("name", ["", " a", "a ", "a\nb", "a\0", "caf\udce9"])
def test_a_class_name_that_no_request_can_write_is_refused(name):
    with pytest.raises(InputError, match="cannot name a class"):
        named([name, "b"])
