"""What the models were trained on, as far as the data at hand show it."""

from typing import Any

import torch

from residuum.data.dataset import Dataset
from residuum.pack.hashing import Pseudonyms
from residuum.pack.merkle import merkle_root
from residuum.record import Results
from residuum.types import Samples, Splits

NEAR = 0.02  # root-mean-square difference of two inputs, as a share of their range
ROWS = 512


def process_facts(record: Results, splits: Splits | None, pseudonyms: Pseudonyms) -> dict[str, Any]:
    """Return name and sizes of the data and, with the data at hand, what reference and original were trained on.

    `fingerprint_hmac` is of data and key: nobody else can tell by it which data these were. `trained_on` has for
    each set the size and the root of its pseudonyms; pre-training is known by its manifest's hash.
    """
    known = {"name": record.scenario.settings.data.name, "public": record.scenario.public_data}
    facts: dict[str, Any] = {**known, "sizes": record.scenario.sizes}
    facts["pretrained"] = (record.scenario.model_extra or {}).get("init_from")
    if splits is None:
        return facts
    sets = {"original": splits.train, "reference": splits.retain, "held_out": splits.heldout}
    return facts | {
        "fingerprint_hmac": pseudonyms(f"data {data_fingerprint(splits)}"),
        "trained_on": {name: id_set(samples, pseudonyms) for name, samples in sets.items()},
        "forgotten_among_retained": len(set(splits.forget.ids) & set(splits.retain.ids)),
        "near_duplicates": near_duplicates(splits.forget, splits.retain),
    }


def data_fingerprint(splits: Splits) -> str:
    """Return one hash over inputs, labels and ids of the samples that models were trained and tested on."""
    return Dataset("", splits.train, splits.test, splits.class_names).fingerprint


def id_set(samples: Samples, pseudonyms: Pseudonyms) -> dict[str, Any]:
    """Return size and Merkle root of a set of samples."""
    return {"size": len(samples), "ids_hmac_root": merkle_root(map(pseudonyms, samples.ids))}


def near_duplicates(forgotten: Samples, retained: Samples) -> dict[str, Any]:
    """Return how many forgotten samples have an identical, or a nearly identical, input among the retained ones.

    Near means a root-mean-square difference of at most 2 % of the range of the inputs. A model that keeps such a
    duplicate keeps what was to be forgotten, and so does the reference.

    >>> x = torch.tensor([[0.0, 1.0], [0.5, 0.5], [0.0, 0.0]])
    >>> some = Samples(x, torch.zeros(3), ("a", "b", "c"))
    >>> others = Samples(x[:2] + torch.tensor([[0.0], [0.01]]), torch.zeros(2), ("d", "e"))
    >>> near_duplicates(some, others)
    {'identical': 1, 'near': 2, 'limit': 0.02}
    """
    nearest = torch.full((len(forgotten),), float("inf"))
    low, high = float("inf"), float("-inf")
    rows = torch.split(torch.arange(len(forgotten)), ROWS)
    own = [forgotten.batch(part)[0].flatten(1).float() for part in rows]
    for x, _, _ in retained.batches(torch.split(torch.arange(len(retained)), ROWS)):
        flat = x.flatten(1).float()
        low, high = min(low, float(flat.min())), max(high, float(flat.max()))
        for part, mine in zip(rows, own, strict=True):
            squared = (torch.cdist(mine, flat, compute_mode="donot_use_mm_for_euclid_dist") ** 2).amin(1)
            nearest[part] = torch.minimum(nearest[part], squared / flat.shape[1])
    limit = (NEAR * (high - low)) ** 2 if len(retained) else 0.0
    return {"identical": int((nearest == 0).sum()), "near": int((nearest <= limit).sum()), "limit": NEAR}
