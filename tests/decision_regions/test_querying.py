"""Asking the models: the plane, the copies and the answers, each computed a second way; and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from residuum.auditing import Counts
from residuum.decision_regions.answers import Answers
from residuum.decision_regions.querying import lead, principal_plane
from residuum.experiments import Experiment, plan, run_all, write_run
from residuum.models import load_weights
from residuum.types import InputError, child_seed

QUICK = {
    "train.epochs": 40,
    "relearn.epochs": 1,
    "audit.draws": 30,
    "audit.taus.gaussian": [0, 0.1],
    "picture.copies": 30,
    "picture.shown": 10,
    "picture.resolution": 9,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("iris")
    experiment = Experiment.create("iris-figure", seeds=[5, 6], overrides=QUICK)
    write_run(experiment, run_all([experiment], store=folder / "store")[0], folder / "out")
    return experiment, folder / "out"


@pytest.fixture
def answers(made):
    return Answers.load(made[1] / "pictures" / "5.npz")


def model_of(made, label, seed=5):
    return load_weights(made[1] / "models" / str(seed) / f"{label}.safetensors").double()


def test_the_scenario_forgets_seven_flowers_of_three_species():
    experiment = Experiment.create("iris-figure")
    splits, scenario = experiment.splits(), experiment.scenario
    assert (scenario.model.name, scenario.model.width) == ("mlp", 100)
    assert [row.method for row in experiment.rows] == ["gd"]
    assert len(splits.forget) == 7
    assert set(splits.forget.y.tolist()) == {0, 1, 2}
    assert len(set(scenario.seeds)) == 20
    assert scenario.picture.radius in scenario.audit.taus["gaussian"]


def test_the_plane_is_that_of_the_principal_components(made, answers):
    x = made[0].splits().train.x.double().numpy()
    other = PCA(2).fit(x)
    np.testing.assert_allclose(answers.mean, x.mean(0))
    np.testing.assert_allclose(np.abs(answers.axes @ other.components_.T), np.eye(2), atol=1e-6)
    np.testing.assert_allclose(answers.explained, other.explained_variance_ratio_, rtol=1e-6)
    np.testing.assert_allclose(np.abs(answers.train), np.abs(other.transform(x)), atol=1e-6)


def test_an_axis_points_where_its_largest_entry_is_positive():
    _, axes, _ = principal_plane(np.random.default_rng(0).random((20, 5)))
    assert all(axis[np.abs(axis).argmax()] > 0 for axis in axes)
    with pytest.raises(InputError, match="for a plane, got shape"):
        principal_plane(np.ones((3, 1)))


def test_right_copies_are_those_the_audit_counted(made, answers):
    for position, label in enumerate(["retrain", "gd", "control"]):
        counts = Counts.load(made[1] / "counts" / "5" / label / "gaussian.npz")
        order = [list(counts.ids).index(name) for name in answers.ids]
        column = list(counts.taus).index(0.1)
        right = (answers.copies_say[position] == answers.labels[:, None]).sum(1)
        assert right.tolist() == counts.method_right[order, column].tolist(), label
        same = (answers.copies_say[position] == answers.copies_say[0]).sum(1)
        assert same.tolist() == counts.same_prediction[order, column].tolist(), label
        centre = (answers.centre_says[position] == answers.labels).astype(int)
        assert centre.tolist() == counts.method_right[order, list(counts.taus).index(0)].tolist(), label


def test_copies_scatter_as_gaussian_noise_of_the_radius_and_stay_in_range(answers):
    noise = answers.copies - answers.inputs[:, None]
    inside = (answers.copies > 0) & (answers.copies < 1)
    assert abs(noise.mean()) < 0.02
    assert noise[inside].std() == pytest.approx(0.1, rel=0.1)
    assert answers.copies.min() >= 0
    assert answers.copies.max() <= 1


def test_points_of_both_slices_are_asked_where_the_documentation_says(made, answers):
    for position, label in enumerate(["retrain", "gd", "control"]):
        model = model_of(made, label)
        for row, column in ((0, 0), (3, 7), (8, 1)):
            place = np.array([answers.overview_x[column], answers.overview_y[row]])
            near = np.array([answers.around_at[column], answers.around_at[row]])
            points = [answers.mean + place @ answers.axes, answers.inputs[4] + near @ answers.axes]
            stored = [answers.overview[position, row, column], answers.around[position, 4, row, column]]
            for point, leads in zip(points, stored, strict=True):
                z = model(torch.from_numpy(point)[None]).detach().numpy()[0]
                slow = [z[k] - max(z[j] for j in range(3) if j != k) for k in range(3)]
                np.testing.assert_allclose(leads, slow, rtol=1e-4, atol=1e-5)


def test_exactly_the_forgotten_samples_are_marked_and_projected(made, answers):
    forget = made[0].splits().forget
    assert answers.ids.tolist() == list(forget.ids)
    np.testing.assert_allclose(answers.centres, answers.train[answers.train_forgotten], atol=1e-6)
    assert (answers.centre_says[1] == model_of(made, "gd")(forget.x.double()).argmax(1).numpy()).all()


def test_a_tie_leads_by_nothing():
    assert lead(np.array([[2.0, 2.0, 1.0]])).tolist() == [[0.0, 0.0, -1.0]]


def test_equal_settings_give_equal_bytes_and_seeds_differ(made, answers, tmp_path):
    answers.save(tmp_path / "again.npz")
    first, second = (made[1] / "pictures" / f"{seed}.npz" for seed in (5, 6))
    assert (tmp_path / "again.npz").read_bytes() == first.read_bytes()
    assert not np.array_equal(answers.copies, Answers.load(second).copies)
    assert child_seed(5, "audit") != child_seed(6, "audit")


def test_a_picture_belongs_to_its_row_and_settings():
    first, wider, other = (
        plan(Experiment.create("iris-figure", methods=methods, seeds=[1], overrides=changes))[0].picture
        for methods, changes in (("gd", {}), ("gd", {"picture.radius": 0.2}), ("ga", {}))
    )
    assert first.title == "picture gd (seed 1)"
    assert len({first.key, wider.key, other.key}) == 3
    assert list(other.parents) == ["retrain", "ga", "control"]
    assert plan(Experiment.create("digits", seeds=[1]))[0].picture is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"overrides": {"picture.radius": 0}}, "picture.radius: .*greater than 0, got 0"),
        ({"overrides": {"picture.least": 1.5}}, "picture.least: .*less than or equal to 1, got 1.5"),
        ({"overrides": {"picture.copies": 0}}, "picture.copies: .*greater than or equal to 1"),
        ({"overrides": {"picture.resolution": 2}}, "picture.resolution: .*greater than or equal to 5"),
        ({"overrides": {"picture.radios": 1}}, "unknown setting 'picture.radios'; did you mean picture.radius"),
        ({"methods": []}, "at least one method for the picture"),
        ({"scenario": "digits", "overrides": {"picture.radius": 1}}, "unknown setting 'picture.radius'"),
    ],
)
def test_wrong_settings_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        Experiment.create(**{"scenario": "iris-figure", **arguments})


def test_a_flower_outside_the_training_set_cannot_be_forgotten():
    with pytest.raises(InputError, match="iris/999"):
        Experiment.create("iris-figure", overrides={"forget.forget_ids": "iris/999,iris/041"}).splits()


def test_a_file_that_is_no_picture_is_refused(tmp_path):
    (tmp_path / "x.npz").write_bytes(b"nothing")
    with pytest.raises(InputError, match="expected a picture written by residuum"):
        Answers.load(tmp_path / "x.npz")
