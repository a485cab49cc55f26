"""Warnings are shown once, however often the filters are touched, and always where a filter asks for it."""

import subprocess
import sys
import warnings

import pytest

from residuum.core.errors import InputError, ResiduumWarning, warn
from residuum.unlearning import make_method

SCRIPT = """
import warnings
from residuum.core.errors import warn
for _ in range(16):
    with warnings.catch_warnings():  # as torch does
        warnings.simplefilter("ignore", DeprecationWarning)
    warn("the same")
    warn("another")
"""


def test_sixteen_identical_warnings_are_one():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stderr.count("the same") == 1
    assert done.stderr.count("another") == 1


def test_who_asks_for_every_warning_gets_every_warning():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResiduumWarning)
        for _ in range(3):
            warn("again and again")
    assert [str(each.message) for each in caught] == ["again and again"] * 3
    with pytest.raises(ResiduumWarning, match="again"):  # the tests make warnings errors
        warn("again and again")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("augment", "x", "gd: augment: expected true or false or 'reflect', got 'x'"),
        ("epochs", 10**9, "gd: epochs: expected 1000000 or less, got 1000000000"),
        ("lr", "fast", "gd: lr: expected a number, got 'fast'"),
    ],
)
def test_a_wrong_setting_is_said_with_all_that_it_could_be(name, value, said):
    with pytest.raises(InputError) as caught:
        make_method("gd", {name: value})
    assert str(caught.value) == said
