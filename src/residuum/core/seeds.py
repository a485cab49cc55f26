"""Seeds: every role of a run has its own, and generators are never shared."""

from hashlib import blake2b

import torch


def child_seed(seed: int, role: str) -> int:
    """Return the seed of one role of a run: the first 63 bits of blake2b("seed/role").

    Roles are original, retrain, control, control_2, unlearn, noise, relearn and audit.

    >>> child_seed(131, "original") == child_seed(131, "original") != child_seed(131, "retrain")
    True
    """
    return int.from_bytes(blake2b(f"{seed}/{role}".encode(), digest_size=8).digest(), "big") >> 1


def request_seed(seed: int, number: int) -> int:
    """Return the seed that the run's `number`-th request is unlearned with: the first with the run's own.

    Every later one has its own child: noise added twice from one seed would be one noise of twice the size.

    >>> request_seed(131, 1), request_seed(131, 2) == child_seed(131, "request_2")
    (131, True)
    """
    return seed if number == 1 else child_seed(seed, f"request_{number}")


def generator(seed: int) -> torch.Generator:
    """Return a new CPU generator, for one user only."""
    return torch.Generator().manual_seed(seed)
