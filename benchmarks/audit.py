"""How much faster the audit engine is than the literature's straightforward protocol; prints JSON.

    python benchmarks/audit.py [--quick] [--threads 2] [--only gaussian,fgsm,pgd,adaptive,memory] [--widths 16,64]

The straightforward protocol: for each method, radius and draw, perturb, run the model, run the reference; batch-norm
unfolded, default memory format, one batch holds all samples. Its noise is made beforehand and costs it nothing. Both
sides are timed alternately in one process on a slice (in the JSON) and scaled linearly to 100 samples, 100 draws and 11
radii (radius 0 and ten more). At radius 0 the engine makes one draw; its enumerated FGSM does not grow with the draws.
Preparing the models (folding, probes, trial) happens once per audit and is given as `prepare_seconds`, not scaled, and
added to the engine's time.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from residuum.auditing import Auditor, Counts, Draws, audit
from residuum.auditing.budget import draws_needed, pilot_draws
from residuum.auditing.counting import PreparedModels, Schedule, count_predictions
from residuum.auditing.measures import pooled_ratio
from residuum.auditing.predictor import SAFETY, Predictor, deviation, probe_batch
from residuum.core.errors import ResiduumWarning
from residuum.core.inputs import PIXELS
from residuum.core.samples import Samples
from residuum.models import build_model
from residuum.perturbations import BLOCK, FGSM, PGD, Gaussian, Perturbation, Randomness, block_generator, stack

TAUS = (0.0, 4 / 255, 8 / 255)
SAMPLES, DRAWS, RADII, METHODS, SEED = 100, 100, 11, 13, 7


@dataclass(frozen=True)
class Slice:
    """What is timed."""

    samples: int
    draws: int
    models: int
    repeats: int


QUICK = {"gaussian": Slice(8, 2, METHODS, 2), "fgsm": Slice(8, 2, METHODS, 1), "pgd": Slice(8, 1, 3, 2)}
FULL = {"gaussian": Slice(8, 25, METHODS, 2), "fgsm": Slice(16, 4, METHODS, 2), "pgd": Slice(8, 6, 4, 2)}
ATTACKS: dict[str, Perturbation] = {"gaussian": Gaussian(), "fgsm": FGSM(target="random"), "pgd": PGD(target="true")}


def networks(width: int, many: int) -> list[nn.Module]:
    """Return ResNet-18 models that differ in their seed, the last one being the reference."""
    return [build_model("resnet18", (3, 32, 32), 10, width=width, seed=seed).eval() for seed in range(many + 1)]


def slice_samples(reference: nn.Module, many: int) -> Samples:
    x = torch.rand((many, 3, 32, 32), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return Samples(x, reference(x).argmax(1), tuple(f"bench/{i:03d}" for i in range(many)))


def plain_predictor(model: nn.Module, probe: Tensor) -> Predictor:
    """Return a predictor that uses the plain model: unfolded, default memory format."""
    predictor = Predictor(model, probe)
    predictor.fast = predictor.plain
    predictor.margin = SAFETY * deviation(predictor.logits(probe), predictor.exact_logits(probe))
    return predictor


def drawn(attack: Perturbation, samples: Samples, draw: int) -> Randomness:
    """Return the randomness of one draw of every sample, as the engine has it."""
    block, place = divmod(draw, BLOCK)
    rows = [attack.draw(block_generator(SEED, name, block), BLOCK, samples.shape) for name in samples.ids]
    return stack([row.rows(slice(place, place + 1)) for row in rows])


class Straightforward:
    """The literature's protocol on a slice."""

    def __init__(self, models: list[nn.Module], samples: Samples, attack: Perturbation, draws: int) -> None:
        probe = probe_batch(samples, PIXELS, max(TAUS), SEED)
        *self.methods, self.reference = [plain_predictor(model, probe) for model in models]
        self.samples, self.attack = samples, attack
        self.randomness = [drawn(attack, samples, draw) for draw in range(draws)]

    def __call__(self) -> list[np.ndarray]:
        """Return (right of the method, right of the reference) of each method, shape (2, n, T)."""
        return [self.method(predictor) for predictor in self.methods]

    def method(self, predictor: Predictor) -> np.ndarray:
        """Return (right of the method, right of the reference), shape (2, n, T)."""
        x, y = self.samples.x, self.samples.y
        right = np.zeros((2, len(x), len(TAUS)), int)
        for t, tau in enumerate(TAUS):
            for randomness in self.randomness:
                aimed = self.attack.aim(predictor.fast, x, y, randomness)
                moved = self.attack.apply(predictor.fast, x, y, aimed, PIXELS, tau)
                for side, who in enumerate((predictor, self.reference)):
                    right[side, :, t] += (who(moved) == y).numpy()
        return right


class Engine:
    """The same slice through the audit engine, radius 0 and the others apart so that they can be scaled apart."""

    def __init__(self, models: list[nn.Module], samples: Samples, attack: Perturbation, draws: int) -> None:
        named = {str(i): model for i, model in enumerate(models[:-1])}
        self.prepared: PreparedModels
        auditor = Auditor(named, models[-1], attack, TAUS, SEED, space=PIXELS)
        self.prepare_seconds, self.prepared = timed(lambda: auditor.prepare(samples))
        self.names = {name: id(model) for name, model in named.items()}
        self.works = {
            part: Schedule.of(samples, attack, taus, (0, draws), seed=SEED, classes=self.prepared.classes)
            for part, taus in (("still", TAUS[:1]), ("moving", TAUS[1:]))
        }
        self.enumerated = self.works["moving"].enumerated is not None

    def __call__(self, part: str) -> dict[str, Counts]:
        """Return the counts of radius 0 ("still") or of the others ("moving")."""
        return count_predictions(self.works[part], self.prepared, self.names)


def timed(task: Callable[[], Any]) -> tuple[float, Any]:
    """Return seconds and result. With one thread processor time is used, which other jobs disturb less."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    begin = clock()
    result = task()
    return clock() - begin, result


def compare(name: str, width: int, chosen: Slice) -> dict[str, Any]:
    """Return the speed-up of one kind of perturbation at one width, scaled to the whole protocol."""
    models = networks(width, chosen.models)
    samples = slice_samples(models[-1], chosen.samples)
    slow = Straightforward(models, samples, ATTACKS[name], chosen.draws)
    fast = Engine(models, samples, ATTACKS[name], chosen.draws)
    spent = {"straightforward": 0.0, "still": 0.0, "moving": 0.0}
    for _ in range(chosen.repeats):
        for part, task in (
            ("straightforward", slow),
            ("still", lambda: fast("still")),
            ("moving", lambda: fast("moving")),
        ):
            seconds, result = timed(task)
            spent[part] += seconds / chosen.repeats
            if part == "straightforward":
                expected = result
            elif name == "gaussian":
                check_counts(expected, result, part, chosen.draws)
    scale = SAMPLES / chosen.samples * METHODS / chosen.models
    more_draws = DRAWS / chosen.draws
    whole = spent["straightforward"] * scale * more_draws * RADII / len(TAUS)
    repeated = 1 if fast.enumerated else more_draws
    engine = fast.prepare_seconds * METHODS / chosen.models + scale * (
        spent["still"] + spent["moving"] * repeated * (RADII - 1) / (len(TAUS) - 1)
    )
    return {
        "speedup": round(whole / engine, 2),
        "slice": asdict(chosen) | {"taus": [round(tau, 5) for tau in TAUS]},
        "seconds": {key: round(value, 3) for key, value in spent.items()},
        "prepare_seconds": round(fast.prepare_seconds, 3),
        "scaled_hours": {"straightforward": round(whole / 3600, 3), "engine": round(engine / 3600, 3)},
    }


def check_counts(expected: list[np.ndarray], found: dict[str, Counts], part: str, draws: int) -> None:
    """Stop if the engine's counts are not those of the straightforward protocol (which repeats radius 0)."""
    columns, repeats = (slice(0, 1), draws) if part == "still" else (slice(1, None), 1)
    for i, right in enumerate(expected):
        counts = found[str(i)]
        same = np.array_equal(right[0][:, columns], repeats * counts.method_right) and np.array_equal(
            right[1][:, columns], repeats * counts.reference_right
        )
        if not same:
            raise SystemExit(f"counts of model {i} differ from the straightforward protocol ({part})")


def demo_counts() -> tuple[dict[str, Counts], dict[str, nn.Module], Samples, list[float], int]:
    """Return the demo's counts, models, forget set, radii and audit seed, for its first seed."""
    from residuum.core.seeds import child_seed
    from residuum.models import load_weights
    from residuum.studies import Study, run_all

    study = Study.create("digits", seeds=[131])
    with tempfile.TemporaryDirectory() as store:
        results = run_all([study], store=store)[0]
        counts = {result.label: Counts.load(result.audits["gaussian"].counts) for result in results}
        models = {result.label: load_weights(result.model) for result in results}
    forget = study.splits().forget
    taus = [float(tau) for tau in counts["original"].taus]
    return counts, models, forget, taus, child_seed(131, "audit")


def adaptive() -> dict[str, Any]:
    """Return how many draws the pilot asks for, as a fraction of 100 at each radius above 0."""
    counts, models, forget, taus, seed = demo_counts()
    uniform = max(widest(table) for label, table in counts.items() if label != "retrain")
    judged = {label: model for label, model in models.items() if label != "retrain"}
    chosen = audit(judged, models["retrain"], forget, "gaussian", taus=taus, draws=Draws(half_width=uniform), seed=seed)
    moving = np.array(taus) > 0
    spent = chosen.counts["original"].draws[0, moving]
    reached = max(widest(table) for table in chosen.counts.values())
    large = large_fraction({label: table for label, table in counts.items() if label != "retrain"})
    return {
        "adaptive_equal_width_fraction": round(float(spent.mean()) / DRAWS, 4),
        "adaptive_widest_half_width": {"uniform_100": round(uniform, 5), "adaptive": round(reached, 5)},
        "adaptive_draws": [int(n) for n in spent],
        "adaptive_2000_fraction": round(large, 4),
    }


def widest(counts: Counts) -> float:
    """Return the largest half-width of r over the radii above 0."""
    _, low, high = pooled_ratio(counts)
    return float(((high - low) / 2)[counts.taus > 0].max())


def large_fraction(tables: dict[str, Counts], many: int = 2000, half_width: float = 0.01) -> float:
    """Return the fraction of 100 draws for +-0.01 on 2,000 samples drawn with replacement from the demo's counts."""
    rng = np.random.default_rng(SEED)
    first = next(iter(tables.values()))
    rows, draws = rng.integers(len(first), size=many), pilot_draws(many)
    pilots = [redrawn(rng, table, rows, draws) for table in tables.values()]
    needed = draws_needed(pilots, half_width=half_width, max_draws=10**6)
    return float(needed.mean()) / DRAWS


def redrawn(rng: np.random.Generator, counts: Counts, rows: np.ndarray, draws: int) -> Counts:
    """Return a pilot of these samples whose outcomes have the probabilities that the counts show."""
    moving = counts.taus > 0
    m, a, both, total = (
        part[rows][:, moving].astype(float)
        for part in (counts.method_right, counts.reference_right, counts.both_right, counts.draws)
    )
    cells = np.stack([both, m - both, a - both, total - m - a + both], axis=-1) / total[..., None]
    k11, k10, k01, k00 = np.moveaxis(rng.multinomial(draws, cells), -1, 0)
    return Counts.of(
        [str(i) for i in range(len(rows))],
        counts.labels[rows],
        counts.taus[moving],
        draws=k11 + k10 + k01 + k00,
        method_right=k11 + k10,
        reference_right=k11 + k01,
        both_right=k11,
        same_prediction=k11 + k00,
    )


def peak_memory(many: int) -> float:
    """Return the peak memory in MB of a fresh process that audits this many 32x32 images with 13 models."""
    command = [sys.executable, __file__, "--measure-memory", str(many)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure_memory(many: int) -> None:
    """Audit and print this process's peak memory in MB."""
    torch.set_num_threads(1)
    x = torch.rand((many, 3, 32, 32), generator=torch.Generator().manual_seed(1))
    samples = Samples(x, torch.zeros(many, dtype=torch.int64), tuple(f"bench/{i:05d}" for i in range(many)))
    *models, reference = [
        nn.Sequential(nn.Conv2d(3, 4, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(196, 10)).eval()
        for _ in range(METHODS + 1)
    ]
    named = {str(i): model for i, model in enumerate(models)}
    audit(named, reference, samples, "gaussian", taus=TAUS, draws=2, seed=SEED)
    status = Path("/proc/self/status").read_text(encoding="ascii")  # ru_maxrss would include the parent's memory
    print(int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="8 samples, 2 draws; PGD 1 draw, 3 models")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--widths", default="16,64")
    parser.add_argument("--only", default="gaussian,fgsm,pgd,adaptive,memory")
    parser.add_argument("--measure-memory", type=int, metavar="SAMPLES", help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore", ResiduumWarning)
    if options.measure_memory:
        return measure_memory(options.measure_memory)
    torch.set_num_threads(options.threads)
    wanted = options.only.split(",")
    slices = QUICK if options.quick else FULL
    names = {"gaussian": "gaussian_exact_speedup", "fgsm": "fgsm_speedup", "pgd": "pgd_speedup"}
    report: dict[str, Any] = {"torch": torch.__version__, "threads": options.threads, "quick": options.quick}
    for width in map(int, options.widths.split(",")):
        parts = {name: compare(name, width, slices[name]) for name in names if name in wanted}
        report[f"width_{width}"] = {names[name]: part["speedup"] for name, part in parts.items()} | {"details": parts}
    if "adaptive" in wanted:
        report |= adaptive()
    if "memory" in wanted:
        report["memory_growth_mb"] = round(peak_memory(20_000) - peak_memory(200), 1)
    print(json.dumps(report, indent=1))
    return None


if __name__ == "__main__":
    main()
