"""`residuum audit`: what a network of your own still knows of samples it should have forgotten."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from residuum.cli import options, own
from residuum.cli.run import print_run
from residuum.errors import InputError


def audit_model(
    model: own.Model,
    weights: own.Weights,
    data: own.Data,
    forget: own.Forget,
    held_out: Annotated[Path, typer.Option(help="Samples that no model was trained on, as --data.")],
    unlearned: Annotated[list[str], typer.Option(help="[LABEL=]FILE of unlearned weights; repeatable.")],
    reference: Annotated[Path | None, typer.Option(help="Weights re-trained without the forgotten samples.")] = None,
    control: Annotated[list[Path] | None, typer.Option(help="More of them, with other seeds; repeatable.")] = None,
    retrain: own.Retrain = None,
    controls: Annotated[int, typer.Option(min=0, help="How many to train by --retrain or --recipe.")] = 3,
    innocents: Annotated[
        bool, typer.Option("--innocents", help="Let cheap, briefly trained stand-ins take their place: weaker.")
    ] = False,
    perturbations: options.Perturbations = None,
    taus: Annotated[
        str | None, typer.Option(help="Radii, comma-separated; for several perturbations the same.")
    ] = None,
    measures: options.Measures = None,
    draws: Annotated[int, typer.Option(min=1, help="Draws per forgotten sample and radius.")] = 100,
    out: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("runs/request"),
    validation: own.Validation = None,
    mean: own.Mean = None,
    std: own.Std = None,
    bounds: own.Bounds = "0,1",
    scale: own.Scale = None,
    categorical: own.Categorical = None,
    logits: own.Logits = None,
    batch: own.Batch = None,
    tokens: own.Tokens = False,
    at: own.At = None,
    label: own.Label = None,
    id_column: own.IdColumn = None,
    inputs: own.Inputs = None,
    size: own.Size = None,
    class_names: own.ClassNames = None,
    recipe: own.RecipeText = None,
    seed: own.Seed = 1,
    gallery: options.Gallery = None,
    samples: options.SampleList = None,
    fail_if: options.FailIf = None,
    as_json: options.Json = False,
) -> None:
    """Audit unlearned networks of your own beside the original and re-trained ones; write the run and its report."""
    start = time.perf_counter()
    named = labelled(unlearned)
    options.check_conditions(fail_if, ["original", *named])
    request, wrapped = own.own_model(
        model,
        data,
        forget,
        held_out=held_out,
        validation=validation,
        mean=mean,
        std=std,
        bounds=bounds,
        scale=scale,
        categorical=categorical,
        logits=logits,
        batch=batch,
        tokens=tokens,
        at=at,
        label=label,
        id_column=id_column,
        inputs=inputs,
        size=size,
        class_names=class_names,
        recipe=recipe,
        retrain=retrain,
    )
    run = request.audit(
        wrapped(weights),
        {label: wrapped(path) for label, path in named.items()},
        reference=None if reference is None else wrapped(reference),
        controls=[wrapped(path) for path in control] if control else controls,
        innocents=innocents,
        perturbations=own.split(perturbations),
        taus=own.numbers(taus, "--taus"),
        measures=own.split(measures),
        draws=draws,
        seed=seed,
        out=out,
    )
    run.report(gallery=gallery, samples=samples)
    if as_json:
        own.print_json(run.record.as_dict())
    else:
        print_run(run, time.perf_counter() - start)
    options.exit_for_failed_gate([run], fail_if)


def labelled(files: list[str]) -> dict[str, Path]:
    """Return weights files by the labels of their rows, by default the file's stem.

    >>> labelled(["new=a/b.pt", "c.safetensors"])
    {'new': PosixPath('a/b.pt'), 'c': PosixPath('c.safetensors')}
    """
    named: dict[str, Path] = {}
    for text in files:
        label, equals, path = text.partition("=")
        found = Path(path if equals else text)
        if (name := label if equals else found.stem) in named:
            raise InputError(f"--unlearned: two rows are called {name!r}; give LABEL=FILE")
        named[name] = found
    return named
