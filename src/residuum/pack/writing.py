"""Write an evidence pack: counts, record and page of a run without what names people, and a manifest over them."""

import html
import io
import re
import secrets
import tempfile
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from residuum.auditing import Counts
from residuum.core.components import METHODS
from residuum.core.errors import InputError, warn
from residuum.core.files import write_whole
from residuum.core.roles import Role
from residuum.core.samples import Splits
from residuum.data.dataset import class_index
from residuum.pack.derivation import Tables, add_measures, derived_record, load_tables
from residuum.pack.hashing import Pseudonyms, canonical, key_at, listed, own_words
from residuum.pack.manifest import sealed_manifest, training_facts, weights_file
from residuum.record import Results
from residuum.record.folder import note_pack
from residuum.record.run import Run
from residuum.reporting.page import page_text

MANIFEST, RECORD, PAGE = "manifest.json", "results.json", "report.html"
MOST_FILES, MOST_LISTS = 4_000, 500_000  # of a pack: members, and lists and objects in its JSON
MOST_IN_RECORD, MOST_ROWS, MOST_MODELS = 200_000, 500, 5_000  # lists and objects of the record, its rows, their seeds
MOST_BYTES, MOST_IN_ONE = 256 * 2**20, 16 * 2**20  # of all its files, and of each
STAMP = (2000, 1, 1, 0, 0, 0)  # of every member: when a pack was zipped is nobody's business
OWN_DATA, OWN_METHOD = "own data", "own"
LEFT_OUT_TEXT = "a text that names a file or a sample is left out"
PATH = re.compile(r"(?:[A-Za-z]:)?(?:[/\\][\w.+ -]+){2,}|~[/\\]|\.\.[/\\]")
QUOTED = r"'[^']+'|\"[^\"]+\""  # how messages show what the user named
NAME = re.compile(r"(?=.*[^\W\d_]).{2,}", re.DOTALL)  # of a class: one letter, or a number, names nobody
PSEUDONYM, ESCAPED = re.compile("[0-9a-f]{32}"), re.compile(r"\\u([0-9a-fA-F]{4})")
SHORT_ID = 6  # an id of fewer characters, such as a row's number, is in any file by chance


@dataclass(frozen=True)
class Packed:
    """A pack: its file, the file of its key, its name, and the seal that stands for all of it."""

    file: Path
    key: Path
    name: str
    seal: str


def pack(
    run: Run | Path | str,
    file: Path | str,
    *,
    key: Path | str | None = None,
    splits: Splits | None = None,
    name: str | None = None,
    received: str | None = None,
    delete_by: str | None = None,
    measures: Sequence[str] = (),
    names: bool = False,
    seal_only: bool = False,
) -> Packed:
    """Write the evidence of a run to a .zip file that `residuum verify` can check, and that names nobody.

    Args:
        run: a run or its folder, with results.json and counts; weights are hashed where the folder has them.
        file: the .zip file to write.
        key: the holder's key, made if the file does not exist; default: the name of the pack with the suffix .key.
        splits: the data of the run; then the pack also says what the reference was trained on, and how many forgotten
            samples have a near-duplicate among the retained ones.
        name: of the pack, random by default: pseudonyms in packs of different names cannot be linked. The same run,
            key, name and options give the same seal.
        received: when the request was received.
        delete_by: when the pack is to be deleted: counts per person remain personal data.
        measures: FILE.py:FUNCTION of each measure of your own, where this process has not used it yet.
        names: whether classes, rows and texts of data that are not public keep their names; "class 0", ... by default,
            because a class may be a person.
        seal_only: write no pack, only the key, and return name and seal, to be deposited before anybody sees the pack.

    Returns:
        The file, the key's file, the name, and the seal: a hash to publish or deposit, by which a later pack is known
        for one.
    """
    run = run if isinstance(run, Run) else Run.load(run)
    target, key_file = Path(file), Path(key) if key is not None else Path(file).with_suffix(".key")
    if target.suffix != ".zip":
        raise InputError(f"expected a file that ends in .zip, got {target}")
    if other := add_measures(run.record, measures):
        raise InputError(f"{other[0]}; the numbers of the run are those of the other file")
    try:
        tables = load_tables(run.record, run.folder)
    except FileNotFoundError as error:
        raise InputError(f"{error.filename} is missing; a pack needs the counts of the run") from None
    if not tables:
        raise InputError(f"{run.folder} has no audits; a pack is about an audit")
    pack_name = name or secrets.token_hex(8)
    pseudonyms = Pseudonyms(key_at(key_file), pack_name)
    hidden = not (names or run.record.scenario.public_data)
    labels = _private_labels(run.record) if hidden else {}
    record, contents = _private_run(run.record, tables, pseudonyms, labels, hidden=hidden)
    forgotten = {pseudonyms(name) for counts, _ in tables.values() for name in counts.ids}
    manifest = sealed_manifest(
        pack_name,
        record,
        forgotten=forgotten,
        received=received,
        delete_by=delete_by,
        weights={
            f"{labels.get(label, label)}/{seed}": weights_file(run.folder, f"{label}/{seed}")
            for label, row in run.record.methods.items()
            for seed in row.per_seed
        },
        data={} if splits is None else training_facts(splits, pseudonyms),
        files=listed(contents),
    )
    contents[MANIFEST] = canonical(manifest)
    shown = {name for pair in tables.values() for counts in pair if counts is not None for name in counts.ids}
    refuse_leaks(contents, sorted(shown), run.folder, _hidden_names(run.record, labels, shown) if hidden else ())
    lists = sum(content.count(b"[") + content.count(b"{") for path, content in contents.items() if path != PAGE)
    if lists > MOST_LISTS or max(map(len, contents.values())) > MOST_IN_ONE:
        raise InputError(
            "the audit is too large for a pack, which anybody must be able to check; pack fewer rows or samples"
        )
    packed = Packed(target, key_file, pack_name, manifest["seal"])
    if seal_only:
        return packed
    _write_zip(target, contents)
    try:
        note_pack(run.folder, target)
    except OSError as error:
        warn(f"cannot note the pack in {run.folder} ({error.strerror}): residuum forget will not name it")
    return packed


@contextmanager
def temporary_space() -> Iterator[None]:
    """Say in one line that the temporary folder is full, or cannot be written to."""
    try:
        yield
    except OSError as error:
        text = "cannot write to the temporary folder"
        raise InputError(f"{text}: {error.strerror}; free some space there, or set TMPDIR to another folder") from None


def _private_run(
    record: Results, tables: Tables, pseudonyms: Pseudonyms, labels: Mapping[str, str], *, hidden: bool
) -> tuple[Results, dict[str, bytes]]:
    """Return the record that follows from counts without ids, and the files of both and of their page.

    Rows get the new `labels`, and classes no names if these are `hidden`.
    """
    classes = set(range(len(record.scenario.class_names)))
    classes |= {label for pair in tables.values() for counts in pair if counts for label in counts.labels.tolist()}
    by_key = sorted(classes, key=lambda label: pseudonyms(f"class {label}"))
    numbers = {label: number for number, label in enumerate(by_key)}  # in an order that the key decides
    content = private_record(record, numbers if hidden else None)
    with temporary_space(), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "counts").mkdir()
        for number, ((label, seed, perturbation), pair) in enumerate(tables.items()):
            audit: dict[str, Any] = content["methods"][label]["per_seed"][seed]["audits"][perturbation]
            for counts, entry, suffix in zip(pair, (audit, audit.get("heldout")), ("", "-heldout"), strict=True):
                if counts is not None and entry is not None:
                    entry["counts"] = f"counts/{number:04d}{suffix}.json"
                    private_counts(counts, pseudonyms, numbers).save(folder / entry["counts"])
            audit["first_radius"] = {}
        content["methods"] = {labels.get(label, label): row for label, row in content["methods"].items()}
        if decoys := content.get("decoys"):
            content["decoys"] = {labels.get(label, label): audit for label, audit in decoys.items()}
            for audit in decoys.values() if hidden else ():
                audit["scores"]["labels"] = [numbers[label] for label in audit["scores"]["labels"]]
        private = derived_record(Results.model_validate(content), folder)
        (folder / RECORD).write_bytes(canonical(private.as_dict(), sort_keys=False))  # rows keep their order
        (folder / PAGE).write_bytes(page_of(private, folder))
        files = [path for path in folder.rglob("*") if path.is_file()]
        return private, {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def page_of(record: Results, folder: Path) -> bytes:
    """Return the page of a packed record, whose files are in the folder."""
    return page_text([Run(folder, record.scenario.name, record)]).encode()


def _write_zip(target: Path, contents: Mapping[str, bytes]) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(contents):
            archive.writestr(zipfile.ZipInfo(path, STAMP), contents[path], zipfile.ZIP_DEFLATED)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, stream.getvalue())
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror}; choose another file with --output") from None


def private_counts(counts: Counts, pseudonyms: Pseudonyms, numbers: Mapping[int, int]) -> Counts:
    """Return the counts with pseudonyms for ids, in their order, and with other numbers for the classes.

    Which samples belong to one class remains, because memory is measured class by class; which class that is does not.
    """
    labels = np.array([numbers[int(label)] for label in counts.labels], dtype=np.int64)
    ids = [pseudonyms(sample_id) for sample_id in counts.ids]
    order = np.array(sorted(range(len(ids)), key=ids.__getitem__), dtype=np.int64)
    return replace(counts, ids=tuple(ids), labels=labels).rows(order)


def private_record(record: Results, numbers: Mapping[int, int] | None) -> dict[str, Any]:
    """Return the record's content without ids, names of data and files, and paths.

    With the `numbers` of the classes, without the names of these too.
    """
    content = record.as_dict()
    content.pop("files", None)  # the manifest has those of the pack
    scenario = content["scenario"]
    _forget_data(scenario, record)
    used = [plugin for plugins in scenario.get("plugins", {}).values() for plugin in plugins.values()]
    for described in [*used, *(scenario.get("init_from") or {}).values()]:
        if described:
            described.pop("file", None)
    names = [] if numbers is None else [name for name in record.scenario.class_names if NAME.fullmatch(name)]
    if numbers is not None:
        _forget_class_names(scenario, numbers)
        for row in content["methods"].values():
            if row["method"] not in METHODS and row["role"] == Role.METHOD:
                row["method"] = OWN_METHOD
            if "trained_by" in row.get("settings", {}):
                row["settings"]["trained_by"] = OWN_METHOD  # the name of a function of the holder's
    noted = [content, *(result for row in content["methods"].values() for result in row["per_seed"].values())]
    naming = re.compile("|".join([PATH.pattern, *([] if numbers is None else [QUOTED, *map(word, names)])]))
    for part in [*noted, *content["methods"].values()]:
        for name, entry in part.get("probes", {}).items():
            entries = {key: value for key, value in entry.items() if not _names_things(value)}
            if "note" in entries:
                entries["note"] = _without_names(entries["note"], naming)
            part["probes"][name] = entries
    for part in noted:
        for name in {"warnings", "notes"} & part.keys():
            part[name] = _without_names(part[name], naming)
    return content


def _forget_data(scenario: dict[str, Any], record: Results) -> None:
    """Leave out the names of data that are not public, what describes them, and ids."""
    settings = scenario.setdefault("settings", {})
    if not record.scenario.public_data:
        scenario["name"] = OWN_DATA
        settings["data"] = {**settings.get("data", {}), "name": OWN_DATA}
        settings |= {"description": ""} if settings.get("description") else {}
        for things in scenario.get("plugins", {}).values():
            if record.scenario.settings.data.name in things:
                used = things.pop(record.scenario.settings.data.name)
                things[OWN_DATA] = {what: text for what, text in used.items() if what == "sha256"}
    for request in [settings.get("forget") or {}, *settings.get("earlier", [])]:
        if request.get("forget_ids") is not None:
            request |= {"forget_ids": None, "listed": len(request["forget_ids"])}
    settings |= {"picture": None} if settings.get("picture") else {}


def _forget_class_names(scenario: dict[str, Any], numbers: Mapping[int, int]) -> None:
    """Put "class 0", "class 1", ... in the place of the names of classes, in the order of the pack's numbers."""
    names = scenario.get("class_names") or [str(label) for label in sorted(numbers)]
    settings = scenario["settings"]
    for request in [settings.get("forget") or {}, *settings.get("earlier", [])]:
        if request.get("forget_class") is not None:
            request["forget_class"] = f"class {numbers[class_index(request['forget_class'], names)]}"
    scenario["class_names"] = [f"class {number}" for number in range(len(scenario.get("class_names", [])))]
    if settings["data"].get("classes"):
        settings["data"]["classes"] = [f"class {number}" for number in range(len(settings["data"]["classes"]))]


def word(name: str) -> str:
    """Return the pattern of a name as a whole word."""
    return rf"(?<!\w){re.escape(name)}(?!\w)"


def _without_names(value: object, naming: re.Pattern[str]) -> object:
    """Return warnings or notes with a remark in the place of each text that may name something.

    >>> _without_names(["5 draws are few", "/home/user/store: broken"], PATH)
    ['5 draws are few', 'a text that names a file or a sample is left out']
    """
    if isinstance(value, dict):
        return {key: _without_names(part, naming) for key, part in value.items()}
    if isinstance(value, list):
        return [_without_names(part, naming) for part in value]
    return LEFT_OUT_TEXT if isinstance(value, str) and naming.search(value) else value


def _private_labels(record: Results) -> dict[str, str]:
    """Return "row 1", "row 2", ... for rows whose labels are the holder's own words, not those of a method."""
    labels = [label for label in record.rows_of(Role.METHOD) if label.partition(":")[0] not in METHODS]
    return {label: f"row {number}" for number, label in enumerate(labels, start=1)}


def _hidden_names(record: Results, labels: Iterable[str], ids: Iterable[str]) -> set[str]:
    """Return the names of data, classes, rows and folders that no text of a pack may have.

    Names of ordinary words, such as "yes", are no names: they are in the page of every pack.
    """
    folders = {part for sample_id in ids for part in sample_id.split("/")[:-1]}
    data = {record.scenario.name, record.scenario.settings.data.name}
    names = {*record.scenario.class_names, *labels, *folders, *data}
    ordinary = own_words()
    return {
        name for name in names if NAME.fullmatch(name) and not set(re.findall(r"[^\W_]+", name.lower())) <= ordinary
    }


def _names_things(value: object) -> bool:
    """Tell whether a value of a probe could list samples: anything but a number, a text, or a list of numbers."""
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(part, str | dict) for part in value))


def refuse_leaks(contents: Mapping[str, bytes], ids: Iterable[str], folder: Path, names: Collection[str]) -> None:
    """Refuse to write a text that still names something: no list of places to clean is complete.

    Searched are all texts of all files, as they are and as HTML, JSON and addresses escape them: for ids and the run's
    folder anywhere, for `names` as whole words.
    """
    leaks = {sample_id: f"the id {sample_id!r}" for sample_id in ids if len(sample_id) >= SHORT_ID}
    if len(resolved := str(folder.resolve())) > SHORT_ID:
        leaks[resolved] = "the path of the run"
    naming = re.compile("|".join(map(word, sorted(names))), re.IGNORECASE) if names else None
    for path, content in contents.items():
        text = content.decode()
        if path.startswith("counts/"):  # pseudonyms and five keys, or something that has to be searched
            text = "\n".join(text for text in re.findall(r'"([^"]*)"', text) if not PSEUDONYM.fullmatch(text))
        plain = html.unescape(unquote(ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)))
        leak = next((what for secret, what in leaks.items() if secret in text or secret in plain), None)
        if leak is None and naming and (match := naming.search(f"{text}\n{plain}")):
            leak = f"the name {match[0]!r}"
        if leak is not None:
            raise InputError(
                f"the pack would hold {leak} in {path}; rename what carries it, or allow names with --names"
            )
