"""`residuum pack` and `residuum verify`: evidence for others, and its check."""

from pathlib import Path
from typing import Annotated

import typer

from residuum.cli import options, own
from residuum.errors import InputError, plural, tell

OwnMeasures = Annotated[
    str | None, typer.Option(help="Comma-separated FILE.py:FUNCTION: the measures of your own that the run has.")
]
WithData = Annotated[
    bool, typer.Option("--data", help="Load the run's data, by name, too; --data-root says where they are.")
]


def pack_run(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run, with its counts.")],
    out: Annotated[Path, typer.Option(help="The .zip file to write.")] = Path("evidence.zip"),
    key: Annotated[
        Path | None, typer.Option(help="Your key; made if it does not exist. Default: beside the pack, .key.")
    ] = None,
    data: WithData = False,
    data_root: options.DataRoot = None,
    received: Annotated[str | None, typer.Option(help="When the request was received.")] = None,
    delete_by: Annotated[str | None, typer.Option(help="When the pack is to be deleted.")] = None,
    measures: OwnMeasures = None,
    sign: Annotated[Path | None, typer.Option(help="SSH key to sign with: writes PACK.sig (needs ssh-keygen).")] = None,
    as_json: options.Json = False,
) -> None:
    """Write the evidence of a run: counts, record and page without ids, images or paths, and a manifest over them."""
    from residuum.pack import pack
    from residuum.pack.data import splits_of
    from residuum.pack.signing import sign_file
    from residuum.reporting import Run

    done = Run.load(run)
    splits = splits_of(done.record, data_root) if data else None
    dates = {"received": received, "delete_by": delete_by}
    packed = pack(done, out, key=key, splits=splits, measures=own.split(measures) or (), **dates)
    signature = None if sign is None else sign_file(packed.file, sign)
    found = {"file": packed.file, "key": packed.key, "seal": packed.seal, "signature": signature}
    if as_json:
        options.print_json({name: value and str(value) for name, value in found.items()})
        return
    tell(f"{packed.file}: check it with `residuum verify {packed.file}`; seal {packed.seal}")
    tell(f"{packed.key}: your key; keep it, and never give it away with the pack")
    if signature is not None:
        tell(f"{signature}: signature")


def verify_pack(
    pack: Annotated[Path, typer.Argument(help="A .zip file written by `residuum pack`.")],
    models: Annotated[
        Path | None, typer.Option(help="Folder of the run, or of its models: compare the weights.")
    ] = None,
    data: WithData = False,
    data_root: options.DataRoot = None,
    key: Annotated[Path | None, typer.Option(help="The holder's key: compare ids with the data.")] = None,
    cells: Annotated[
        int, typer.Option(min=1, help="How many cells are counted again, with models, data and key.")
    ] = 20,
    number: Annotated[int, typer.Option(min=0, help="Your number, chosen now: it picks the cells.")] = 0,
    measures: OwnMeasures = None,
    presence: Annotated[
        Path | None, typer.Option(help="Written by `residuum prove`: check that one sample is in the request.")
    ] = None,
    signers: Annotated[Path | None, typer.Option(help="Allowed signers (ssh-keygen): check PACK.sig.")] = None,
    as_json: options.Json = False,
) -> None:
    """Recompute every hash and number of a pack, name each difference, and exit with 1 if there is one."""
    from residuum.pack import verify
    from residuum.pack.data import splits_of
    from residuum.pack.reading import read_record
    from residuum.pack.signing import signature_problem

    splits = splits_of(read_record(pack), data_root) if data else None
    found = verify(
        pack,
        models=models,
        splits=splits,
        key=key,
        cells=cells,
        number=number,
        measures=own.split(measures) or (),
        presence=presence,
    )
    wrong = [*found.differences, *([] if signers is None else signature_problem(pack, signers))]
    if as_json:
        options.print_json({"differences": wrong, "checked": found.checked, "not_checked": found.not_checked})
    else:
        looked_at = {"checked": found.checked, "not checked": found.not_checked}
        lines = [f"{how}: {text}" for how, texts in looked_at.items() for text in texts]
        tell("\n".join([*wrong, *lines]))
    if wrong:
        tell(f"{pack}: {plural(len(wrong), 'difference')}", err=True)
        raise typer.Exit(1)
    tell(f"{pack}: everything that was checked agrees", err=True)


def prove_sample(
    pack: Annotated[Path, typer.Argument(help="A .zip file written by `residuum pack`.")],
    sample: Annotated[str, typer.Argument(help="The whole id of a sample, as it is in the data.")],
    key: Annotated[Path, typer.Option(help="The key that was written with the pack.")],
    out: Annotated[Path, typer.Option(help="The .json file to write.")] = Path("presence.json"),
) -> None:
    """Write the proof that one sample is in the request of a pack, which tells nothing of the others."""
    from residuum.files import write_whole
    from residuum.pack import prove_presence
    from residuum.pack.hashing import canonical

    proof = canonical(prove_presence(pack, sample, key=key))
    try:
        write_whole(out, proof)
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}; choose another file with --out") from None
    tell(f"{out}: check it with `residuum verify {pack} --presence {out}`")
