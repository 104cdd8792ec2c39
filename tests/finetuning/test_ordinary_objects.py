"""Models and predictors are ordinary objects: copied, pickled, used in worker processes and from several threads."""

from __future__ import annotations

import copy
import io
import multiprocessing
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from glassbert.finetuning.predictor import Predictor
from tests.finetuning.toy import make_model, sentences, tune, write_reviews

TEXTS = [text for text, _ in sentences(12, 9)]
WORKER: Predictor | None = None


KNOWN = {"glassbert", "numpy", "collections", "copyreg", "builtins", "_codecs", "pathlib", "types", "functools"}


class Recorder(pickle.Unpickler):
    """Notes which classes and functions a pickle calls."""

    def __init__(self, file):
        super().__init__(file)
        self.classes = set()

    def find_class(self, module, name):
        self.classes.add(f"{module}.{name}")
        return super().find_class(module, name)


@pytest.fixture(scope="module")
def predictor(tmp_path_factory) -> Predictor:
    folder = tmp_path_factory.mktemp("ordinary")
    train, dev = write_reviews(folder, 32, 16)
    tune(folder / "run", make_model(folder / "encoder"), train, dev, epochs=1)
    return Predictor.load(folder / "run", engine="numpy", threads=1)


def probabilities(predictor: Predictor, texts: list[str] = TEXTS) -> np.ndarray:
    return np.asarray(predictor.predict(texts).probabilities())


def test_a_deep_copy_has_its_own_weights(predictor):
    before = probabilities(predictor)
    other = copy.deepcopy(predictor)
    np.testing.assert_allclose(probabilities(other), before, atol=1e-6)  # its weights may change, so none is packed
    for array in other.model.parameters.values():
        array += 1
    np.testing.assert_array_equal(probabilities(predictor), before)
    assert not np.array_equal(probabilities(other), before)


def test_a_predictor_is_pickled_with_its_weights_and_no_code(predictor):
    content = pickle.dumps(predictor)
    np.testing.assert_array_equal(probabilities(pickle.loads(content)), probabilities(predictor))
    found = Recorder(io.BytesIO(content))
    found.load()
    assert found.classes and all(name.split(".")[0] in KNOWN for name in found.classes), found.classes
    assert not {"builtins.eval", "builtins.exec", "builtins.getattr"} & found.classes
    weights = sum(array.nbytes for array in predictor.model.parameters.values())
    assert len(content) < 3 * weights + 200_000  # no gradients, no caches


def test_a_model_is_pickled(predictor):
    model = pickle.loads(pickle.dumps(predictor.model))
    ids = np.array([[2, 7, 9, 3]])
    np.testing.assert_array_equal(model.predict(ids), predictor.model.predict(ids))
    loss, cache = model.loss(ids, [1])
    assert np.isfinite(float(loss)) and all(np.isfinite(g).all() for g in model.backward(cache).values())


def start_worker(content: bytes) -> None:
    global WORKER
    WORKER = pickle.loads(content)


def work(text: str) -> float:
    assert WORKER is not None
    return float(probabilities(WORKER, [text])[0])


@pytest.mark.parametrize("method", sorted({"spawn", "fork"} & set(multiprocessing.get_all_start_methods())))
def test_worker_processes_give_the_same_answers(predictor, method):
    expected = [float(probabilities(predictor, [text])[0]) for text in TEXTS[:4]]
    context = multiprocessing.get_context(method)
    with context.Pool(2, start_worker, (pickle.dumps(predictor),)) as pool:
        assert pool.map(work, TEXTS[:4]) == pytest.approx(expected, abs=1e-7)


def test_threads_share_one_predictor(predictor):
    expected = {text: probabilities(predictor, [text]) for text in TEXTS}
    with ThreadPoolExecutor(8) as threads:
        for text, found in zip(TEXTS * 5, threads.map(lambda t: probabilities(predictor, [t]), TEXTS * 5), strict=True):
            np.testing.assert_array_equal(found, expected[text])
