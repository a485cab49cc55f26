"""The callback logs, after each validation, what an audit of the module as it is then gives."""

from __future__ import annotations

import csv
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from residuum import audit
from residuum.core.samples import Samples

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the package itself
    lightning = pytest.importorskip("pytorch_lightning", reason="needs pytorch-lightning")

TAUS = [0.0, 0.1, 0.3]


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(9, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch, index):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)


@pytest.mark.filterwarnings("ignore")
def test_the_callback_logs_what_an_audit_gives(tmp_path):
    from pytorch_lightning.loggers import CSVLogger

    from residuum.lightning import ResidualKnowledgeCallback

    torch.manual_seed(0)
    module, reference = Classifier(), nn.Sequential(nn.Flatten(), nn.Linear(9, 3)).eval()
    data = TensorDataset(torch.rand(24, 1, 3, 3), torch.randint(3, (24,)))
    batches = DataLoader(data, batch_size=7)
    callback = ResidualKnowledgeCallback(reference, batches, TAUS, draws=40, seed=3)
    logger = CSVLogger(tmp_path)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = lightning.Trainer(
        max_epochs=2, callbacks=[callback], logger=logger, accelerator="cpu", num_sanity_val_steps=0, **quiet
    )
    trainer.fit(module, batches, batches)

    samples = Samples(*data.tensors, tuple(map(str, range(24))))
    whole = audit({"m": module.eval()}, reference, samples, "gaussian", taus=TAUS, draws=40, seed=3)
    assert callback.measures == whole.measures("m")
    logger.save()
    logged = list(csv.DictReader((Path(logger.log_dir) / "metrics.csv").read_text().splitlines()))
    assert len(logged) == 2  # one line for each validation
    pooled = whole.measures("m")["residual_knowledge"]["pooled"]
    assert [float(logged[-1][f"residual_knowledge/{tau:g}"]) for tau in TAUS] == pytest.approx(pooled)


def test_the_sanity_check_before_training_runs_no_audit():
    from residuum.lightning import ResidualKnowledgeCallback

    callback = ResidualKnowledgeCallback(nn.Identity(), [], TAUS)
    callback.on_validation_end(SimpleNamespace(sanity_checking=True, loggers=[]), Classifier())
    assert callback.measures == {}
