"""A callback for PyTorch Lightning: residual knowledge after every validation. Needs the package pytorch-lightning."""

from collections.abc import Iterable, Sequence
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor, nn

from residuum.auditing import ResidualKnowledge
from residuum.models import evaluating


class ResidualKnowledgeCallback(Callback):
    """Logs r(tau) of the trained module as `residual_knowledge/TAU`, and stores all measures in `measures`.

    Args:
        reference: A model that never saw the samples.
        forgotten: Batches (x, y) of forgotten samples, for instance a `DataLoader` that does not shuffle.
        taus: Radii.
        options: Options of `ResidualKnowledge`: perturbation, draws, confidence, seed.
    """

    def __init__(
        self,
        reference: nn.Module,
        forgotten: Iterable[tuple[Tensor, Tensor]],
        taus: Sequence[float],
        **options: Any,  # noqa: ANN401 (those of ResidualKnowledge)
    ) -> None:
        self.reference, self.forgotten, self.taus, self.options = reference, forgotten, list(taus), options
        self.measures: dict[str, Any] = {}

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Count on all batches and log r of each radius where it exists; skip the sanity check before training."""
        if trainer.sanity_checking:
            return
        with evaluating(pl_module):
            metric = ResidualKnowledge(pl_module, self.reference, taus=self.taus, **self.options)
            for x, y in self.forgotten:
                metric.update(x, y)
            self.measures = metric.compute()
        pooled = zip(self.taus, self.measures["residual_knowledge"]["pooled"], strict=True)
        metrics = {f"residual_knowledge/{tau:g}": r for tau, r in pooled if r is not None}
        for logger in trainer.loggers:
            logger.log_metrics(metrics, step=trainer.global_step)
