"""Hashes of files and code, and pseudonyms under a key."""

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from residuum.core.errors import InputError
from residuum.core.files import canonical, regular_file

KEY_BYTES = 32
PSEUDONYM_BYTES = 16
SOURCES = (".py", ".html", ".j2", ".js", ".css")  # what decides numbers and pages


def sha256(content: bytes) -> str:
    """Return the SHA-256 of a content in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def listed(contents: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    """Return hash and size of every file."""
    return {path: {"sha256": sha256(content), "bytes": len(content)} for path, content in sorted(contents.items())}


def root_of(files: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the SHA-256 over the sorted lines "PATH SHA256": one number that stands for all files."""
    return sha256("".join(f"{path} {entry['sha256']}\n" for path, entry in sorted(files.items())).encode())


def seal_of(manifest: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a manifest without its seal: one number that stands for the whole pack."""
    return sha256(canonical({name: value for name, value in manifest.items() if name != "seal"}))


def code_sha256() -> str:
    """Return one hash over all of Residuum's source files."""
    return root_of(listed(dict(_sources(files("residuum"), ""))))


@lru_cache
def own_words() -> frozenset[str]:
    """Return the words in lower case of all of Residuum's source files."""
    sources = (content for _, content in _sources(files("residuum"), ""))
    return frozenset(
        word for content in sources for word in re.findall(r"(?<![^\W_])[a-z0-9]+(?![^\W_])", content.decode())
    )


def _sources(folder: Traversable, prefix: str) -> Iterable[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _sources(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(SOURCES):
            yield f"{prefix}{entry.name}", entry.read_bytes()


def read_key(path: Path | str) -> bytes:
    """Return the holder's key: at least 32 hexadecimal digits in a file."""
    try:
        key = bytes.fromhex(regular_file(path).read_text(encoding="ascii").strip())
    except OSError as error:
        raise InputError(f"cannot read the key {path}: {error.strerror}; give the file written with the pack") from None
    except ValueError:
        raise InputError(f"{path}: expected a key in hexadecimal digits, as `residuum pack` writes it") from None
    if len(key) < PSEUDONYM_BYTES:
        raise InputError(f"{path}: expected a key of at least {2 * PSEUDONYM_BYTES} hexadecimal digits")
    return key


def key_at(path: Path | str) -> bytes:
    """Return the key in this file; make one there, readable by its owner alone, if there is none."""
    if not Path(path).exists():
        created = False
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
                created = True
                file.write(secrets.token_hex(KEY_BYTES) + "\n")
        except OSError as error:
            if created:  # an empty key, because the disk is full, would be refused the next time
                Path(path).unlink(missing_ok=True)
            raise InputError(f"cannot write the key {path}: {error.strerror}; choose another with --key") from None
    return read_key(path)


class Pseudonyms:
    """HMAC-SHA256(k, id) in 128 bits, with k = HMAC-SHA256(holder's key, name of the pack).

    Ids can be guessed, so a plain hash could be undone by hashing all guesses. Two packs have different names, so that
    the same person has different pseudonyms in them.

    >>> first, second = (Pseudonyms(b"key of the holder", name) for name in ("one", "two"))
    >>> len(first("digits/0042")), first("digits/0042") == second("digits/0042")
    (32, False)
    """

    def __init__(self, key: bytes, name: str) -> None:
        self._key = hmac.digest(key, name.encode(), "sha256")

    def __call__(self, identity: str) -> str:
        """Return the pseudonym of an id in hexadecimal."""
        return hmac.digest(self._key, identity.encode(), "sha256")[:PSEUDONYM_BYTES].hex()


def ids_root(pseudonyms: Iterable[str]) -> str:
    """Return the SHA-256 over the sorted pseudonyms, one on each line: one number that stands for a set of samples.

    >>> ids_root(["aa", "bb"]) == ids_root(["bb", "aa"]) != ids_root(["aa"])
    True
    """
    return sha256("".join(f"{name}\n" for name in sorted(pseudonyms)).encode())
