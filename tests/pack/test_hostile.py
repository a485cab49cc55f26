"""What a pack from anybody may cost: little memory and time, whatever it holds."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from residuum import verify_pack
from residuum.core.errors import InputError
from residuum.core.files import canonical
from residuum.pack import verify
from residuum.pack.hashing import listed, root_of, seal_of
from residuum.record import sealed

EXAMPLE = Path(__file__).parents[2] / "docs" / "reference" / "evidence-example.zip"
COUNTS = "counts/0000.json"
MOST_MEGABYTES, MOST_SECONDS = 300, 10


def members() -> dict[str, bytes]:
    with zipfile.ZipFile(EXAMPLE) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def filled(item: bytes, number: int) -> bytes:
    return b'{"ids":[' + (item + b",") * number + item + b"]}"


def changed(change) -> bytes:
    record = json.loads(members()["results.json"])
    change(record)
    return canonical(sealed(record), sort_keys=False)


def many_samples(number: int) -> bytes:
    ids, joint = [f"{i:x}" for i in range(number)], [[[0, 0, 0, 0, 0, 0, 0, 1]] * 3] * number
    radii, labels = [0.0, 0.1, 0.2], [4] * number
    return canonical(
        {"ids": ids, "joint": joint, "labels": labels, "same_prediction": [[1] * 3] * number, "taus": radii}
    )


def many_models(record):
    for row in record["methods"].values():
        metrics = row["per_seed"]["1"]["metrics"]
        row["per_seed"] |= {str(seed): {"metrics": metrics} for seed in range(10, 5000)}


def many_judgments(record):
    record["judgments"] |= {f"m{i}": {} for i in range(150_000)}


def many_draws() -> bytes:
    ids, most = [f"{i:x}" for i in range(3_000)], 2**27
    joint = [[[most + i, 0, 0, 0, 0, most - 7 * i, most + i, most]] * 3 for i in range(3_000)]
    same = [[2 * most + i] * 3 for i in range(3_000)]
    return canonical(
        {"ids": sorted(ids), "joint": joint, "labels": [4] * 3_000, "same_prediction": same, "taus": [0.0, 0.1, 0.2]}
    )


HOSTILE = {
    "draws": lambda: {COUNTS: many_draws()},
    "lists": lambda: {COUNTS: filled(b"[]", 450_000)},
    "objects": lambda: {COUNTS: filled(b"{}", 450_000)},
    "texts": lambda: {COUNTS: filled(b'"ab"', 2_800_000)},
    "floats": lambda: {COUNTS: filled(b"1.5", 3_500_000)},
    "depth": lambda: {COUNTS: b"[" * 100_000},
    "texts in the record": lambda: {"results.json": filled(b'"ab"', 2_800_000)},
    "depth of the record": lambda: {"results.json": b"[" * 100_000},
    "judgments": lambda: {"results.json": changed(many_judgments)},
    "warnings": lambda: {"results.json": changed(lambda r: r.update(warnings=["<b>" * 10] * 300_000))},
    "models": lambda: {"results.json": changed(many_models)},
    "samples": lambda: {f"counts/{number:04d}.json": many_samples(23_000) for number in range(4)},
    "page": lambda: {"report.html": b"\0" * 14_000_000},
}
REFUSED = {
    "too many lists": ({COUNTS: filled(b"[]", 1_000_000)}, "lists and objects"),
    "too many lists in the record": ({"results.json": filled(b"[]", 200_000)}, "lists and objects"),
    "a large file": ({"report.html": b"\0" * 17 * 2**20}, "16 MiB in one file"),
    "a large file out of a small one": (dict.fromkeys((COUNTS, "report.html"), b"\x00" * 10 * 2**20), "50 times"),
}


def written(target: Path, new: dict[str, bytes]) -> Path:
    """Write the example with other members and right hashes."""
    content = members() | new
    manifest = json.loads(content["manifest.json"])
    manifest["files"] = listed({name: part for name, part in content.items() if name != "manifest.json"})
    manifest["root"] = root_of(manifest["files"])
    manifest["seal"] = seal_of(manifest)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in (content | {"manifest.json": canonical(manifest)}).items():
            archive.writestr(name, part)
    return target


@pytest.mark.parametrize("name", REFUSED)
def test_a_pack_above_a_limit_is_refused_before_it_is_parsed(name, tmp_path):
    new, words = REFUSED[name]
    with pytest.raises(InputError, match=words):
        verify(written(tmp_path / "large.zip", new))


def test_a_list_of_members_that_never_ends_is_refused(tmp_path):
    content = EXAMPLE.read_bytes()
    end = bytearray(content[-22:])
    end[12:16] = (2**30).to_bytes(4, "little")
    (tmp_path / "long.zip").write_bytes(content[:-22] + bytes(end))
    with pytest.raises(InputError, match="a list of at most 4000 files"):
        verify(tmp_path / "long.zip")
    (tmp_path / "comment.zip").write_bytes(content[:-2] + b"\x05\x00extra")
    with pytest.raises(InputError, match="without a comment"):
        verify(tmp_path / "comment.zip")


MEASURED = """
import sys, time
import residuum.pack, residuum.reporting.page, scipy.stats, scipy.special
from residuum.core.errors import InputError

def peak():
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024

before = peak()
began = time.process_time()
try:
    print(len(residuum.pack.verify(sys.argv[1]).differences))
except InputError as error:
    print(error)
print(peak() - before, time.process_time() - began)
"""


ALONE = """
import resource, sys, time
sys.path.insert(0, sys.argv[2])
import verify_pack
try:
    print(len(verify_pack.Verifier(verify_pack.Members(verify_pack.Path(sys.argv[1]))).differences))
except verify_pack.NoPackError as error:
    print(error)
print(int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024, time.process_time())
"""
SCRIPTS = {"full": [sys.executable, "-c", MEASURED], "alone": [sys.executable, "-I", "-S", "-c", ALONE]}


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
@pytest.mark.parametrize("verifier", SCRIPTS)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_pack_costs_little_memory_and_time(name, verifier, tmp_path):
    pack = written(tmp_path / "hostile.zip", HOSTILE[name]())
    words = [*SCRIPTS[verifier], str(pack), str(Path(verify_pack.__file__).parent)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    megabytes, seconds = map(float, done.stdout.splitlines()[-1].split())
    print(f"{name}: {pack.stat().st_size / 1024:.0f} KiB, {megabytes:.0f} MB, {seconds:.1f} s")
    assert megabytes < MOST_MEGABYTES
    assert seconds < MOST_SECONDS
