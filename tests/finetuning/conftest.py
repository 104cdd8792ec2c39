"""Fixtures: a toy encoder, and files with training and held-out reviews."""

import pytest

from tests.finetuning.toy import make_model, write_reviews


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    return write_reviews(tmp_path_factory.mktemp("reviews"))
