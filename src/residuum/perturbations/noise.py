"""Noise by key: the same (seed, id, block) gives the same numbers, whatever the batch, order or process.

Draw j of a sample belongs to block j // 25. Each block has its own generator, so draws can be added later
without making the earlier ones again, and any subset of the samples sees the noise it would see in the whole set.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

import numpy as np

BLOCK = 25


def block_generator(seed: int, sample_id: str, block: int) -> np.random.Generator:
    """Return the generator of one block of draws: Philox keyed by 128 bits of blake2b("seed/block/id").

    >>> a, b = (block_generator(7, "digits/0042", 0).standard_normal(2) for _ in range(2))
    >>> bool((a == b).all())
    True
    """
    digest = blake2b(f"{seed}/{block}/{sample_id}".encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "big")))


def block_slices(first: int, last: int) -> Iterator[tuple[int, slice]]:
    """Yield (block, positions within the block) that cover draws first..last-1.

    >>> list(block_slices(20, 60))
    [(0, slice(20, 25, None)), (1, slice(0, 25, None)), (2, slice(0, 10, None))]
    """
    for block in range(first // BLOCK, -(-last // BLOCK)):
        start = block * BLOCK
        yield block, slice(max(first - start, 0), min(last - start, BLOCK))


def noise_check(seed: int) -> str:
    """Return 16 hexadecimal digits that change when the noise stream of this seed changes.

    >>> noise_check(7)
    'ef788a2b47453b02'
    """
    rng = block_generator(seed, "check", 0)
    drawn = (rng.standard_normal(64, dtype=np.float32), rng.random(64, dtype=np.float32))
    return blake2b(b"".join(part.tobytes() for part in drawn), digest_size=8).hexdigest()
