"""`residuum init`, `unlearn` and `audit`: a request file names a network of your own, its data, and what to forget."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from residuum.cli import options
from residuum.cli.options import option, parse_setting
from residuum.cli.printing import print_requests, print_run
from residuum.core.console import say, tell
from residuum.core.errors import InputError, plural

if TYPE_CHECKING:
    from residuum.record.run import Run
    from residuum.request import Request, Unlearned
    from residuum.request.file import RequestFile
    from residuum.studies.execution import Resources

EVIDENCE = "evidence.zip"  # in the folder of the run
WARNING = "warning: "
FILE = "Request file, which `residuum init` writes."
SET = "section.key=value instead of the file's, e.g. unlearn.method=rurk; repeatable."


@dataclass(frozen=True, kw_only=True)
class RequestOptions:
    """A request file, and settings that replace those of the file."""

    file: Annotated[Path, typer.Argument(help=FILE)] = Path("deletion.toml")
    settings: Annotated[list[str] | None, option(SET, "--set")] = None

    def read(self) -> RequestFile:
        """Return what file and settings say."""
        from residuum.request.file import RequestFile

        return RequestFile.read(self.file, read_settings(self.settings))


INIT_SETTINGS = {  # by options of `init`
    "source": "model.source",
    "weights": "model.weights",
    "train": "data.train",
    "held_out": "data.held_out",
    "ids": "forget.ids",
    "function": "retrain.function",
}


def init_file(
    file: Annotated[Path, typer.Argument(help="Request file to write.")] = Path("deletion.toml"),
    source: Annotated[str | None, option("FILE.py:NAME of your network's class.")] = None,
    weights: Annotated[str | None, option("Its trained weights.")] = None,
    train: Annotated[str | None, option("Its training data: a folder, .npz or .csv file.")] = None,
    held_out: Annotated[str | None, option("Samples that no model was trained on.")] = None,
    ids: Annotated[str | None, option("Text file with one id to forget per line.")] = None,
    function: Annotated[str | None, option("FILE.py:NAME of your training function.")] = None,
    settings: Annotated[
        list[str] | None, option("section.key=value of any other setting; repeatable.", "--set")
    ] = None,
) -> None:
    """Write a request file.

    On a terminal it asks for what the options do not say; all other settings become comments.
    """
    if os.path.lexists(file):
        raise InputError(f"{file} exists; move it away, or give another name")
    if not file.parent.is_dir() or file.suffix != ".toml":
        raise InputError(f"expected a file that ends in .toml, in a folder that exists, got {file}")
    texts = (source, weights, train, held_out, ids, function)
    named = options.without_none(dict(zip(INIT_SETTINGS.values(), texts, strict=True)))
    more = read_settings(settings)
    if twice := next((key for key in more if key in named), None):
        raise options.twice_error(twice)
    from residuum.core.files import write_whole
    from residuum.request.file import file_text, needed_settings, settings_tree

    if sys.stdin.isatty():
        named |= {key: text for key in INIT_SETTINGS.values() if key not in {**named, **more} and (text := answer(key))}
    write_whole(file, file_text(settings_tree(named | more, file), file.name))
    missing = [key for key in needed_settings() if key not in named | more]
    still = f"fill in {', '.join(missing)}, then" if missing else "now"
    tell(f"{file}: {still} `residuum check {file}`")


def answer(key: str) -> str:
    """Ask for a setting on the terminal; an empty answer leaves it open."""
    from residuum.request.file import about

    text: str = typer.prompt(f"{key}: {about(key)}", default="", show_default=False, err=True)
    return text.strip()


def read_settings(texts: list[str] | None) -> dict[str, str]:
    """Return the settings of --set by their keys, each once."""
    pairs = [parse_setting(text) for text in texts or []]
    keys = [key for key, _ in pairs]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise InputError(f"expected --set {twice} once, got it twice; leave one out")
    return dict(pairs)


def check_request(name: str, file: RequestFile, as_json: bool) -> None:
    """Print what a request will meet; exit with 1 if something does not fit."""
    from residuum.request.preflight import preflight

    with file_words():
        answer = preflight(file)
    if as_json:
        options.print_json({**asdict(answer), "fits": answer.fits})
    else:
        tell(str(answer))
    if not answer.fits:
        tell(f"{name}: {plural(len(answer.problems), 'thing')} to look at before you go on", err=True)
        raise typer.Exit(1)
    tell(f"{name}: now `residuum run {name}`", err=True)


def unlearn_model(request: RequestOptions, as_json: options.Json = False) -> None:
    """Unlearn samples from your own network.

    Writes the weights and prints accuracy before and after.
    """
    file = request.read()
    _, done, lines = unlearned(file)
    if as_json:
        facts: dict[str, object] = {"weights": str(file.weights), "method": done.method}
        facts |= {"settings": dict(done.settings), "seed": done.seed}
        facts |= {"seconds": done.seconds, "passes": done.passes, "unchanged": done.unchanged}
        facts |= {"accuracy": {name: [done.before[name], done.after[name]] for name in done.before}}
        options.print_json(facts | {"warnings": [line.removeprefix(WARNING) for line in lines if WARNING in line]})
        return
    tell("\n".join([*lines, f"now `residuum audit {request.file}`"]))


def unlearned(file: RequestFile, request: Request | None = None) -> tuple[Request, Unlearned, list[str]]:
    """Return the request of a file, its unlearned model, which is saved, and what to print about both."""
    from residuum.core.errors import ResiduumWarning
    from residuum.request.file import in_file_words
    from residuum.request.steps import unlearned_once

    file.refuse_unusable_place()
    with file_words():
        request = request or file.load()
        check = request.check()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResiduumWarning)  # printed below
            done = unlearned_once(file, request)
    texts = [in_file_words(text) for text in (*check.problems, *done.warnings)]
    passes = f"{done.passes} passes over single samples" if done.passes else "trained by your function"
    changed = "no weight was changed" if done.unchanged else passes
    saved = f"{file.weights}: {done.label} in {done.seconds:.0f} s, {changed}"
    warned = [f"{WARNING}{text}" for text in texts]
    return request, done, [f"{request}: {str(check).splitlines()[0]}", str(done), *warned, saved]


def audit_model(
    request: RequestOptions,
    output: options.ReportOptions,
    workers: options.Workers = 1,
    yes: options.Yes = False,
    decoys: Annotated[bool, option("Retrain nothing: compare decoys with held-out samples.", "--decoys")] = False,
) -> None:
    """Audit your own unlearned network.

    Compares it with the original and with retrained models; writes the run and its report.
    """
    if decoys:
        audit_decoys(request.read(), output)
        return
    from residuum.request.file import in_file_words

    start = time.perf_counter()
    run = audited_run(request.read(), output, options.request_resources(workers, yes))
    print_run(run, start, as_json=output.as_json, words=in_file_words)
    output.exit_if_failed([run])


def audit_decoys(file: RequestFile, output: options.ReportOptions) -> None:
    """Audit the decoys that were unlearned with the request; exit with 1 if the audit is refused."""
    from residuum.record.decoys import DecoyConclusion
    from residuum.reporting.decoys import write_decoy_audits
    from residuum.request.models import Unlearned

    if output.fail_if:
        raise InputError("--fail-if is about verdicts by retraining; leave out --decoys or --fail-if")
    with file_words():
        request = file.load()
        models = {label: one for label, one in file.unlearned(request.network).items() if isinstance(one, Unlearned)}
        if not models:
            raise InputError("no weights of `residuum unlearn` to audit; unlearn with `--set unlearn.decoys=200`")
        audits = {label: request.decoy_audit(one, seed=file.audit.seed) for label, one in models.items()}
    files = write_decoy_audits(audits, file.output.folder, request.name)
    if output.as_json:
        options.print_json({label: audit.model_dump(mode="json") for label, audit in audits.items()})
    else:
        tell("\n".join([*(f"{label}: {audit}" for label, audit in audits.items()), *map(str, files)]))
    if any(audit.conclusion is DecoyConclusion.REFUSED for audit in audits.values()):
        raise typer.Exit(1)


def split_data(
    data: Annotated[Path, typer.Argument(help="All your data: a folder of class folders, an .npz or a .csv file.")],
    decoys: Annotated[int, option("Samples that stay in training and can be decoys later.", min=1)] = 200,
    held_out: Annotated[int | None, option("Samples to hold out. Default: twice as many.", min=1)] = None,
    seed: Annotated[int, option("Seed of the coin.", min=0)] = 7,
    label: Annotated[str | None, option("Column with the class.")] = None,
    out: Annotated[Path, option("Folder to write to.")] = Path("split"),
) -> None:
    """Toss a coin before training, for a later decoy audit.

    Writes training and held-out data, and a record of the coin (split.json).
    """
    from residuum.data.coin import RECORD, write_split

    coin = write_split(data, out, decoys=decoys, held_out=held_out or 2 * decoys, seed=seed, label=label)
    sizes = f"{len(coin.decoys)} possible decoys in training, {len(coin.held_out)} held out"
    tell(f"{out}: train on `train` and keep `held_out` apart; {sizes}")
    tell(f"{out / RECORD}: name it as data.split in the request file; SHA-256 {coin.sha256}")


def audited_run(
    file: RequestFile, output: options.ReportOptions, resources: Resources, request: Request | None = None
) -> Run:
    """Return the computed audit of a file, with its report."""
    from residuum.reporting import report
    from residuum.reporting.statement import write_statement
    from residuum.request.steps import deletion
    from residuum.request.study import audited

    gallery = file.audit.gallery if output.gallery is None else output.gallery
    with file_words():
        study = file.study(request, workers=resources.workers)
        output.check_conditions(["original", *(row.label for row in study.rows)])
        folder, store = file.output.folder, file.output.store
        run = audited(study, folder, store=store, resources=resources, gallery=gallery, progress=True)
    if facts := deletion(file, run):
        write_statement(run, facts)
    report(run, samples=output.samples)
    return run


def auditable_request(file: RequestFile, output: options.ReportOptions) -> Request:
    """Return the request of a file; refuse now, before it is unlearned, what its audit would refuse then."""
    with file_words():
        request = file.load()
        rows = file.audited_rows(request)
        if not file.audit.unlearned:
            output.check_conditions(rows)
    return request


def run_request(name: str, file: RequestFile, output: options.ReportOptions, resources: Resources) -> None:
    """Carry out a request: unlearn, audit, report, pack; exit with 1 and what to try if the audit does not pass."""
    from residuum.pack import pack
    from residuum.record.folder import STATEMENT
    from residuum.reporting import report
    from residuum.reporting.statement import write_statement
    from residuum.request.file import in_file_words
    from residuum.request.steps import deletion

    start = time.perf_counter()
    request = auditable_request(file, output)
    _, _, lines = unlearned(file, request)
    for line in lines:
        say(line)
    run = audited_run(file, output, resources, request)
    print_run(run, start, as_json=output.as_json, words=in_file_words)
    exit_unless_passed(file, run, name, "not passed")
    output.exit_if_failed([run])
    received = None if file.request.received is None else str(file.request.received)
    packed = pack(run, file.output.folder / EVIDENCE, splits=request.fitted(request.model), received=received)
    facts = deletion(file, run)
    if facts:
        write_statement(run, replace(facts, evidence=packed.file.name, seal=packed.seal))
    report(run, samples=output.samples)  # once more: it links the evidence
    if not output.as_json:
        if facts:
            tell(f"{run.folder / STATEMENT}: one page to print, for whoever answers the request")
        tell(f"{packed.file}: evidence that others can check with `residuum verify`; seal {packed.seal}")
        tell(f"{packed.key}: your key; keep it, and never hand it over with the evidence")


def run_sequence(
    name: str, file: RequestFile, folder: Path, output: options.ReportOptions, resources: Resources
) -> None:
    """Carry out a request for each list of ids in a folder; exit with 1 if the audit of the last does not pass."""
    from residuum.core.errors import ResiduumWarning
    from residuum.reporting import report
    from residuum.request.file import in_file_words
    from residuum.request.sequence import audited_sequence, file_studies, ticket_files

    start = time.perf_counter()
    gallery = file.audit.gallery if output.gallery is None else output.gallery
    lists = [path.resolve() for path in ticket_files(folder)]
    with file_words(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ResiduumWarning)  # they are in the record
        first = auditable_request(file, output)
        studies = file_studies(file, lists, first, workers=resources.workers, progress=True)
        output.check_conditions(studies[0].labels)
        out, store = file.output.folder, file.output.store
        runs = audited_sequence(studies, out, store, resources, gallery, progress=True)
    report(out, gallery=gallery, samples=output.samples)
    print_requests(runs, out, start, as_json=output.as_json, words=in_file_words)
    output.exit_if_failed(runs)
    exit_unless_passed(file, runs[-1], f"{name} --requests {folder}", "the last request did not pass")


def exit_unless_passed(file: RequestFile, run: Run, name: str, words: str) -> None:
    """Exit with 1, the reasons and what to try if the audit of a request did not pass."""
    from residuum.request.steps import failures, next_steps

    if reasons := failures(run):
        steps = [f"try: {text}" for text in next_steps(file, run, name)]
        tell("\n".join([*(f"residuum: {words}: {reason}" for reason in reasons), *steps]), err=True)
        raise typer.Exit(1)


@contextmanager
def file_words() -> Iterator[None]:
    """Say what is wrong in the words of a request file rather than in those of Python."""
    from residuum.request.file import in_file_words

    try:
        yield
    except InputError as error:
        raise InputError(in_file_words(str(error))) from None
