"""Fixtures: a toy masked language model, its texts, and the same model in 8 and 4 bits."""

import pytest

from glassbert.quantization import QuantizationSettings, quantize
from tests.finetuning.toy import make_model, sentences

SIZES = {"hidden_size": 64, "intermediate_size": 128}


@pytest.fixture(scope="package")
def toy(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("toy"), **SIZES)


@pytest.fixture(scope="package")
def texts(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    path.write_text("".join(f"{text}.\n" for text, _ in sentences(60)), encoding="utf-8")
    return path


@pytest.fixture(scope="package")
def folders(toy, texts, tmp_path_factory):
    """What `quantize` wrote, by bits."""
    base = tmp_path_factory.mktemp("quantised")
    return {
        bits: quantize(toy, base / f"int{bits}", QuantizationSettings(bits), data=texts, threads=1) for bits in (8, 4)
    }
