"""Geometry of point sets with known properties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassbert.errors import InputError
from glassbert.insight import anisotropy, intrinsic_dimension, isotropy, principal_components, umap_points
from glassbert.insight.geometry import umap_available
from glassbert.metrics import Undefined


def ball(count, dimensions, width, seed=0):
    """Random points of a low-dimensional cube, rotated into a wider space."""
    rng = np.random.default_rng(seed)
    turned, _ = np.linalg.qr(rng.standard_normal((width, width)))
    return rng.random((count, dimensions)) @ turned[:dimensions]


def test_principal_components_are_those_of_the_covariance():
    cloud = np.random.default_rng(0).standard_normal((200, 6)) * [5, 3, 2, 1, 1, 0.5]
    found = principal_components(cloud, 3)
    variances, axes = np.linalg.eigh(np.cov(cloud.T, bias=True))
    assert found.shares == pytest.approx(variances[::-1][:3] / variances.sum())
    assert np.abs(found.axes @ axes[:, ::-1][:, :3]) == pytest.approx(np.eye(3), abs=1e-9)
    assert found.points == pytest.approx((cloud - cloud.mean(0)) @ found.axes.T)
    assert (found.axes[np.arange(3), np.abs(found.axes).argmax(1)] > 0).all()


def test_two_components_keep_the_distances_of_planar_points():
    cloud = ball(50, 2, 7)
    points = principal_components(cloud).points
    assert np.linalg.norm(points[3] - points[9]) == pytest.approx(np.linalg.norm(cloud[3] - cloud[9]))


@pytest.mark.parametrize(("dimensions", "about"), [(1, 0.15), (2, 0.25), (5, 0.8)])
def test_the_intrinsic_dimension_of_a_ball(dimensions, about):
    assert intrinsic_dimension(ball(1500, dimensions, 20)) == pytest.approx(dimensions, abs=about)


def test_the_dimension_does_not_change_with_scale_position_or_copies():
    cloud = ball(400, 3, 8)
    expected = intrinsic_dimension(cloud)
    assert intrinsic_dimension(100 * cloud + 7) == pytest.approx(expected, rel=1e-6)
    assert intrinsic_dimension(np.concatenate([cloud, cloud[:50]])) == pytest.approx(expected)


def test_anisotropy_is_the_mean_cosine_of_pairs():
    cloud = np.random.default_rng(1).standard_normal((30, 5)) + 0.7
    unit = cloud / np.linalg.norm(cloud, axis=1, keepdims=True)
    cosines = [unit[i] @ unit[j] for i in range(30) for j in range(30) if i != j]
    assert anisotropy(cloud) == pytest.approx(np.mean(cosines))


@given(st.integers(2, 9), st.floats(0.1, 100))
@settings(max_examples=20, deadline=None)
def test_parallel_vectors_are_wholly_anisotropic_and_opposite_ones_cancel(count, length):
    line = np.outer(np.linspace(1, length + 1, count), [1.0, 2.0, 2.0])
    assert anisotropy(line) == pytest.approx(1)
    assert anisotropy(np.concatenate([line, -line])) == pytest.approx(-1 / (2 * count - 1))


def test_isotropy_of_a_ball_and_of_a_line():
    corners = np.array([[1.0, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]])
    assert isotropy(corners) == pytest.approx(1)
    assert isotropy(corners + np.array([3, 0, 9])) == pytest.approx(1)  # the mean does not matter
    assert isotropy(np.outer(np.arange(9.0), [1, 2, 3])) == pytest.approx(0, abs=1e-9)
    assert isotropy(corners[:4]) == pytest.approx(0.5)  # two of three directions


@pytest.mark.parametrize("measure", [principal_components, isotropy, anisotropy, intrinsic_dimension])
def test_degenerate_points_raise_undefined(measure):
    with pytest.raises(Undefined, match=r"^no "):
        measure(np.zeros((30, 4)))
    with pytest.raises(InputError, match="at least two points"):
        measure(np.ones((1, 4)))
    with pytest.raises(InputError, match="not finite"):
        measure(np.array([[1.0, np.nan], [2, 3]]))


def test_too_few_points_have_no_dimension():
    with pytest.raises(Undefined, match="19 different points"):
        intrinsic_dimension(np.repeat(ball(19, 2, 4), 3, axis=0))


@pytest.mark.skipif(umap_available(), reason="umap-learn is installed")
def test_without_umap_the_error_names_the_package():
    with pytest.raises(InputError, match="pip install umap-learn"):
        umap_points(ball(30, 2, 4))
