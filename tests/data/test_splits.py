"""Every way to ask for a deletion, the partition it gives, and the requests that are refused."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from residuum.core.errors import InputError
from residuum.data import Dataset, load_dataset, make_splits
from residuum.data.ids import shuffled
from residuum.data.splits import shares, stratified

SIZES = {"train_size": 897, "validation_size": 450, "test_size": 450}
PARTS = ("train", "retain", "forget", "validation", "test", "forgotten_test")


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


def toy(counts, test_counts=None):
    """Return a data set whose single feature is the row number, so that samples can be followed."""

    def part(numbers):
        y = np.random.default_rng(0).permutation(np.repeat(np.arange(len(numbers)), numbers))
        return np.arange(len(y))[:, None] / 1000, y

    x, y = part(counts)
    names = [f"c{i}" for i in range(len(counts))]
    test = None if test_counts is None else part(test_counts)
    return Dataset.from_arrays(x, y, class_names=names, test=test)


def sizes(splits):
    return {part: len(getattr(splits, part)) for part in PARTS}


def counts(samples, classes=10):
    return torch.bincount(samples.y, minlength=classes).tolist()


def test_half_of_a_class_of_digits(digits):
    splits = make_splits(digits, forget_class=8, forget_fraction=0.5, **SIZES)
    assert sizes(splits) == {
        "train": 897, "retain": 853, "forget": 44, "validation": 450, "test": 450, "forgotten_test": 0,
    }  # fmt: skip
    assert (splits.form, splits.forget_class, splits.classes) == ("sample", 8, 10)
    assert set(splits.forget.y.tolist()) == {8}
    assert counts(splits.train)[8] == 87
    assert splits.forget.ids[:3] == ("digits/0018", "digits/0114", "digits/0138")
    assert splits.forgotten_test.shape == (1, 8, 8)


def test_cuts_keep_the_class_proportions(digits):
    splits = make_splits(digits, forget_class=8, **SIZES)
    whole = np.array(counts(digits.train))
    for part, size in (("train", 897),):
        assert np.abs(np.array(counts(getattr(splits, part))) - whole * size / 1797).max() < 2
    sample_form = make_splits(digits, forget_class=8, forget_fraction=0.5, **SIZES)
    for part in ("validation", "test"):
        assert np.abs(np.array(counts(getattr(sample_form, part))) - whole * 450 / 1797).max() < 2


@pytest.mark.parametrize("fraction", [None, 1, 1.0])
def test_whole_class_leaves_validation_and_test(digits, fraction):
    splits = make_splits(digits, forget_class="8", forget_fraction=fraction, **SIZES)
    assert (splits.form, splits.forget_class) == ("class", 8)
    assert counts(splits.retain)[8] == counts(splits.validation)[8] == counts(splits.test)[8] == 0
    assert set(splits.forget.y.tolist()) == set(splits.forgotten_test.y.tolist()) == {8}
    assert len(splits.test) + len(splits.forgotten_test) == 450
    assert len(splits.forget) == counts(splits.train)[8]


def test_both_forms_share_training_and_test_samples(digits):
    sample, whole = (make_splits(digits, forget_class=8, forget_fraction=f, **SIZES) for f in (0.5, None))
    assert sample.train.ids == whole.train.ids
    assert set(sample.test.ids) == {*whole.test.ids, *whole.forgotten_test.ids}
    assert set(sample.forget.ids) < set(whole.forget.ids)


def test_random_fraction_of_everything(digits):
    splits = make_splits(digits, forget_fraction=0.1, **SIZES)
    assert len(splits.forget) == 90  # 89.7 rounded
    assert len(set(splits.forget.y.tolist())) == 10
    assert (splits.form, splits.forget_class) == ("sample", None)


def test_fractions_round_half_up():
    splits = make_splits(toy([5, 4], [1, 1]), forget_class=0, forget_fraction=0.5)
    assert len(splits.forget) == 3


def test_ids_as_list_and_as_file(digits, tmp_path):
    train = make_splits(digits, forget_class=8, **SIZES).train
    wanted = [train.ids[5], train.ids[2]]
    file = tmp_path / "ids.txt"
    file.write_text(f"\ufeff# to delete\n\n  {wanted[0]}  \r\n{wanted[1]}\n# end", encoding="utf-8")
    for ids in (wanted, tuple(wanted), np.array(wanted), file, str(file)):
        splits = make_splits(digits, forget_ids=ids, **SIZES)
        assert splits.forget.ids == (train.ids[2], train.ids[5])
        assert (splits.form, splits.forget_class) == ("sample", None)


def test_ids_of_a_whole_class_stay_in_sample_form(digits):
    whole = make_splits(digits, forget_class=8, **SIZES)
    by_id = make_splits(digits, forget_ids=whole.forget.ids, **SIZES)
    assert by_id.form == "sample"
    assert by_id.retain.ids == whole.retain.ids
    assert counts(by_id.test)[8] > 0


def test_classes_are_renumbered_in_the_order_given():
    data = toy([6, 6, 6, 6], [4, 4, 4, 4])
    splits = make_splits(data, classes=["c3", 1], forget_class="c3")
    assert splits.class_names == ("c3", "c1")
    assert splits.forget_class == 0
    old = dict(zip(data.train.ids, data.train.y.tolist(), strict=True))
    assert {(old[name], new) for name, new in zip(splits.train.ids, splits.train.y.tolist(), strict=True)} == {
        (3, 0),
        (1, 1),
    }
    assert (len(splits.test), len(splits.forgotten_test)) == (4, 4)
    assert set(splits.test.y.tolist()) == {1}


def test_small_pool_of_chosen_ids():
    data = toy([20, 20, 20], [9, 9, 9])
    pool = data.train.ids[10:50]
    splits = make_splits(data, train_ids=pool, train_size=12, validation_size=6, test_size=9, forget_class=1)
    assert {*splits.train.ids, *splits.validation.ids} <= set(pool)
    assert len(splits.train) == 12
    assert counts(splits.test, 3) == [3, 0, 3]
    assert counts(splits.forgotten_test, 3) == [0, 3, 0]


def test_ids_of_other_classes_may_stand_in_the_pool():
    data = toy([20, 20, 20], [9, 9, 9])
    splits = make_splits(data, train_ids=data.train.ids[:30], classes=[0, 2], forget_fraction=0.5)
    assert splits.train.ids == tuple(data.train.ids[i] for i in range(30) if data.train.y[i] != 1)


def test_without_a_test_size_the_official_test_set_is_whole_and_in_order():
    data = toy([9, 9], [4, 5])
    splits = make_splits(data, forget_fraction=0.3)
    assert splits.test.ids == data.test.ids
    assert len(splits.train) == 18


def test_everything_depends_on_the_seed_only(digits):
    first, second, other = (
        make_splits(digits, forget_class=8, forget_fraction=0.5, seed=s, **SIZES) for s in (7, 7, 8)
    )
    for part in PARTS:
        assert getattr(first, part).ids == getattr(second, part).ids
    for part in ("train", "forget", "validation", "test"):
        assert getattr(first, part).ids != getattr(other, part).ids


def test_global_generators_play_no_part_and_are_left_alone(digits):
    torch.manual_seed(1)
    np.random.seed(1)
    states = torch.get_rng_state(), np.random.get_state()[1].copy()
    one = make_splits(digits, forget_fraction=0.2, **SIZES)
    assert torch.equal(states[0], torch.get_rng_state())
    assert (states[1] == np.random.get_state()[1]).all()
    torch.manual_seed(2)
    assert one.forget.ids == make_splits(digits, forget_fraction=0.2, **SIZES).forget.ids


REQUESTS = st.sampled_from(
    [{"forget_class": 1}, {"forget_class": 1, "forget_fraction": 0.4}, {"forget_fraction": 0.3}, {"forget_ids": 3}]
)


@given(
    st.lists(st.integers(6, 15), min_size=2, max_size=4),
    st.booleans(),
    st.integers(0, 3),
    REQUESTS,
    st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_parts_are_disjoint_ordered_and_complete(numbers, official, validation, request, seed):
    data = toy(numbers, [3] * len(numbers) if official else None)
    tested = 2 * len(numbers)  # enough for a sample of every class, however unequal they are
    options = {"validation_size": validation, "test_size": tested, "seed": seed}
    if request == {"forget_ids": 3}:
        request = {"forget_ids": make_splits(data, forget_fraction=0.5, **options).train.ids[1:3]}
    splits = make_splits(data, **request, **options)
    row = {name: i for i, name in enumerate(data.train.ids)}
    assert sorted((*splits.retain.ids, *splits.forget.ids), key=row.get) == list(splits.train.ids)
    disjoint = [
        *splits.retain.ids,
        *splits.forget.ids,
        *splits.validation.ids,
        *splits.test.ids,
        *splits.forgotten_test.ids,
    ]
    assert len(set(disjoint)) == len(disjoint)
    left_out = 0 if splits.form == "sample" else validation - len(splits.validation)
    taken = 0 if official else tested
    assert len(splits.train) + len(splits.validation) + left_out + taken == len(data.train)
    assert len(splits.test) + len(splits.forgotten_test) == tested
    for part in PARTS:
        samples = getattr(splits, part)
        source = data.test if official and "test" in part else data.train
        place = {name: i for i, name in enumerate(source.ids)}
        rows = [place[name] for name in samples.ids]
        assert rows == sorted(rows)
        assert torch.equal(samples.x, source.x[rows])
        assert torch.equal(samples.y, source.y[rows])


def foreign(digits, part):
    return getattr(make_splits(digits, forget_class=8, forget_fraction=0.5, **SIZES), part).ids[0]


@pytest.mark.parametrize("part", ["validation", "test"])
def test_ids_outside_training_are_told_apart(digits, part):
    with pytest.raises(InputError, match=f"is in the {part} set; the model was not trained on it"):
        make_splits(digits, forget_ids=[foreign(digits, part)], **SIZES)


def test_ids_of_the_class_left_out_of_the_test_set_are_found_there():
    data = toy([5, 5], [3, 3])
    with pytest.raises(InputError, match=r"'test/0' is in the test set"):
        make_splits(data, forget_ids=["test/0"])


def test_ids_that_were_not_drawn_for_training_are_told_apart(digits):
    small = SIZES | {"train_size": 100}
    train = set(make_splits(digits, forget_class=8, **small).train.ids)
    left = next(i for i in make_splits(digits, forget_class=8, **SIZES).train.ids if i not in train)
    with pytest.raises(InputError, match=r"in the data set but not in the training subset; see train_size"):
        make_splits(digits, forget_ids=[left], **small)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "nothing to forget; give forget_class"),
        ({"forget_ids": ["digits/9999"]}, "'digits/9999' does not exist; did you mean digits/"),
        ({"forget_ids": ["@@"]}, "'@@' does not exist; ids look like digits/"),
        ({"forget_ids": []}, "the forget set is empty"),
        ({"forget_class": 8, "forget_fraction": 0.001}, "the forget set is empty"),
        ({"forget_fraction": 1.0}, "the forget set is the whole training set"),
        ({"forget_class": 8, "forget_ids": ["digits/0001"]}, "either forget_ids or forget_class"),
        ({"forget_fraction": 0.0}, "forget_fraction must be a number above 0 and at most 1, got 0.0"),
        ({"forget_fraction": 1.5}, "got 1.5"),
        ({"forget_fraction": float("nan")}, "got nan"),
        ({"forget_fraction": "half"}, "got 'half'"),
        ({"forget_class": 10}, "unknown class '10'"),
        ({"forget_class": -1}, "unknown class '-1'"),
        ({"forget_class": "eight"}, "unknown class 'eight'"),
        ({"forget_class": True}, "a class is given by name or number, got True"),
        ({"forget_class": 8.0}, "a class is given by name or number, got 8.0"),
        ({"forget_class": 0, "classes": [1]}, "at least two different classes"),
        ({"forget_class": 0, "classes": [1, "1"]}, "at least two different classes"),
        ({"forget_class": 0, "classes": "123"}, "must be a list of names or numbers"),
        ({"forget_class": 0, "classes": [1, "x"]}, "unknown class 'x'"),
        ({"forget_class": 8, "train_ids": ["nope"]}, "train_ids: 'nope' is not in the training set"),
        ({"forget_class": 8, "train_ids": []}, "train_ids leaves no training sample"),
        ({"forget_class": 8, "train_ids": ["digits/0001"] * 2}, "train_ids: 'digits/0001' occurs 2 times"),
        ({"forget_class": 8, "test_size": None}, "'digits' has no test set; give test_size"),
        ({"forget_class": 8, "train_size": 898}, "has 1797 samples, too few for test 450, validation 450, train 898"),
        ({"forget_class": 8, "train_size": None, "validation_size": 1347}, "too few for test 450, validation 1347;"),
        ({"forget_class": 8, "train_size": 0}, "train_size must be a whole number of samples, 1 or more, got 0"),
        ({"forget_class": 8, "validation_size": -1}, "validation_size must be a whole number"),
        ({"forget_class": 8, "validation_size": None}, "validation_size must be a whole number"),
        ({"forget_class": 8, "test_size": 0.2}, "test_size must be a whole number of samples, 1 or more, got 0.2"),
    ],
)
def test_bad_requests_get_one_clear_line(digits, options, message):
    with pytest.raises(InputError, match=message) as caught:
        make_splits(digits, **(SIZES | options))
    assert "\n" not in str(caught.value)


def test_repeated_ids_are_refused(digits):
    name = foreign(digits, "train")
    with pytest.raises(InputError, match=f"forget_ids: '{name}' occurs 2 times"):
        make_splits(digits, forget_ids=[name, name], **SIZES)


def test_a_test_set_that_is_too_small_is_refused():
    with pytest.raises(InputError, match=r"test_size is 7, but the test set has 6 samples"):
        make_splits(toy([5, 5], [3, 3]), forget_class=0, test_size=7)


def test_unreadable_id_files_are_refused(digits, tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*absent.txt"):
        make_splits(digits, forget_ids=tmp_path / "absent.txt", **SIZES)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"not a UTF-8 text file"):
        make_splits(digits, forget_ids=tmp_path / "binary", **SIZES)


def test_a_class_without_training_samples_cannot_be_forgotten():
    data = Dataset.from_arrays(
        np.zeros((4, 1)), [0, 0, 1, 1], class_names=["a", "b", "c"], test=(np.zeros((1, 1)), [0])
    )
    with pytest.raises(InputError, match=r"the forget set is empty"):
        make_splits(data, forget_class="c")


def test_a_test_set_of_the_forgotten_class_only_is_refused():
    data = Dataset.from_arrays(np.zeros((4, 1)), [0, 0, 1, 1], test=(np.zeros((2, 1)), [1, 1]))
    with pytest.raises(InputError, match=r"no test sample is left"):
        make_splits(data, forget_class=1)


def test_a_later_request_takes_from_what_is_left(digits):
    half = {"forget_class": 8, "forget_fraction": 0.5}
    first = make_splits(digits, **half, **SIZES)
    rest = make_splits(digits, forget_class=8, earlier=[half], **SIZES)
    assert rest.train.ids == first.retain.ids
    assert len(rest.forget) == 87 - 44
    assert set(rest.forget.y.tolist()) == {8}
    assert 8 not in rest.retain.y
    assert (rest.form, rest.forget_class) == ("class", 8)
    together = make_splits(digits, forget_class=8, earlier=[half], cumulative=True, **SIZES)
    at_once = make_splits(digits, forget_class=8, **SIZES)
    for part in PARTS:
        assert getattr(together, part).ids == getattr(at_once, part).ids
    assert (together.form, together.forget_class) == (at_once.form, at_once.forget_class)


def test_classes_one_after_the_other_keep_class_form(digits):
    splits = make_splits(digits, forget_class=3, earlier=[{"forget_class": 8}], cumulative=True, **SIZES)
    assert (splits.form, splits.forget_class) == ("class", None)
    for part in ("forget", "forgotten_test"):
        assert set(getattr(splits, part).y.tolist()) == {3, 8}
    for part in ("retain", "validation", "test"):
        assert not {3, 8} & set(getattr(splits, part).y.tolist())


def test_a_class_and_some_samples_are_sample_form_and_the_class_stays_out_of_the_test(digits):
    splits = make_splits(digits, forget_fraction=0.1, earlier=[{"forget_class": 8}], cumulative=True, **SIZES)
    assert splits.form == "sample"
    assert 8 not in splits.test.y
    assert len(splits.forget) == 87 + 81
    alone = make_splits(digits, forget_fraction=0.1, earlier=[{"forget_class": 8}], **SIZES)
    assert (alone.form, len(alone.forget), 8 in alone.forget.y) == ("sample", 81, False)


def test_a_later_request_is_drawn_evenly_from_a_class_that_gave_before(digits):
    earlier = [{"forget_class": 8, "forget_fraction": 0.5}]
    shares = []
    for seed in range(20):
        chosen = make_splits(digits, forget_fraction=0.2, earlier=earlier, seed=seed, **SIZES)
        shares.append(counts(chosen.forget)[8] / counts(chosen.train)[8])
    assert 0.15 < np.mean(shares) < 0.25


REQUESTS = st.one_of(
    st.builds(lambda c: {"forget_class": c}, st.integers(0, 2)),
    st.builds(lambda f: {"forget_fraction": f}, st.floats(0.05, 0.5)),
    st.builds(lambda c, f: {"forget_class": c, "forget_fraction": f}, st.integers(0, 2), st.floats(0.1, 0.9)),
)


@settings(deadline=None, max_examples=40)
@given(st.lists(REQUESTS, min_size=1, max_size=5), st.integers(0, 3))
def test_requests_never_overlap_and_together_are_what_is_gone(requests, seed):
    data, taken, refused = toy([20, 15, 15], test_counts=[5, 5, 5]), [], None
    for number, request in enumerate(requests):
        asked = {**request, "earlier": requests[:number], "seed": seed}
        try:
            alone, so_far = (make_splits(data, **asked, cumulative=value) for value in (False, True))
        except InputError as error:
            refused = str(error)
            break
        taken.append(set(alone.forget.ids))
        assert sum(map(len, taken)) == len(set().union(*taken)) == len(so_far.forget)
        assert set(so_far.forget.ids) == set().union(*taken)
        assert alone.retain.ids == so_far.retain.ids
        assert set(so_far.train.ids) == set(data.train.ids)
        assert set(alone.train.ids) == set(alone.retain.ids) | set(alone.forget.ids)
        assert not set(alone.retain.ids) & set(so_far.forget.ids)
    impossible = ("is empty", "nothing would be retained", "no test sample")
    assert refused is None or any(text in refused for text in impossible)


FIRST = {"forget_class": "c0", "forget_fraction": 0.5}


@pytest.mark.parametrize(
    ("earlier", "request_", "message"),
    [
        ([{"forget_ids": ["3", "4"]}], {"forget_ids": ["4", "3"]}, "request 2: forget_ids: '3' and 1 more was already"),
        ([FIRST, {"forget_ids": ["3"]}], {"forget_ids": ["3"]}, "request 3: forget_ids: '3' was already taken by requ"),
        ([FIRST], {"forget_ids": ["300"]}, "request 2: forget_ids: '300' does not exist"),
        ([FIRST], {"forget_fraction": 1}, r"request 2: .*what earlier requests left .*\(40 samples\); nothing would"),
        ([{"forget_class": 0}], {"forget_class": 0}, "request 2: the forget set is empty"),
        ([{"forget_clas": 0}], {"forget_class": 0}, "request 1: unknown field of a request 'forget_clas'; did you m"),
        ([{"forget_class": "c9"}], {"forget_class": 0}, "request 1: unknown class 'c9'"),
        ([{}], {"forget_class": 0}, "request 1: nothing to forget"),
    ],
)
def test_sequences_that_cannot_be_carried_out_are_refused(earlier, request_, message):
    with pytest.raises(InputError, match=message):
        make_splits(toy([20, 15, 15], test_counts=[5, 5, 5]), earlier=earlier, **request_)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.data())
def test_shares_add_up_and_stay_within_one_of_the_exact_share(counts, data):
    size = data.draw(st.integers(0, sum(counts)))
    taken = shares(counts, size)
    assert sum(taken) == size
    for share, count in zip(taken, counts, strict=True):
        assert 0 <= share <= count
        assert abs(share * max(sum(counts), 1) - size * count) < max(sum(counts), 1)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.data())
@settings(max_examples=50)
def test_stratified_takes_the_first_of_each_class(labels, data):
    y = np.array(labels)
    size = data.draw(st.integers(0, len(y)))
    order = shuffled([str(i) for i in range(len(y))], data.draw(st.integers(0, 99)), "split")
    chosen, rest = stratified(order, y, 4, size)
    left = shares(np.bincount(y, minlength=4).tolist(), size)
    slow = []
    for i in order:
        if left[y[i]]:
            left[y[i]] -= 1
            slow.append(i)
    assert chosen.tolist() == slow
    assert rest.tolist() == [i for i in order if i not in set(slow)]
