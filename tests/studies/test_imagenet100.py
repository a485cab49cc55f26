"""imagenet100 end to end on a generated tree of 100 class folders: lazily, with memory that does not grow with it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

CODE = """
import resource, sys
from pathlib import Path
from residuum.studies import Study, run_all, write_run

root, train_size, methods, out = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
study = Study.create("imagenet100", methods=methods, seeds=[1], data_root=root, overrides={
    "model.width": 8, "data.train_size": train_size, "data.test_size": 50, "data.validation_size": 0,
    "forget.forget_fraction": 100 / train_size, "forget.forget_class": "class-000",  # one, so that audits are the same
    "train.epochs": 1, "train.batch_size": 8, "relearn.epochs": 0, "audit.draws": 2,
    "audit.taus.gaussian": [0.0, 0.03], "gd.epochs": 1, "rurk.epochs": 1, "gd.batch_size": 8,
    "neggrad.batch_size": 8, "ssd.batch_size": 8, "rurk.batch_size": 8})
splits = study.splits()
assert splits.train.shape == (3, 224, 224) and splits.classes == 100
results = run_all([study], store=out / "store")[0]
record = write_run(study, results, out / "run").as_dict()
print(sorted(record["methods"]), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def tree(root, per_class):
    """Write 100 class folders of 64x64 pictures: a color per class, and noise."""
    noise = np.random.default_rng(0)
    for part, count in (("train", per_class), ("val", 1)):
        for label in range(100):
            folder = root / "imagenet100" / part / f"class-{label:03d}"
            folder.mkdir(parents=True)
            color = np.array([label % 10, label // 10, label % 7]) * 25
            for k in range(count):
                pixels = (color + noise.integers(0, 30, (64, 64, 3))).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{k:04d}.jpeg")
    return root


def peak_mib(root, train_size, methods, out):
    """Run it in a process of its own; return the most memory it had."""
    command = [sys.executable, "-c", CODE, str(root), str(train_size), methods, str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
    assert done.returncode == 0, done.stderr[-2000:]
    names, _, peak = done.stdout.strip().splitlines()[-1].rpartition(" ")
    assert names == str(sorted(["original", "retrain", "control", *methods.split(",")]))
    assert (Path(out) / "run" / "results.json").is_file()
    return int(peak)


@pytest.mark.long
def test_imagenet100_runs_end_to_end(tmp_path):
    peak_mib(tree(tmp_path, per_class=1), 100, "gd,neggrad,ssd,rurk", tmp_path / "out")


@pytest.mark.long
def test_memory_does_not_depend_on_the_number_of_images(tmp_path):
    root = tree(tmp_path, per_class=4)
    few, many = (peak_mib(root, size, "gd", tmp_path / str(size)) for size in (100, 400))
    more_pixels = (400 - 100) * 3 * 224 * 224 * 4 / 2**20
    assert many - few < 0.25 * more_pixels, f"{few} MiB with 100 images, {many} MiB with 400"
