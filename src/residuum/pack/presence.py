"""Show that one sample is in the request of a pack, and tell nothing of the others."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from residuum.auditing import Counts
from residuum.errors import InputError
from residuum.pack.hashing import Pseudonyms, read_key
from residuum.pack.merkle import merkle_path, root_by_path
from residuum.pack.reading import read_json, read_manifest, read_pack, unpack
from residuum.pack.writing import MANIFEST

SCHEMA = "residuum.presence/1"


def prove_presence(pack: Path | str, sample_id: str, *, key: Path | str) -> dict[str, Any]:
    """Return the proof that a sample is among those of a pack's request: its pseudonym and the path to the root.

    Whoever has the pack, its manifest or only the root can check it with `root_by_path`. That the pseudonym is this
    sample's is known to the holder of the key alone.
    """
    contents = read_pack(pack)
    manifest = read_manifest(contents[MANIFEST])
    pseudonym, listed = Pseudonyms(read_key(key), str(manifest.get("name")))(sample_id), forgotten_ids(contents)
    if pseudonym not in listed:
        raise InputError(f"{sample_id!r} is not in the request of this pack, or the key is another one's")
    return {
        "schema": SCHEMA,
        "pack": manifest.get("name"),
        "seal": manifest.get("seal"),
        "pseudonym": pseudonym,
        "path": merkle_path(listed, pseudonym),
    }


def forgotten_ids(contents: Mapping[str, bytes]) -> set[str]:
    """Return the pseudonyms of all forgotten samples in a pack."""
    with tempfile.TemporaryDirectory() as folder:
        unpack(contents, Path(folder))
        files = [path for path in Path(folder, "counts").iterdir() if not path.stem.endswith("-heldout")]
        return {name for path in files for name in Counts.load(path).ids}


def presence_differences(manifest: Mapping[str, Any], file: Path | str) -> list[str]:
    """Return what is wrong with a proof of presence beside the manifest of its pack."""
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}; expected what `residuum prove` wrote") from None
    proof = read_json(content, str(file))
    if proof.get("schema") != SCHEMA:
        raise InputError(f"{file}: expected schema {SCHEMA!r}, got {proof.get('schema')!r}")
    if proof.get("pack") != manifest.get("name") or proof.get("seal") != manifest.get("seal"):
        return [f"{file}: a proof for another pack"]
    try:
        found = root_by_path(proof["pseudonym"], proof["path"])
    except (KeyError, TypeError, ValueError):
        return [f"{file}: no pseudonym with a path of hashes"]
    stated = manifest.get("request", {}).get("ids_hmac_root")
    return [] if found == stated else [f"{file}: its path does not lead to the root of the request"]
