"""Which models are served, under which names, and what happens when their folders are replaced."""

import errno
import gc
import shutil
import weakref
from pathlib import Path

import numpy as np
import pytest

from glassbert.errors import GlassBertError, InputError
from glassbert.finetuning.card import TASK
from glassbert.serving import models
from glassbert.serving.keys import VARIABLE, read_keys
from glassbert.serving.models import Shelf, Watch, name_of, state_of
from tests.finetuning.test_predictor import save
from tests.serving.running import save_language_model, serving


def test_names():
    assert name_of("mini") == ("mini", "mini")
    assert name_of("runs/stars") == ("stars", "runs/stars") and name_of("runs/stars/model")[0] == "stars"
    assert name_of("good=runs/stars") == ("good", "runs/stars") and name_of("runs/stars/")[0] == "stars"


def test_two_models_of_one_name_are_refused(tmp_path):
    folder = save_language_model(tmp_path / "words")
    with pytest.raises(InputError, match="two models have the name 'words'"):
        Shelf([str(folder), str(folder)], engine="numpy")
    assert list(Shelf([f"a={folder}", f"b={folder}"], engine="numpy").models) == ["a", "b"]


def test_what_cannot_be_served_is_named(tmp_path):
    with pytest.raises(GlassBertError, match="nothing-here"):
        Shelf([str(tmp_path / "nothing-here")])
    folder = save(tmp_path / "model-without-tokenizer", "binary")
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").unlink()
    with pytest.raises(GlassBertError):
        Shelf([str(folder)], engine="numpy")


def replace_with(folder, other):
    """As a deployment does it: another folder is moved into the place."""
    folder.rename(folder.with_name("before"))
    shutil.copytree(other, folder)
    shutil.rmtree(folder.with_name("before"))


def truncated(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def one_bit(folder):
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-50] ^= 1
    (folder / "model.safetensors").write_bytes(weights)


BROKEN = {
    "shorter weights": truncated,
    "a flipped bit": one_bit,
    "no config": lambda folder: (folder / "config.json").unlink(),
    "another card": lambda folder: (folder / TASK).write_text('{"format": 1}'),
    "nothing": lambda folder: shutil.rmtree(folder),
}


def test_a_good_replacement_takes_over_and_a_broken_one_is_refused(tmp_path):
    folder = save(tmp_path / "model-a", "multiclass")
    good = tmp_path / "other"
    from tests.finetuning.test_predictor import HEADS, MINI_BERT_CONFIG, SIZES, TOKENIZER, BertWithHead, TaskCard

    config = MINI_BERT_CONFIG.replace(**SIZES)
    BertWithHead(config, "sequence", 3, loss=HEADS["multiclass"][2], engine="numpy", seed=9).save(good)
    TOKENIZER.save(good)
    TaskCard(title="toy", head="multiclass", labels=("x", "y", "z"), text="text", max_length=16).save(good)

    with serving(folder) as running:
        look = running.app.watch.look
        first = running.post("/v1/predict", input="the bird")
        look()
        assert running.post("/v1/predict", input="the bird") == first
        replace_with(folder, good)
        look()  # it has just changed
        assert running.post("/v1/predict", input="the bird") == first
        look()  # and has stayed so
        second = running.post("/v1/predict", input="the bird")
        assert set(second["predictions"][0]["probabilities"]) == {"x", "y", "z"}
        assert running.app.metrics.value("glassbert_reloads_total", model="model-a", result="taken") == 1
        for number, (kind, damage) in enumerate(BROKEN.items(), 1):
            if folder.exists():
                replace_with(folder, good)
            else:
                shutil.copytree(good, folder)
            damage(folder)
            for _ in range(3):
                look()
            assert running.post("/v1/predict", input="the bird") == second, kind
            assert running.app.metrics.value("glassbert_reloads_total", model="model-a", result="refused") == number
        refusals = [one for one in running.log if one.get("result") == "refused"]
        assert len(refusals) == len(BROKEN) and all(len(one["reason"]) > 20 for one in refusals)
        assert 'result="refused"} 5' in running.ask("/metrics")[1].decode()
        shutil.copytree(good, folder)
        for _ in range(2):
            look()
        assert running.app.metrics.value("glassbert_reloads_total", model="model-a", result="taken") == 2


def test_a_replaced_model_is_freed_while_the_collector_leaves_the_others_out(tmp_path):
    folder, other = save(tmp_path / "model-a", "multiclass"), save(tmp_path / "other", "binary")
    with serving(folder) as running:
        try:
            running.app.freeze()
            assert gc.get_freeze_count() > 10_000
            before = weakref.ref(running.app.shelf.default.model)
            before().in_a_cycle = [before()]  # only the collector can free it
            replace_with(folder, other)
            for _ in range(2):
                running.app.watch.look()
            assert running.app.metrics.value("glassbert_reloads_total", model="model-a", result="taken") == 1
            assert before() is None
            assert gc.get_freeze_count() > 10_000
        finally:
            gc.unfreeze()


def test_folders_that_cannot_be_read_do_not_end_the_watch(tmp_path, monkeypatch):
    folders = [save(tmp_path / name, "binary") for name in ("first", "second")]
    shelf = Shelf([str(folder) for folder in folders], engine="numpy", threads=1)
    reports = []
    watch = Watch(shelf, lambda name, error: reports.append((name, error)))
    look = Path.exists

    def stale(self):
        if self == folders[0]:
            raise OSError(errno.ESTALE, "Stale file handle")
        return look(self)

    before = shelf.models["second"]
    replace_with(folders[1], folders[0])
    with monkeypatch.context() as failing:
        failing.setattr(Path, "exists", stale)
        assert state_of(str(folders[0])) == ()
        watch.look()
    with monkeypatch.context() as failing:
        states = {str(folders[1]): state_of(str(folders[1]))}
        failing.setattr(models, "state_of", lambda path: states[path])
        watch.look()
    assert [(name, error and error[:8]) for name, error in reports] == [("first", "KeyError"), ("second", None)]
    assert shelf.models["second"] is not before


def test_a_model_whose_scores_are_not_finite_is_refused_at_once(tmp_path):
    from glassbert.checkpoints import load

    folder = save(tmp_path / "bad", "binary")
    model = load(folder, engine="numpy")
    model.parameters["layers.0.attention.qkv.weight"][:] = np.nan
    model.save(folder)
    with pytest.raises(GlassBertError, match="not finite"):
        Shelf([str(folder)], engine="numpy")


@pytest.mark.parametrize("kind", ["predict", "embed", "fill-mask"])
def test_a_served_model_that_breaks_answers_503_for_every_kind(tmp_path, kind):
    folder = save(tmp_path / "model-a", "binary") if kind == "predict" else save_language_model(tmp_path / "model-a")
    with serving(folder) as running:
        weights = running.app.shelf.default.model.parameters.flat
        weights.flags.writeable = True
        weights[:] = np.nan
        status, content, _ = running.ask(f"/v1/{kind}", {"input": "the [MASK] sings"})
        assert status == 503 and content["error"]["code"] == "broken_model"


# ---- keys ----


def test_keys_of_a_file_and_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert not read_keys(None)
    file = tmp_path / "keys"
    file.write_text("# who\nabcdefghijklmnop\n\n  0123456789abcdef  \n")
    keys = read_keys(file)
    assert keys.accept("Bearer 0123456789abcdef") and keys.accept("bearer abcdefghijklmnop")
    for wrong in (None, "", "Bearer", "Bearer ", "Basic abcdefghijklmnop", "Bearer abcdefghijklmnoP", "Bearer \udcff"):
        assert not keys.accept(wrong)
    monkeypatch.setenv(VARIABLE, "abcdefghijklmnop 0123456789abcdef")
    assert read_keys(None).accept("Bearer 0123456789abcdef")
    for content, words in (("# none\n", "has no key"), ("short\n", "at least 16"), ("abcdefgh ijklmnopq\n", "spaces")):
        file.write_text(content)
        with pytest.raises(InputError, match=words):
            read_keys(file)
    with pytest.raises(InputError, match="no file"):
        read_keys(tmp_path / "missing")
