"""Canonical JSON, hashes of files and code, pseudonyms under a key with their hash tree, and signatures."""

import hashlib
import hmac
import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from residuum.errors import InputError
from residuum.files import regular_file

KEY_BYTES = 32
PSEUDONYM_BYTES = 16
HashPath = list[tuple[str, str]]  # from leaf to root: on which side the other node is, and its hash
NAMESPACE = "residuum-pack"  # of signatures by ssh-keygen
PATIENCE = 300.0  # seconds; somebody may have to type a passphrase


def canonical(value: Any) -> bytes:  # noqa: ANN401 (any JSON value)
    """Return JSON with sorted keys, without spaces, in UTF-8 and without NaN: equal values give equal bytes.

    >>> canonical({"b": 1.0, "a": [None, "ü"]}).decode()
    '{"a":[null,"ü"],"b":1.0}'
    """
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode()


def sha256(content: bytes) -> str:
    """Return the SHA-256 of a content in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def listed(contents: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    """Return hash and size of every file."""
    return {path: {"sha256": sha256(content), "bytes": len(content)} for path, content in sorted(contents.items())}


def root_of(files: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the SHA-256 over the sorted lines "PATH SHA256": one number that stands for all files."""
    return sha256("".join(f"{path} {found['sha256']}\n" for path, found in sorted(files.items())).encode())


def seal_of(manifest: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a manifest without its seal: one number that stands for the whole pack."""
    return sha256(canonical({name: value for name, value in manifest.items() if name != "seal"}))


def code_sha256() -> str:
    """Return one hash over all of Residuum's source files."""
    return root_of(listed(dict(_sources(files("residuum"), ""))))


def _sources(folder: Traversable, prefix: str) -> Iterable[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _sources(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".py"):
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
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                with open(handle, "w", encoding="ascii") as file:
                    file.write(secrets.token_hex(KEY_BYTES) + "\n")
            except BaseException:  # a full disk: half a key would be refused the next time
                Path(path).unlink(missing_ok=True)
                raise
        except OSError as error:
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


def merkle_root(pseudonyms: Iterable[str]) -> str:
    """Return the root of the hash tree over sorted pseudonyms; a lone node goes up as it is.

    Leaves are SHA-256(0 || pseudonym), nodes SHA-256(1 || left || right), so that no node can pass for a leaf.

    >>> merkle_root(["aa", "bb"]) == merkle_root(["bb", "aa"]) != merkle_root(["aa"])
    True
    """
    levels = _levels(pseudonyms)
    return levels[-1][0].hex() if levels[-1] else hashlib.sha256(b"").hexdigest()


def merkle_path(pseudonyms: Iterable[str], pseudonym: str) -> HashPath:
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


def _ssh_keygen(*arguments: str, content: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise InputError("expected ssh-keygen for signatures, it is not installed; leave --sign and --signers out")
    try:
        given = [program, "-Y", *arguments]
        return subprocess.run(given, input=content, capture_output=True, check=False, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise InputError(f"waited {PATIENCE:.0f} s for ssh-keygen; does it ask for a passphrase somewhere?") from None


def sign_file(file: Path, key: Path) -> Path:
    """Return the signature of a file, which is written beside it with the suffix .sig."""
    signature = file.with_name(f"{file.name}.sig")
    signature.unlink(missing_ok=True)
    done = _ssh_keygen("sign", "-f", str(key), "-n", NAMESPACE, str(file))
    if done.returncode or not signature.is_file():
        raise InputError(f"ssh-keygen cannot sign with {key}: {done.stderr.decode(errors='replace').strip()}")
    return signature


def signature_problem(file: Path, signers: Path) -> list[str]:
    """Return why the signature beside a file is not one of the allowed signers', or nothing."""
    signature = file.with_name(f"{file.name}.sig")
    if not signature.is_file():
        return [f"{signature}: there is no signature"]
    found = _ssh_keygen("find-principals", "-s", str(signature), "-f", str(signers))
    name = found.stdout.decode(errors="replace").strip().partition("\n")[0]
    if found.returncode or not name:
        return [f"{signature}: made by none of the signers in {signers}"]
    arguments = ("verify", "-f", str(signers), "-I", name, "-n", NAMESPACE, "-s", str(signature))
    done = _ssh_keygen(*arguments, content=file.read_bytes())
    return [f"{signature}: the signature is not one of this file"] if done.returncode else []
