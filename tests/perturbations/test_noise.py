import numpy as np
import pytest

from residuum.perturbations import BLOCK, block_generator, block_slices, noise_check


def first(seed, sample_id, block):
    return block_generator(seed, sample_id, block).standard_normal(8, dtype=np.float32)


def test_a_key_gives_the_same_numbers_again():
    assert np.array_equal(first(7, "a", 0), first(7, "a", 0))


@pytest.mark.parametrize("other", [(8, "a", 0), (7, "b", 0), (7, "a", 1)])
def test_every_part_of_the_key_matters(other):
    assert not np.any(first(7, "a", 0) == first(*other))


def test_seed_block_and_id_cannot_be_confused():
    assert not np.any(first(1, "2/a", 3) == first(1, "a", 2))
    assert not np.any(first(11, "a", 1) == first(1, "a", 11))


def test_golden_numbers_of_the_stream():
    assert first(7, "digits/0042", 3)[:3].tolist() == pytest.approx(
        [-0.4266210198402405, 1.67914617061615, 0.8704982399940491], abs=1e-7
    )
    assert noise_check(7) == "ef788a2b47453b02" != noise_check(8)


def test_noise_is_standard_normal_over_ids_and_blocks():
    drawn = np.concatenate([first(7, str(i), block) for i in range(500) for block in range(4)])
    assert abs(drawn.mean()) < 4 / np.sqrt(drawn.size)
    assert abs(drawn.var() - 1) < 4 * np.sqrt(2 / drawn.size)


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (0, 25), (0, 26), (10, 12), (24, 26), (30, 100), (5, 5)])
def test_slices_cover_the_range_of_draws_once(start, stop):
    covered = [block * BLOCK + j for block, part in block_slices(start, stop) for j in range(part.start, part.stop)]
    assert covered == list(range(start, stop))
