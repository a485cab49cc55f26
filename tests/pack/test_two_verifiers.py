"""Two verifiers that share no code give the same numbers and refuse the same packs."""

import ast
import json
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

from residuum import verify_pack
from residuum.cli import run_command
from residuum.core.counts import Counts
from residuum.core.errors import InputError
from residuum.core.files import canonical
from residuum.pack import verify
from residuum.pack.derivation import derived_record
from residuum.pack.hashing import listed, root_of, seal_of
from residuum.pack.manifest import Manifest, Tool, expected_manifest
from residuum.pack.reading import parsed_record, unpacked
from residuum.pack.writing import page_of
from residuum.record import Results, sealed

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "reference" / "evidence-example.zip"
TABLES = 36  # of one pack: forgotten and held-out samples of 6 rows and 3 seeds
QUICK, LONG = 1, 28  # packs of random tables; 28 have 1,008 tables
TAMPERED = 200
NUMBERS = ("audits", "summary", "judgments", "noise_floor")
# what only numpy's generator, the models or the holder know, and what is compared as a text by one of them alone
ON_TRUST = ("bootstrap_low", "bootstrap_high", "settings", "nearer", "counts", "doubts", "text", "taus", "received")
ON_TRUST += ("delete_pack_by",)


def of(members: dict[str, bytes], target: Path) -> Path:
    """Write a pack with these members and the hashes that fit."""
    manifest = json.loads(members["manifest.json"])
    manifest["files"] = listed({name: part for name, part in members.items() if name != "manifest.json"})
    manifest["root"] = root_of(manifest["files"])
    manifest["seal"] = seal_of(manifest)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in (members | {"manifest.json": canonical(manifest)}).items():
            archive.writestr(name, part)
    return target


def answers(pack: Path) -> tuple[str, str]:
    """Return what each verifier says: no pack, differences, agrees, or agrees but for a page that was not checked."""
    said = []
    try:
        full = verify(pack)
        said.append("differences" if full.differences else "agrees" if full.page else "page not checked")
    except InputError:
        said.append("no pack")
    try:
        alone = verify_pack.Verifier(verify_pack.Members(pack))
        said.append("differences" if alone.differences else "agrees" if alone.page_checked else "page not checked")
    except verify_pack.NoPackError:
        said.append("no pack")
    return said[0], said[1]


def zipped(members, target: Path) -> Path:
    """Write members, in this order, as they are."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return target


@pytest.fixture(scope="module")
def example() -> dict[str, bytes]:
    """The members of the example, with the page and the name of this version."""
    with unpacked(EXAMPLE) as pack:
        members = {file.relative_to(pack.folder).as_posix(): file.read_bytes() for file in pack.folder.rglob("*.*")}
        members["report.html"] = page_of(parsed_record(members["results.json"]), pack.folder)
    tool = {"tool": Tool.installed().model_dump()}
    return members | {"manifest.json": canonical(json.loads(members["manifest.json"]) | tool)}


def test_the_verifiers_share_no_import():
    """The stand-alone one imports nothing of Residuum, and no module of Residuum but the command imports it."""
    tree = ast.parse((ROOT / "src" / "residuum" / "verify_pack.py").read_text(encoding="utf-8"))
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in imported if isinstance(node, ast.Import) for alias in node.names}
    names |= {f"{'.' * node.level}{node.module or ''}" for node in imported if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names
    calls = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert not calls & {"__import__", "eval", "exec", "compile"}
    assert "importlib" not in names
    sources = [path for path in (ROOT / "src").rglob("*.py") if path.name != "verify_pack.py"]
    users = [path.name for path in sources if "import verify_pack" in path.read_text(encoding="utf-8")]
    assert users == []


def random_counts(rng, ids, labels, taus, answers_of):
    """Return counts from the answers (n, T, draws) of original, model and reference; radius 0 has one draw."""
    joint, same = np.zeros((len(ids), len(taus), 8), int), np.zeros((len(ids), len(taus)), int)
    for t, tau in enumerate(taus):
        original, model, reference = (one[:, t, : 1 if tau == 0 else None].astype(int) for one in answers_of)
        pattern = 4 * original + 2 * model + reference
        for k in range(8):
            joint[:, t, k] = (pattern == k).sum(1)
        both, neither = ((model * reference).sum(1), ((1 - model) * (1 - reference)).sum(1))
        same[:, t] = both + rng.integers(0, neither + 1)
    return Counts.of_joint(ids, labels, taus, joint, same)


def right(rng, n, T, draws, skill):
    """Return random answers; some samples are always right, or never."""
    rate = np.clip(rng.normal(skill, 0.3, size=(n, 1, 1)), 0, 1)
    rate = np.where(rng.random((n, 1, 1)) < 0.1, rng.integers(0, 2, (n, 1, 1)), rate)
    return rng.random((n, T, draws)) < rate


def random_pack(seed: int, target: Path) -> Path:
    """Write a pack of random counts with the numbers that Residuum derives; forms, radii and controls vary."""
    rng = np.random.default_rng(seed)
    draws, crafted = int(rng.integers(2, 30)), rng.choice([None, None, "reference", "unlearned"])
    taus = [[0.0, 0.1, 0.2], [0.0, 0.05], [0.1, 0.2, 0.3], [0.0, 0.1, 0.2, 0.4]][seed % 4]
    enumerated = seed % 7 == 3
    with unpacked(EXAMPLE) as pack:
        content, manifest = json.loads(pack.read("results.json")), json.loads(pack.read("manifest.json"))
        content["scenario"]["form"] = "class" if seed % 3 == 2 else "sample"
        content["scenario"]["settings"]["audit"].pop("draws", None)
        for path in pack.folder.glob("counts/*"):
            path.unlink()
        nothing, number = [None] * len(taus), 0
        if seed % 5 == 4:
            del content["methods"]["control_2"]
        sets: dict[bool, tuple] = {}
        for run_seed in map(str, content["seeds"]):
            before, sets = sets, {}
            for held_out, n in ((False, int(rng.integers(2, 25))), (True, int(rng.integers(0, 60)))):
                ids = sorted(rng.bytes(16).hex() for _ in range(n))
                labels = rng.choice([1, 4, 7], size=n, p=[0.7, 0.25, 0.05])
                pair = [right(rng, n, len(taus), draws, skill) for skill in (0.9, 0.6)]
                sets[held_out] = ids, labels, pair
            if seed % 2 and before:  # all seeds have the same samples, as those of a run, so that memory is judged
                sets = before
            for label, row in content["methods"].items():
                result = row["per_seed"][run_seed]
                for name in ("retain_accuracy", "unlearn_accuracy", "test_accuracy", "mia_accuracy"):
                    result["metrics"][name] = float(np.round(rng.uniform(60, 100), 2))
                audit = result["audits"]["gaussian"]
                settings = audit["settings"] | {"draws": draws, "crafted_on": crafted, "enumerated": enumerated}
                path = f"counts/{number:04d}"
                number += 1
                for held_out, (ids, labels, (original, reference)) in sets.items():
                    skill = {"original": 0.9, "gd": 0.8, "eu_k": 0.3}.get(label, 0.6)
                    model = right(rng, len(ids), len(taus), draws, skill)
                    model = {"original": original, "retrain": reference}.get(label, model)
                    counts = random_counts(rng, ids, labels, taus, (original, model, reference))
                    counts.save(pack.folder / f"{path}{'-heldout' if held_out else ''}.json")
                result["audits"]["gaussian"] = {
                    "settings": settings,
                    "taus": taus,
                    "draws": [1] * len(taus),
                    "residual_knowledge": {"pooled": nothing, "low": nothing, "high": nothing},
                    "difference": {"value": nothing},
                    "counts": f"{path}.json",
                    "heldout": {"samples": 0, "counts": f"{path}-heldout.json"},
                }
        record = derived_record(Results.model_validate(content), pack.folder)
        (pack.folder / "results.json").write_bytes(canonical(record.as_dict(), sort_keys=False))
        (pack.folder / "report.html").write_bytes(page_of(record, pack.folder))
        models = {
            name: facts for name, facts in manifest["models"].items() if name.rpartition("/")[0] in record.methods
        }
        stated = Manifest.model_validate(manifest | {"models": models, "tool": Tool.installed()})
        forgotten = {i for *_, one in record.each_audit() for i in Counts.load(pack.folder / one.counts).ids}
        expected = expected_manifest(stated, record, forgotten).as_dict()
        files = {file.relative_to(pack.folder).as_posix(): file.read_bytes() for file in pack.folder.rglob("*.*")}
        return of(files | {"manifest.json": canonical(expected)}, target)


PACKS = [pytest.param(k, marks=() if k < QUICK else pytest.mark.long) for k in range(LONG)]


@pytest.mark.parametrize("seed", PACKS)
def test_both_derive_the_same_numbers_from_random_counts(seed, tmp_path):
    pack = random_pack(seed, tmp_path / "random.zip")
    assert verify(pack).differences == []
    alone = verify_pack.Verifier(verify_pack.Members(pack))
    assert alone.differences == []
    assert alone.page_checked


def leaves(value, where=()):
    """Yield the way to every number, truth value and null."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from leaves(part, (*where, key))
    elif isinstance(value, list):
        for k, part in enumerate(value):
            yield from leaves(part, (*where, k))
    elif not isinstance(value, str):
        yield where


def changed(value, rng):
    """Return another value of the same kind, far enough that no rounding explains it."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + int(rng.integers(1, 5))
    return float(rng.normal()) if value is None else value * 1.001 + 0.001


def with_leaf(members, name, rng):
    """Return the members with one number changed that counts and settings decide."""
    content = json.loads(members[name])
    if name == "manifest.json":  # `of` would put a changed entry right again
        content["files"] = listed({path: part for path, part in members.items() if path != name})
    ways = [where for where in leaves(content) if not {*map(str, where)} & {*ON_TRUST}]
    if name == "results.json":
        ways = [where for where in ways if {*where} & {*NUMBERS} and where[-2:-1] != ("samples",)]
    else:
        ways = [where for where in ways if where[0] in ("files", "request")]
    where = ways[int(rng.integers(len(ways)))]
    part = content
    for step in where[:-1]:
        part = part[step]
    part[where[-1]] = changed(part[where[-1]], rng)
    if name == "manifest.json":
        content |= {"root": root_of(content["files"])}
        content |= {"seal": seal_of(content)}
    written = canonical(content) if name == "manifest.json" else canonical(sealed(content), sort_keys=False)
    return members | {name: written}, f"{name}: {'/'.join(map(str, where))}"


def with_manifest_leaf(members, rng):
    """Return the members with one number of the manifest changed, and with the root and seal that fit."""
    return with_leaf(members, "manifest.json", rng)


def with_draw(members, rng):
    """Return the members with one draw of one sample moved to another pattern."""
    name = str(rng.choice(sorted(name for name in members if name.startswith("counts/"))))
    table = json.loads(members[name])
    row, radius = int(rng.integers(len(table["ids"]))), int(rng.integers(len(table["taus"])))
    cell = table["joint"][row][radius]
    taken = next(k for k in range(8) if cell[k])
    cell[taken] -= 1
    cell[(taken + int(rng.integers(1, 8))) % 8] += 1
    return members | {name: canonical(table)}, f"{name}: {row}, {radius}"


def with_byte(members, rng):
    """Return the members with one character of one file changed."""
    name = str(rng.choice(sorted(set(members) - {"report.html"})))
    content = bytearray(members[name])
    content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(7))
    return members | {name: bytes(content)}, name


def with_missing(members, rng):
    name = str(rng.choice(sorted(members)))
    return {key: part for key, part in members.items() if key != name}, f"without {name}"


def with_page(members, rng):
    """Return the members with one marked number of the page changed."""
    page = members["report.html"].decode()
    places = [k for k in range(len(page)) if page.startswith('/mean">', k)]
    place = places[int(rng.integers(len(places)))] + len('/mean">')
    digit = "1" if page[place] != "1" else "2"
    return members | {"report.html": (page[:place] + digit + page[place + 1 :]).encode()}, f"page at {place}"


KINDS = (
    lambda members, rng: with_leaf(members, "results.json", rng),
    lambda members, rng: with_leaf(members, "results.json", rng),
    with_manifest_leaf,
    with_draw,
    with_byte,
    with_missing,
    with_page,
)
PARTS = [pytest.param(k, marks=() if k == 0 else pytest.mark.long) for k in range(TAMPERED // 10)]


@pytest.mark.parametrize("part", PARTS)
def test_both_refuse_the_same_tampered_packs(part, example, tmp_path):
    for k in range(10 * part, 10 * part + 10):
        rng = np.random.default_rng(k)
        tampered, what = KINDS[k % len(KINDS)](example, rng)
        as_they_are = (with_byte, with_missing, with_manifest_leaf)
        seals = "manifest.json" in tampered and KINDS[k % len(KINDS)] not in as_they_are
        target = (of if seals else zipped)(tampered, tmp_path / f"{k}.zip")
        full, alone = answers(target)
        assert full == alone != "agrees", (k, what, full, alone)


def test_the_command_runs_the_file_alone(tmp_path, capsys):
    assert run_command(["verify", str(EXAMPLE), "--standalone"]) == 0
    assert "everything that was checked agrees" in capsys.readouterr().err
    (tmp_path / "text.zip").write_text("no pack")
    assert run_command(["verify", str(tmp_path / "text.zip"), "--standalone"]) == 2


def with_record(members, change):
    record = json.loads(members["results.json"])
    change(record)
    return members | {"results.json": canonical(sealed(record), sort_keys=False)}


def with_manifest(members, **more):
    return members | {"manifest.json": canonical(json.loads(members["manifest.json"]) | more)}


def counts_of(members, label):
    return json.loads(members["results.json"])["methods"][label]["per_seed"]["1"]["audits"]["gaussian"]["counts"]


def swapped(members):
    one, two = counts_of(members, "gd"), counts_of(members, "eu_k")
    return members | {one: members[two], two: members[one]}


def borrowed(members):
    """Let row gd name the counts of a control."""

    def change(record):
        audits = (record["methods"][label]["per_seed"]["1"]["audits"] for label in ("gd", "control"))
        gd, control = (audit["gaussian"] for audit in audits)
        gd["counts"] = control["counts"]

    return with_record(members, change)


def turned(record):
    record["judgments"]["gd"]["verdict"] = "NOT_DETECTED"


def more_draws(members):
    name = counts_of(members, "gd")
    table = json.loads(members[name])
    table["joint"] = [[[10**8 * k for k in cell] for cell in row] for row in table["joint"]]
    table["same_prediction"] = [[10**8 * k for k in row] for row in table["same_prediction"]]
    return members | {name: canonical(table)}


def another_kind(members):
    return with_record(members, lambda record: record.update(methods=[record["methods"]]))


def forged_page(members, old, new):
    assert old in members["report.html"]
    return members | {"report.html": members["report.html"].replace(old, new)}


def other_code(members):
    """A page of the forger's own, and the hash of code that nobody has."""
    tool = json.loads(members["manifest.json"])["tool"] | {"code_sha256": "0" * 64}
    return with_manifest(members | {"report.html": b"<h1>not detected</h1>"}, tool=tool)


def other_weights(members):
    models = json.loads(members["manifest.json"])["models"]
    return with_manifest(members, models=models | {"gd/1": models["gd/1"] | {"weights_sha256": "0" * 64}})


def many_members(members):
    return members | {f"counts/{number:04d}.json": b"{}" for number in range(9_000)}


NO_PACK, DIFFERENCES, AGREES, NO_PAGE = "no pack", "differences", "agrees", "page not checked"
# what somebody does to the members, and the answers of both; hashes are made anew
ATTACKS = {
    "a member outside the folder": (lambda m: m | {"../evil.json": b"{}"}, NO_PACK, NO_PACK),
    "an absolute name": (lambda m: m | {"/etc/evil.json": b"{}"}, NO_PACK, NO_PACK),
    "a Windows path": (lambda m: m | {"counts\\0000.json": b"{}"}, NO_PACK, NO_PACK),
    "a stranger": (lambda m: m | {"notes.txt": b""}, NO_PACK, NO_PACK),
    "9,000 members": (many_members, NO_PACK, NO_PACK),
    "nested lists without end": (lambda m: m | {"counts/0000.json": b"[" * 10**6}, NO_PACK, NO_PACK),
    "a large member": (lambda m: m | {"report.html": b" " * 17 * 2**20}, NO_PACK, NO_PACK),
    "another schema": (lambda m: with_manifest(m, schema="residuum.pack/9"), NO_PACK, NO_PACK),
    "JSON that is not canonical": (lambda m: m | {"results.json": m["results.json"] + b" "}, NO_PACK, NO_PACK),
    "a record of another kind": (another_kind, DIFFERENCES, DIFFERENCES),
    "a manifest of another kind": (lambda m: with_manifest(m, models=3), DIFFERENCES, DIFFERENCES),
    "counts that no audit names": (lambda m: m | {"counts/9999.json": b"{}"}, DIFFERENCES, DIFFERENCES),
    "counts of two rows swapped": (swapped, DIFFERENCES, DIFFERENCES),
    "a row with the counts of a control": (borrowed, DIFFERENCES, DIFFERENCES),
    "more draws than the settings say": (more_draws, DIFFERENCES, DIFFERENCES),
    "a verdict turned round": (lambda m: with_record(m, turned), DIFFERENCES, DIFFERENCES),
    "a number of the page": (
        lambda m: forged_page(m, b"1.23 [1.06, 1.30]", b"1.03 [0.96, 1.10]"),
        DIFFERENCES,
        DIFFERENCES,
    ),
    "a page of another program": (other_code, NO_PAGE, NO_PAGE),
    "a sentence of the page": (lambda m: forged_page(m, b"</body>", b"certified</body>"), DIFFERENCES, AGREES),
    "a key of the record": (lambda m: with_record(m, lambda r: r.update(certificate="yes")), DIFFERENCES, AGREES),
    "a key of the manifest": (lambda m: with_manifest(m, certificate="yes"), DIFFERENCES, AGREES),
    "other non-claims": (lambda m: with_manifest(m, non_claims=["certified"]), DIFFERENCES, AGREES),
    "other hashes of weights": (other_weights, AGREES, AGREES),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_each_attack_gets_its_answer_from_both(attack, example, tmp_path):
    change, *expected = ATTACKS[attack]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile warns of a name that stands twice
        pack = of(change(example), tmp_path / "attack.zip")
    assert answers(pack) == tuple(expected)


def test_what_the_file_alone_does_not_check_it_lists(example, tmp_path):
    def listed_by_it(change):
        pack = of(change(example), tmp_path / "attack.zip")
        return " ".join(verify_pack.Verifier(verify_pack.Members(pack)).not_checked)

    for attack in ("a key of the record", "a key of the manifest"):
        assert "what the format does not name: ['certificate']" in listed_by_it(ATTACKS[attack][0])
    assert "non_claims" in listed_by_it(ATTACKS["other non-claims"][0])
    assert "hashes and architectures of weights" in listed_by_it(other_weights)
    assert "sentences and pictures of the page" in listed_by_it(ATTACKS["a sentence of the page"][0])


def test_a_member_that_stands_twice_and_a_comment_are_no_pack(example, tmp_path):
    pack = of(example, tmp_path / "twice.zip")
    with warnings.catch_warnings(), zipfile.ZipFile(pack, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("report.html", b"another")
    assert answers(pack) == (NO_PACK, NO_PACK)
    pack = of(example, tmp_path / "comment.zip")
    with zipfile.ZipFile(pack, "a") as archive:
        archive.comment = b"certified"
    assert answers(pack) == (NO_PACK, NO_PACK)


@pytest.mark.parametrize("part", [0, *(pytest.param(k, marks=pytest.mark.long) for k in range(1, 10))])
def test_a_flipped_bit_of_the_file_gets_one_answer_from_both(part, example, tmp_path):
    content = of(example, tmp_path / "sound.zip").read_bytes()
    for seed in range(5 * part, 5 * part + 5):
        rng, flipped = np.random.default_rng(seed), bytearray(content)
        flipped[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
        (tmp_path / "flipped.zip").write_bytes(bytes(flipped))
        full, alone = answers(tmp_path / "flipped.zip")
        assert full == alone, seed  # a bit of a time stamp changes nothing, and both agree
