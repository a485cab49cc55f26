"""The margin of a label: the one number of a model and a sample that ensembles of models are compared by."""

from torch import Tensor


def margins(logits: Tensor, labels: Tensor) -> Tensor:
    """Return phi = z_y - logsumexp_{k != y} z_k = log(p_y / (1 - p_y)) in float64, shape (n,).

    >>> import torch
    >>> margins(torch.tensor([[2.0, 1.0]]), torch.tensor([0])).tolist()
    [1.0]
    """
    precise, chosen = logits.double(), labels[:, None]
    others = precise.scatter(1, chosen, float("-inf")).logsumexp(1)
    return precise.gather(1, chosen)[:, 0] - others
