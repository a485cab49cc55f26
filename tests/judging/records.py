"""Records with random recognition rates, as far as the rule reads them."""

import numpy as np

from residuum.core.roles import Role, trained_roles
from residuum.record import Results

TAUS = {"gaussian": [0.0, 0.1, 0.2, 0.3], "pgd": [0.0, 0.05], "shift": [0.0, 1.0, 2.0]}
TARGETS = {"gaussian": {"target": "true"}, "pgd": {"target": "untargeted"}, "shift": {}}  # where inputs are crafted
SAMPLES, HELD_OUT = 40, 60


def curve(values):
    values = np.asarray(values, float).tolist()
    return {"value": values, "low": values, "high": values}


def audit(taus, model, reference, crafted, aside, target):
    return {
        "taus": taus,
        "draws": [1, *[100] * (len(taus) - 1)],
        "samples": SAMPLES,
        "settings": {"confidence": 0.95, "crafted_on": crafted, **(target if crafted else {})},
        "residual_knowledge": {"pooled": [1.0] * len(taus), "low": [1.0] * len(taus), "high": [1.0] * len(taus)},
        "difference": curve(model - reference),
        "unlearn_accuracy": curve(1 - model),
        **({"heldout": {"samples": HELD_OUT, "rate": aside[0].tolist(), "reference_rate": aside[1].tolist()}}
           if aside else {}),
    }  # fmt: skip


def record_of(rng, names, *, form, crafted, heldout, seeds, controls):
    """A run whose rows know more, as much and less than retrained models; `shift` shows nothing of anybody."""
    lifts = {"original": 0.15, "retrain": 0.0, "control": 0.0, "better": 0.12, "same": 0.0, "worse": -0.2, "odd": 0.06}
    for k in range(2, controls + 1):
        lifts[f"control_{k}"] = 0.0
    roles, methods = trained_roles(9), {}
    zero = {(label, s): rng.normal(0.7 + lift, 0.015) for label, lift in lifts.items() for s in range(seeds)}

    def rates(label, seed, name, lift):
        taus = np.array(TAUS[name])
        known = np.round(zero[label, seed] * SAMPLES) / SAMPLES if lift is not None else rng.normal(0.7, 0.015)
        slope = 0.0 if name == "shift" else (lift or 0.0)
        values = 0.6 + slope + rng.normal(0, 0.015) - 0.1 * taus + rng.normal(0, 0.008, len(taus))
        return np.clip(np.where(taus == 0, known, values), 0, 1)

    references = {(s, name): rates("retrain", s, name, 0.0) for s in range(seeds) for name in names}
    asides = {(s, name): rates("retrain", s, name, None) for s in range(seeds) for name in names}
    for label, lift in lifts.items():
        per_seed = {}
        for s in range(seeds):
            audits = {}
            for name in names:
                model = references[s, name] if label == "retrain" else rates(label, s, name, lift)
                own = asides[s, name] if label == "retrain" else rates(label, s, name, None)
                aside = (own, asides[s, name]) if heldout else None
                audits[name] = audit(TAUS[name], model, references[s, name], crafted, aside, TARGETS[name])
            metrics = {"retain_accuracy": 99.0, "unlearn_accuracy": 30.0, "test_accuracy": 90.0, "mia_accuracy": 30.0}
            per_seed[str(s)] = {"audits": audits, "metrics": metrics}
        methods[label] = {"role": str(roles.get(label, Role.METHOD)), "method": label, "per_seed": per_seed}
    scenario = {
        "name": "random",
        "form": form,
        "sizes": {"retain": 500, "forget": SAMPLES, "test": 400},
        "settings": {"audit": {"perturbations": list(names)}, "forget": {"listed": SAMPLES}},
    }
    return {"schema": Results.SCHEMA, "scenario": scenario, "seeds": list(range(seeds)), "methods": methods}
