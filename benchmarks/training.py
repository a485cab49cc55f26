"""How much faster the training loop is than the plain loop of PyTorch; prints JSON.

    python benchmarks/training.py [--quick] [--threads 2] [--widths 32,64]

The plain loop is float32 with contiguous memory: shuffle, forward, backward, SGD with momentum. Both sides train a
ResNet-18 on random images of 32x32 pixels and take turns in one process, so that other work on the machine slows both.
The fastest of several rounds counts. With one thread, processor time is measured instead of time on the clock.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from residuum import Recipe, train
from residuum.core.devices import launched, make_fabric
from residuum.core.samples import Samples
from residuum.models import build_model

RECIPE = Recipe(epochs=1, lr=0.01, momentum=0.9, weight_decay=5e-4, batch_size=128)


def images(many: int) -> Samples:
    """Return random images with random labels."""
    noise = torch.Generator().manual_seed(1)
    x, y = torch.rand((many, 3, 32, 32), generator=noise), torch.randint(10, (many,), generator=noise)
    return Samples(x, y, tuple(f"bench/{i:05d}" for i in range(many)))


def plain_loop(model: nn.Module, samples: Samples) -> None:
    """Train one epoch as a textbook does."""
    optimizer = torch.optim.SGD(
        model.parameters(), lr=RECIPE.lr, momentum=RECIPE.momentum, weight_decay=RECIPE.weight_decay
    )
    model.train()
    for batch in torch.randperm(len(samples)).split(RECIPE.batch_size):
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(samples.x[batch]), samples.y[batch]).backward()
        optimizer.step()


def our_loop(model: nn.Module, samples: Samples, precision: str) -> None:
    """Train one epoch with `residuum.train`."""
    with launched(make_fabric(None, precision=precision)):
        train(model, samples, RECIPE, seed=0)


def seconds(task: Callable[[], None]) -> float:
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    begin = clock()
    task()
    return clock() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one batch and one round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--widths", default="32,64")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    batches, rounds = (1, 1) if options.quick else (5, 4)
    report: dict[str, object] = {"torch": torch.__version__, "threads": options.threads, "quick": options.quick}
    for width in map(int, options.widths.split(",")):
        samples = images(batches * RECIPE.batch_size)
        loops = {"plain": plain_loop} | {
            precision: partial(our_loop, precision=precision) for precision in ("32-true", "bf16-mixed")
        }
        fastest = dict.fromkeys(loops, float("inf"))
        for _ in range(rounds):
            for name, loop in loops.items():
                model = build_model("resnet18", (3, 32, 32), 10, width=width, seed=0)
                fastest[name] = min(fastest[name], seconds(partial(loop, model, samples)))
        report[f"width_{width}"] = {
            "images_per_second": {name: round(len(samples) / spent, 1) for name, spent in fastest.items()},
            "speedup": {name: round(fastest["plain"] / spent, 2) for name, spent in fastest.items() if name != "plain"},
        }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
