"""`residuum report`, `pack` and `verify`: reports of stored runs, and evidence."""

import json
import subprocess
import sys
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from residuum.cli import options
from residuum.cli.options import option
from residuum.core.console import tell
from residuum.core.errors import plural

OwnMeasures = Annotated[str | None, option("Comma-separated FILE.py:FUNCTION of your own measures that the run used.")]
WithData = Annotated[bool, option("Load the run's data by name; --data-root says where they are.", "--with-data")]


def report_runs(
    output: options.ReportOptions,
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders of finished runs; several are compared.")
    ],
    out: Annotated[Path | None, option("Folder to write to; default: the run's own.", group=options.OUTPUT)] = None,
) -> None:
    """Write the report of stored runs.

    Writes report.html, table.tex, table.csv and samples.csv; loads no model.
    """
    from residuum.reporting import write_report
    from residuum.reporting.writing import loaded_runs

    judged = loaded_runs(list(runs)) if output.fail_if else []
    for run in judged:
        output.check_conditions(run.rows)
    written = [str(path) for path in write_report(list(runs), gallery=output.gallery, samples=output.samples, out=out)]
    typer.echo(json.dumps(written, indent=1) if output.as_json else "\n".join(written))
    output.exit_if_failed(judged)


def pack_run(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run, with its counts.")],
    output: Annotated[Path, option("The .zip file to write.")] = Path("evidence.zip"),
    key: Annotated[
        Path | None,
        option("File of your key, made if it does not exist. Default: named like the pack, ending in .key."),
    ] = None,
    with_data: WithData = False,
    data_root: options.DataRoot = None,
    received: Annotated[str | None, option("Date on which the request was received.")] = None,
    delete_by: Annotated[str | None, option("Date by which the pack must be deleted.")] = None,
    measures: OwnMeasures = None,
    names: Annotated[
        bool, option('Keep the names in your own data; without it classes become "class 0", ...', "--names")
    ] = False,
    name: Annotated[str | None, option("Name of the pack, as --seal-only printed it. Default: random.")] = None,
    seal_only: Annotated[
        bool, option("Print name and seal, to deposit them before anybody sees the pack; write no pack.", "--seal-only")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Write the evidence pack of a run.

    The pack holds counts, record and page without ids, images or paths, and a manifest over them.
    """
    from residuum.pack import pack
    from residuum.pack.reading import splits_of
    from residuum.record.run import Run

    done = Run.load(run)
    splits = splits_of(done.record, data_root) if with_data else None
    packed = pack(
        done,
        output,
        key=key,
        splits=splits,
        name=name,
        received=received,
        delete_by=delete_by,
        measures=options.split(measures) or (),
        names=names,
        seal_only=seal_only,
    )
    if as_json:
        file = None if seal_only else str(packed.file)
        options.print_json({"file": file, "key": str(packed.key), "name": packed.name, "seal": packed.seal})
        return
    if seal_only:
        tell(f"seal {packed.seal}: deposit it; `--name {packed.name}` with the same key and options gives this pack")
        return
    tell(f"{packed.file}: check it with `residuum verify {packed.file}`; seal {packed.seal}")
    tell(f"{packed.key}: your key; keep it, and never hand it over with the pack")


def verify_pack(
    pack: Annotated[Path, typer.Argument(help="A .zip file written by `residuum pack`.")],
    models: Annotated[Path | None, option("Folder of the run, or of its models: compare the weights.")] = None,
    with_data: WithData = False,
    data_root: options.DataRoot = None,
    key: Annotated[Path | None, option("The holder's key: compare ids with the data.")] = None,
    cells: Annotated[int, option("Number of cells to count again, with models, data and key.", min=1)] = 20,
    number: Annotated[
        int | None,
        option("Number that picks the cells. Default: random; it is printed, so you can repeat the check.", min=0),
    ] = None,
    measures: OwnMeasures = None,
    accept_page: Annotated[
        bool, option("Accept a page that cannot be checked because other code made it.", "--accept-page")
    ] = False,
    standalone: Annotated[
        bool, option("Check the pack with verify_pack.py alone, which shares no code with Residuum.", "--standalone")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Check an evidence pack; exit 1 if it differs.

    Recomputes every hash and number, names each difference, and lists what it did not check.
    """
    if standalone:
        flags = {"--accept-page": accept_page, "--json": as_json}
        command = [sys.executable, "-I", str(files("residuum") / "verify_pack.py"), str(pack)]
        command += [flag for flag, is_set in flags.items() if is_set]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        typer.echo(done.stdout, nl=False)
        typer.echo(done.stderr, nl=False, err=True)
        raise typer.Exit(done.returncode)
    from residuum.pack import verify
    from residuum.pack.reading import splits_of

    verification = verify(
        pack,
        models=models,
        splits=(lambda record: splits_of(record, data_root)) if with_data else None,
        key=key,
        cells=cells,
        number=number,
        measures=options.split(measures) or (),
        accept_page=accept_page,
    )
    differences, page = verification.differences, verification.page
    if as_json:
        options.print_json({**asdict(verification), "sound": verification.sound})
    else:
        unchecked_page = [] if page else verification.not_checked[:1]
        parts = {"checked": verification.checked, "not checked": verification.not_checked[len(unchecked_page) :]}
        lines = [f"{how}: {text}" for how, texts in parts.items() for text in texts]
        tell("\n".join([*(f"not checked: {text}" for text in unchecked_page), *differences, *lines]))
    if differences or not page:
        reasons = [plural(len(differences), "difference")] if differences else []
        tell(f"{pack}: {', '.join([*reasons, *([] if page else ['the page was not checked'])])}", err=True)
        raise typer.Exit(1)
    tell(f"{pack}: everything that was checked agrees", err=True)
