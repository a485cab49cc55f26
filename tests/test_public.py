"""Every public name exists, is documented, and comes from where the table says."""

from __future__ import annotations

import inspect

import pytest

import residuum


@pytest.mark.parametrize("name", residuum.__all__)
def test_public_names_resolve_and_are_documented(name):
    assert inspect.getdoc(getattr(residuum, name))
    assert name in dir(residuum)


def test_other_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        residuum.nothing  # noqa: B018
