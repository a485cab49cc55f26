import zipfile
from dataclasses import replace

import numpy as np
import pytest

from residuum.auditing import Counts
from residuum.core.errors import InputError


def table(cells, ids=None, taus=None):
    """Counts from cells of shape (n, T, 5): both, only m, only a, neither but same, neither and different."""
    cells = np.asarray(cells)
    both, m, a, same, _ = np.moveaxis(cells, -1, 0)
    n, T = both.shape
    return Counts.of(
        ids or [f"s/{i:03d}" for i in range(n)],
        np.arange(n) % 3,
        taus or np.linspace(0.1, 0.2, T),
        draws=cells.sum(-1),
        method_right=both + m,
        reference_right=both + a,
        both_right=both,
        same_prediction=both + same,
    )


@pytest.fixture
def counts():
    return table(np.random.default_rng(0).integers(0, 6, (7, 3, 5)))


def test_saved_counts_come_back_and_equal_counts_give_equal_bytes(counts, tmp_path):
    counts.save(tmp_path / "a.npz")
    counts.save(tmp_path / "b.npz")
    assert Counts.load(tmp_path / "a.npz") == counts
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}  # no time of writing


def test_files_are_plain_npz_with_the_documented_names(counts, tmp_path):
    counts.save(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as stored:
        names = ["ids", "labels", "taus", "joint", "same_prediction"]
        assert sorted(stored) == sorted(names)
        assert stored["ids"].tolist() == list(counts.ids)
        assert {stored[name].dtype for name in names[3:]} == {np.dtype(np.int32)}
        assert {name: stored[name].shape for name in names[3:]} == {"joint": (7, 3, 4), "same_prediction": (7, 3)}


def test_what_is_derived_is_int32_and_what_was_given():
    rng = np.random.default_rng(3)
    cells = rng.integers(0, 6, (7, 3, 5))
    both, m, a = (cells[..., k] for k in range(3))
    counts = table(cells)
    derived = {"draws": cells.sum(-1), "method_right": both + m, "reference_right": both + a, "both_right": both}
    for name, expected in derived.items():
        assert getattr(counts, name).dtype == np.int32
        assert np.array_equal(getattr(counts, name), expected)


def test_damaged_and_foreign_files_are_refused(counts, tmp_path):
    counts.save(tmp_path / "a.npz")
    whole = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    np.savez(tmp_path / "other.npz", ids=np.arange(3))
    np.savez(tmp_path / "pickle.npz", ids=np.array([{}], dtype=object))
    for name in ("cut", "other", "pickle"):
        with pytest.raises(InputError, match="expected a counts file"):
            Counts.load(tmp_path / f"{name}.npz")


def test_adding_draws_and_joining_samples(counts):
    twice = counts + counts
    assert np.array_equal(twice.draws, 2 * counts.draws)
    front, back = counts.subset(counts.ids[:3]), counts.subset(counts.ids[3:])
    assert front.concat(back) == counts


def test_subset_follows_the_order_asked_for(counts):
    chosen = counts.subset([counts.ids[4], counts.ids[1]])
    assert chosen.ids == (counts.ids[4], counts.ids[1])
    assert np.array_equal(chosen.draws, counts.draws[[4, 1]])
    assert chosen.labels.tolist() == [1, 1]
    with pytest.raises(InputError, match="were not, the first is 'nobody'"):
        counts.subset(["nobody"])


def test_swapping_twice_changes_nothing(counts):
    swapped = counts.swapped()
    assert np.array_equal(swapped.method_right, counts.reference_right)
    assert swapped != counts
    assert swapped.swapped() == counts


def test_different_samples_or_radii_cannot_be_added(counts):
    with pytest.raises(InputError, match="can be added"):
        _ = counts + counts.subset(counts.ids[::-1])
    other = table(np.ones((7, 3, 5), int), taus=[0.1, 0.2, 0.3])
    with pytest.raises(InputError, match="can be added"):
        _ = counts + other
    with pytest.raises(InputError, match="same radii"):
        counts.concat(other)


GOOD = {"draws": 10, "method_right": 6, "reference_right": 5, "both_right": 4, "same_prediction": 5}


@pytest.mark.parametrize(
    "wrong",
    [
        {"both_right": -1},
        {"both_right": 6},
        {"method_right": 11},
        {"draws": 6},
        {"same_prediction": 3},
        {"same_prediction": 8},
    ],
)
def test_impossible_counts_are_refused(wrong):
    Counts.of(["a"], [0], [0.1], **{name: [[value]] for name, value in GOOD.items()})
    with pytest.raises(InputError, match=r"impossible counts at sample .a., radius 0\.1"):
        Counts.of(["a"], [0], [0.1], **{name: [[value]] for name, value in (GOOD | wrong).items()})


def test_wrong_shapes_and_repeated_ids_are_refused():
    one = {name: [[value]] for name, value in GOOD.items()}
    two = {name: [[value], [value]] for name, value in GOOD.items()}
    with pytest.raises(InputError, match="unique ids"):
        Counts.of(["a", "a"], [0, 0], [0.1], **two)
    with pytest.raises(InputError, match="expected int32 of shape"):
        Counts.of(["a", "b"], [0, 0], [0.1], **one)
    with pytest.raises(InputError, match="labels"):
        Counts.of(["a", "b"], [0], [0.1], **two)


def test_joint_counts_are_kept_by_everything_that_counts_allow(counts_of, drawn, tmp_path):
    rng = np.random.default_rng(1)
    one, other = (counts_of(drawn(rng, rng.random((6, 3)), 20, 2), prefix=prefix) for prefix in "ab")
    one.save(tmp_path / "counts.npz")
    assert Counts.load(tmp_path / "counts.npz") == one
    assert np.array_equal((one + one).joint, 2 * one.joint)
    assert one.concat(other).subset(other.ids) == other
    assert one.swapped().swapped() == one
    assert np.array_equal(one.swapped().joint[..., 1], one.joint[..., 2])  # only the reference right, only the model
    for mixed in (one + one.without_original(), one.without_original() + one):
        assert not mixed.knows_original
        assert np.array_equal(mixed.method_right, 2 * one.method_right)
    assert one.concat(other.without_original()) == one.concat(other).without_original()


def test_joint_counts_that_no_experiment_can_give_are_refused(counts_of, drawn):
    counts = counts_of(drawn(np.random.default_rng(2), np.full((3, 3), 0.5), 20, 1))
    with pytest.raises(InputError, match=r"counts.joint: expected int32 of shape \(3, 1, 8\)"):
        replace(counts, joint=counts.joint[..., :5])
    with pytest.raises(InputError, match="expected 0 <= joint"):
        replace(counts, joint=counts.joint - counts.joint.max())
    with pytest.raises(InputError, match="expected both_right <= same_prediction"):
        replace(counts, same_prediction=counts.both_right - 1)
