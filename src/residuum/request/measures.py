"""What a request's audit measures beside residual knowledge: probes, and measures of the user's own."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from residuum.auditing.own_measures import OWN_MEASURES
from residuum.auditing.probes import PROBES, Evidence, Value, probe_kind
from residuum.core.errors import InputError
from residuum.core.inputs import space_of
from residuum.core.roles import Role
from residuum.core.samples import Splits
from residuum.core.seeds import child_seed
from residuum.studies.parsing import build_probe, check_measure
from residuum.studies.settings import AuditSettings

PIXEL_SEARCH = (0.02, 0.04, 0.06)  # radii in the l-infinity ball, as those of PGD
UNIT_SEARCH = (0.1, 0.25, 0.5)


def chosen_measures(given: Sequence[str] | None, model: nn.Module, innocents: bool) -> list[str]:
    """Return what was asked for; beside stand-ins, the recovery radius where there is one, unless something was."""
    if given is None:
        return ["recovery"] if innocents and can_search(model) else []
    if isinstance(given, str):
        raise InputError(f"expected a list of measures such as ['recovery'], got {given!r}")
    specs = [OWN_MEASURES.named(spec) for spec in given]
    for spec in specs:
        kind = probe_kind(spec)
        if kind is not None and kind.reads == "margins":
            possible = ", ".join(name for name, kind in PROBES.items() if kind.reads == "models")
            raise InputError(f"{spec} compares many re-trained models; expected one of {possible}")
        if kind is not None and not can_search(model):
            raise InputError(f"{spec} moves all inputs alike; expected pixels or features without a scale, got others")
    return specs


def can_search(model: nn.Module) -> bool:
    """Tell whether inputs can be searched for: no token ids, and no features of different scales or categories."""
    space = space_of(model)
    return not space.tokens and space.at is None and space.scale is None and not space.fixed


def audit_settings(
    specs: Sequence[str], model: nn.Module, radii: Mapping[str, Sequence[float]], draws: int
) -> dict[str, Any]:
    """Return the audit's settings as the record has them, with the radii of searches if there are any."""
    taus = {name: list(own) for name, own in radii.items()}
    if any(map(probe_kind, specs)):
        taus.setdefault("pgd", list(PIXEL_SEARCH if space_of(model).bounds == (0.0, 1.0) else UNIT_SEARCH))
    found = {"perturbations": list(radii), "taus": taus, "draws": draws}
    for spec in specs:
        check_measure(spec, AuditSettings.model_validate(found))
    return found


def probed_models(
    specs: Sequence[str],
    models: Mapping[str, nn.Module],
    roles: Mapping[str, Role],
    splits: Splits,
    audit: Mapping[str, Any],
    seed: int,
) -> dict[str, dict[str, Value]]:
    """Return what the probes among the measures find in the models, by probe and row; the seed decides it."""
    radii = AuditSettings.model_validate(audit).search_radii
    evidence = Evidence(splits, child_seed(seed, "witness"), roles, models, radii, space_of(models["original"]))
    return {spec: build_probe(spec).measure(evidence) for spec in specs if probe_kind(spec)}
