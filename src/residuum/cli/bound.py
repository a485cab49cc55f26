"""`residuum bound ...`: the theory calculators on the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from residuum.cli.options import Json
from residuum.errors import InputError, tell

if TYPE_CHECKING:
    from residuum.theory.result import Array, Bound


class Calculators(TyperGroup):
    """The calculators know nothing of Residuum's errors; here what they refuse becomes bad input."""

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]
        """Run the command."""
        try:
            return super().invoke(ctx)
        except ValueError as error:
            raise InputError(str(error)) from None


HELP = "Theory calculators: each prints its value, whether it says anything, and what it assumes."
app = typer.Typer(cls=Calculators, help=HELP, no_args_is_help=True)

Eps = Annotated[float, typer.Option(help="Epsilon, 0 or more.")]
Delta = Annotated[float, typer.Option(help="Delta, between 0 and 1.")]
Dimension = Annotated[int, typer.Option(help="Dimension of the input space, 2 or more.")]
Radius = Annotated[float, typer.Option(help="Perturbation radius, relative to the input's norm.")]
Ratio = Annotated[float, typer.Option(help="Residual knowledge r.")]
Accuracy = Annotated[float, typer.Option(help="Accuracy of the re-trained model on the same inputs.")]
Orders = Annotated[list[float], typer.Option(help="Order above 1; repeat for a curve.")]
Divergences = Annotated[list[float], typer.Option(help="Renyi divergence of that order; repeat alike.")]
Samples = Annotated[int, typer.Option("--n", help="Training samples before any removal.")]
Removed = Annotated[list[int], typer.Option(help="Samples removed; repeat for a sequence of requests.")]
Steps = Annotated[list[int], typer.Option(help="Unlearning steps; repeat, one per request.")]
LearnSteps = Annotated[int, typer.Option(help="Steps of the first training.")]
Strength = Annotated[float, typer.Option("--l2", help="L2 strength, the strong convexity m.")]
Sigma = Annotated[float, typer.Option(help="Noise temperature; each step adds std sqrt(2 step) sigma.")]
Classes = Annotated[int, typer.Option(help="Classes of the logistic regression.")]
Divisor = Annotated[Literal["mean", "fixed"], typer.Option(help="mean: own sample count; fixed: the same public n.")]
Forgotten = Annotated[int, typer.Option("--removed", help="Samples removed in one request.")]
Served = Annotated[int, typer.Option("--steps", help="Unlearning steps of one request.")]
Weight = Annotated[float, typer.Option(help="Weight of this forget term.")]
Residual = Annotated[float, typer.Option(help="Bound on the gradient residual of all heads.")]
Kept = Annotated[int, typer.Option(help="Samples kept.")]
HeadNoise = Annotated[float, typer.Option(help="Std of the Gaussian noise on the published heads.")]


@app.command()
def indistinguishability(eps: Eps, delta: Delta, printed: bool = False, as_json: Json = False) -> None:
    """Bound the probability that the likelihood ratio leaves [exp(-2 eps), exp(2 eps)]."""
    violation = _theory().ratio_violation(eps, delta, tight=not printed)
    _show({"violation": violation}, as_json, note=_theory().ratio_statement(eps, delta))


@app.command()
def disagreement(
    eps: Eps, delta: Delta, dimension: Dimension, tau: Radius, constant: float = 1.0, as_json: Json = False
) -> None:
    """Print the nominal value of the inevitable-disagreement formula (no guarantee)."""
    _show({"nominal": _theory().inevitable_disagreement(eps, delta, dimension, tau, constant=constant)}, as_json)


@app.command()
def residual(ratio: Ratio, accuracy: Accuracy, independent: bool = False, as_json: Json = False) -> None:
    """Bound the disagreement of two models from residual knowledge."""
    _show(_theory().disagreement_from_ratio(ratio, accuracy, assume_independent=independent)._asdict(), as_json)


@app.command()
def renyi(alpha: Orders, divergence: Divergences, delta: Delta, plain: bool = False, as_json: Json = False) -> None:
    """Convert Renyi divergences to epsilon, at the best of the given orders."""
    _show({"epsilon": _theory().curve_to_epsilon(alpha, divergence, delta, tight=not plain)}, as_json)


@app.command()
def sphere(dimension: Dimension, tau: Radius, as_json: Json = False) -> None:
    """Print the share of the sphere near a half sphere: the usual bound and the exact value."""
    _show({"share": _theory().half_sphere_bound(dimension, tau)}, as_json)


@app.command()
def langevin(
    n: Samples, removed: Removed, steps: Steps, learn_steps: LearnSteps, l2: Strength, sigma: Sigma, delta: Delta,
    classes: Classes = 2, normaliser: Divisor = "mean", gaussian: bool = False, published: bool = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Certify noisy gradient descent on L2-regularised logistic regression with unit-norm features."""
    problem = _theory().Logistic(l2=l2, classes=classes)
    phases = _theory().request_phases(n, removed, learn_steps, steps, problem.lipschitz, normaliser=normaliser)
    bounds = {"epsilon": _theory().shifted_epsilon(phases, problem.chain(sigma), delta, gaussian=gaussian)}
    if published:
        gaps = _theory().request_gaps(n, removed, problem.lipschitz, normaliser=normaliser)
        bounds["published"] = _theory().published_epsilon(gaps, steps, problem.chain(sigma), delta)
    _show(bounds, as_json)


@app.command()
def rurk(
    n: Samples, removed: Forgotten, steps: Served, learn_steps: LearnSteps, l2: Strength, sigma: Sigma, delta: Delta,
    lambda_f: Weight, lambda_a: Weight, tau: Radius, classes: Classes = 2, normaliser: Divisor = "mean",
    as_json: Json = False,
) -> None:  # fmt: skip
    """Certify RURK's objective on the same path; its forget terms never decay."""
    problem = _theory().Logistic(l2=l2, classes=classes)
    phases = _theory().request_phases(n, [removed], learn_steps, [steps], problem.lipschitz, normaliser=normaliser)
    weights = {"lambda_f": lambda_f, "lambda_a": lambda_a, "tau": tau}
    _show({"epsilon": _theory().robust_epsilon(problem, problem.chain(sigma), phases, delta, **weights)}, as_json)


@app.command()
def descent_to_delete(
    n: Samples, steps: Served, l2: Strength, eps: Eps, delta: Delta, removed: Forgotten = 1,
    smallest: int | None = None, classes: Classes = 2, as_json: Json = False,
) -> None:  # fmt: skip
    """Print the publishing noise of descent-to-delete and the epsilon it truly gives."""
    problem = _theory().Logistic(l2=l2, classes=classes)
    distance = _theory().distance_bound(problem, n, steps, removed=removed, smallest=smallest)
    noise = _theory().publishing_noise(distance, eps, delta)
    _show({"epsilon": _theory().publishing_epsilon(distance, noise, delta)}, as_json)


@app.command()
def removal(
    residual: Residual, kept: Kept, l2: Strength, noise: HeadNoise, delta: Delta, as_json: Json = False
) -> None:
    """Certify a Newton removal from linear heads that are published with Gaussian noise."""
    _show({"epsilon": _theory().output_epsilon(residual, kept, l2, noise, delta)}, as_json)


@app.command()
def readout(file: Path, bins: int = 10, draws: int = 1000, seed: int = 0, as_json: Json = False) -> None:
    """Compare one readout per model; FILE is an npz with 1-d arrays unlearned and retrained."""
    _show({"divergence": _theory().readout_certificate(*_pair(file), bins=bins, draws=draws, seed=seed)}, as_json)


@app.command()
def empirical(file: Path, delta: Delta, confidence: float = 0.95, as_json: Json = False) -> None:
    """Bound epsilon from below; FILE is an npz with arrays unlearned and retrained, (models, columns)."""
    _show({"lower_bound": _theory().epsilon_lower_bound(*_pair(file), delta, confidence=confidence)}, as_json)


def _theory() -> Any:  # noqa: ANN401 (a module)
    """Return the calculators, loaded when one is asked: help needs neither numpy nor scipy."""
    return import_module("residuum.theory")


def _pair(file: Path) -> tuple[Array, Array]:
    from residuum.files import read_arrays

    if not file.is_file():
        raise InputError(f"expected an npz file, got {file}, which does not exist")
    arrays = read_arrays(file, ("unlearned", "retrained"), "an npz file with arrays unlearned and retrained")
    for name, values in arrays.items():
        if values.dtype.kind not in "biuf":
            raise InputError(f"{file}: {name}: expected numbers, got {values.dtype}")
    return arrays["unlearned"].astype(float), arrays["retrained"].astype(float)


def _show(bounds: Mapping[str, Bound], as_json: bool, note: str = "") -> None:
    if as_json:
        typer.echo(json.dumps({name: bound.as_dict() for name, bound in bounds.items()}, indent=2))
        return
    for name, bound in bounds.items():
        tell(f"{name} = {bound.value:.6g}" + ("  (vacuous: it says nothing)" if bound.vacuous else ""))
        tell("  with " + ", ".join(f"{key} = {value:.6g}" for key, value in bound.constants.items()))
        for text in bound.assumptions:
            tell(f"  assumes: {text}")
    if note:
        tell(note)
