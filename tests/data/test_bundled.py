"""digits and iris against scikit-learn's own numbers."""

import numpy as np
from sklearn import datasets

from residuum.data import load_dataset


def test_digits_are_sixteenths_in_file_order():
    data, raw = load_dataset("digits"), datasets.load_digits()
    assert data.train.x.shape == (1797, 1, 8, 8)
    np.testing.assert_array_equal(data.train.x.numpy()[:, 0] * 16, raw.images)
    np.testing.assert_array_equal(data.train.y.numpy(), raw.target)
    assert data.train.ids[42] == "digits/0042"
    assert data.class_names == tuple("0123456789")
    assert data.test is None


def test_iris_is_scaled_by_fixed_bounds():
    data, raw = load_dataset("iris"), datasets.load_iris()
    low, high = np.array([4, 2, 1, 0]), np.array([8, 4.5, 7, 2.5])
    np.testing.assert_allclose(data.train.x.numpy() * (high - low) + low, raw.data, atol=1e-6)
    assert data.train.ids[17] == "iris/017"
    assert data.class_names == ("setosa", "versicolor", "virginica")


def test_loading_twice_gives_the_same_fingerprint():
    assert load_dataset("digits").fingerprint == load_dataset("digits").fingerprint
    assert load_dataset("digits").fingerprint != load_dataset("iris").fingerprint
