"""The hash tree over the pseudonyms of a request: one root for all, and a path that shows one of them alone."""

import hashlib
from collections.abc import Iterable, Sequence

from residuum.errors import InputError

Path = list[tuple[str, str]]  # from leaf to root: on which side the other node is, and its hash


def merkle_root(pseudonyms: Iterable[str]) -> str:
    """Return the root of the hash tree over sorted pseudonyms; a lone node goes up as it is.

    Leaves are SHA-256(0 || pseudonym), nodes SHA-256(1 || left || right), so that no node can pass for a leaf.

    >>> merkle_root(["aa", "bb"]) == merkle_root(["bb", "aa"]) != merkle_root(["aa"])
    True
    """
    levels = _levels(pseudonyms)
    return levels[-1][0].hex() if levels[-1] else hashlib.sha256(b"").hexdigest()


def merkle_path(pseudonyms: Iterable[str], pseudonym: str) -> Path:
    """Return the hashes that lead from one pseudonym to the root: they show it and tell nothing of the others.

    >>> path = merkle_path(["aa", "bb", "cc"], "bb")
    >>> [side for side, _ in path], root_by_path("bb", path) == merkle_root(["aa", "bb", "cc"])
    (['left', 'right'], True)
    """
    levels = _levels(pseudonyms)
    if _leaf(pseudonym) not in levels[0]:
        raise InputError("expected a sample of the request, got one that is not among its pseudonyms")
    place, path = levels[0].index(_leaf(pseudonym)), []
    for level in levels[:-1]:
        other = place ^ 1
        if other < len(level):
            path.append(("left" if other < place else "right", level[other].hex()))
        place //= 2
    return path


def root_by_path(pseudonym: str, path: Sequence[Sequence[str]]) -> str:
    """Return the root that a pseudonym and its path lead to."""
    node = _leaf(pseudonym)
    for side, other in path:
        pair = (bytes.fromhex(other), node) if side == "left" else (node, bytes.fromhex(other))
        node = _node(*pair)
    return node.hex()


def _levels(pseudonyms: Iterable[str]) -> list[list[bytes]]:
    levels = [[_leaf(each) for each in sorted(pseudonyms)]]
    while len(levels[-1]) > 1:
        pairs = [levels[-1][k : k + 2] for k in range(0, len(levels[-1]), 2)]
        levels.append([_node(*pair) if len(pair) == 2 else pair[0] for pair in pairs])
    return levels


def _leaf(pseudonym: str) -> bytes:
    return hashlib.sha256(b"\0" + bytes.fromhex(pseudonym)).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()
