"""Who should decode images: threads, as Residuum does, or worker processes, as data loaders do?

python benchmarks/images.py [--images 600] [--readers 2]

Decodes a generated folder of photographs' size (JPEG, 500 x 375, scaled to 224) three ways, alternating, and prints
images per second: Residuum's threads, a pool of processes with the same function, and torch's DataLoader with worker
processes.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from residuum.data.images import read_square

SIZE, BATCH, ROUNDS = 224, 32, 3


class Files(Dataset[torch.Tensor]):
    """The same pictures as torch's loader wants them."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> torch.Tensor:
        return torch.from_numpy(np.array(read_square(self.paths[row], SIZE)))


def photographs(folder: Path, many: int) -> list[Path]:
    chance, paths = np.random.default_rng(0), []
    for k in range(many):
        coarse = Image.fromarray(chance.integers(0, 256, (24, 32, 3), dtype=np.uint8))
        paths.append(folder / f"{k}.jpg")
        coarse.resize((500, 375), Image.Resampling.BICUBIC).save(paths[-1], quality=90)
    return paths


def pooled(pool: Executor, paths: list[Path]) -> Iterator[torch.Tensor]:
    read = partial(read_square, size=SIZE)
    for start in range(0, len(paths), BATCH):
        yield torch.from_numpy(np.stack(list(pool.map(read, paths[start : start + BATCH]))))


def loaded(loader: DataLoader[torch.Tensor], paths: list[Path]) -> Iterator[torch.Tensor]:
    yield from loader


def rate(batches: Callable[[list[Path]], Iterator[torch.Tensor]], paths: list[Path]) -> float:
    start, seen = time.perf_counter(), sum(len(batch) for batch in batches(paths))
    assert seen == len(paths)
    return seen / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=600)
    parser.add_argument("--readers", type=int, default=2)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(asked.readers) as threads:
        paths = photographs(Path(folder), asked.images)
        loader = DataLoader(Files(paths), batch_size=BATCH, num_workers=asked.readers, persistent_workers=True)
        with ProcessPoolExecutor(asked.readers) as processes:
            ways = {
                "threads": partial(pooled, threads),
                "processes": partial(pooled, processes),
                "torch DataLoader": partial(loaded, loader),
            }
            for way in ways.values():
                rate(way, paths)  # workers start, files are in memory
            rates = {name: [] for name in ways}
            for _ in range(ROUNDS):
                for name, way in ways.items():
                    rates[name].append(rate(way, paths))
    best = statistics.median(rates["threads"])
    for name, values in rates.items():
        value = statistics.median(values)
        print(f"{name}: {value:.0f} images/s, {value / best:.2f} times the threads")


if __name__ == "__main__":
    main()
