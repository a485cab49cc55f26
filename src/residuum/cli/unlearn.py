"""`residuum unlearn`: make a network of your own forget samples it was trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from residuum.cli import own
from residuum.errors import tell

SUFFIXES = (".safetensors", ".pt", ".pth")


def unlearn_model(
    model: own.Model,
    weights: own.Weights,
    data: own.Data,
    forget: own.Forget,
    out: Annotated[Path, typer.Option(help="File of the unlearned weights, .safetensors or .pt, under your own keys.")],
    method: Annotated[str, typer.Option(help="NAME[:key=value...]; see `residuum list methods`.")] = "soft_reset",
    held_out: own.HeldOut = None,
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
    as_json: own.Json = False,
) -> None:
    """Unlearn samples from a network of your own; write its weights."""
    own.refuse_unwritable(out, SUFFIXES)
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
        retrain=None,
    )
    original = wrapped(weights)
    found = request.check(original)
    done = request.unlearn(original, method, seed=seed)
    done.save(out)
    changed = "no weight was changed" if done.unchanged else f"{done.passes} passes over single samples"
    if as_json:
        facts = {"out": str(out), "method": done.method, "settings": dict(done.settings), "seed": seed}
        facts |= {"seconds": done.seconds, "passes": done.passes, "unchanged": done.unchanged}
        own.print_json(facts | {"warnings": [*found.problems, *done.warnings]})
        return
    tell(f"{request}: {str(found).splitlines()[0]}")
    for text in (*found.problems, *done.warnings):
        tell(f"warning: {text}")
    tell(f"{out}: {done.label} in {done.seconds:.0f} s, {changed}; now audit it: residuum audit --unlearned {out} ...")
