"""What a generated page is."""

from typing import NamedTuple


class Page(NamedTuple):
    """A page of the site that is made, not written: its path, its title in the navigation, and its text."""

    path: str
    title: str
    text: str
