"""A fine-tuned run as a folder to publish: everything of its model, the wanted precision, no path of the machine."""

import json
import shutil
import tomllib

import numpy as np
import pytest
from safetensors.numpy import load_file

from glassbert.checkpoints.packaged import verify
from glassbert.cli import main
from glassbert.errors import TrainingError
from glassbert.families.bert import BertConfig, BertWithHead
from glassbert.files import find_changed
from glassbert.finetuning.predictor import Predictor
from glassbert.finetuning.release import release
from glassbert.finetuning.report.model_card import card_of_copy
from glassbert.finetuning.settings import FineTuningSettings
from glassbert.training import release as pretraining
from tests.finetuning.toy import make_tokenizer, sentences, tune, write_csv, write_reviews

TEXTS = [text for text, _ in sentences(8, 7)]
ADDED = {"README.md", "recipe.toml", "receipt.json", "manifest.json"}


def make_bert(folder):
    """A masked language model for which transformers has a class."""
    tokenizer = make_tokenizer()
    config = BertConfig(
        vocab_size=tokenizer.vocab_size, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=24,
    )  # fmt: skip
    BertWithHead(config, "mlm", engine="numpy", seed=3).save(folder, tokenizer=tokenizer)
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return make_bert(tmp_path_factory.mktemp("bert") / "mine")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_reviews(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def tuned(bert, files, tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "stars"
    tune(run, bert, *files, epochs=2, learning_rate=1e-2)
    return run


def glassbert(*arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return ended.value.code


def names_in(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def as_they_were(folder):
    verify(folder)
    return find_changed(folder) is None


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_folder_has_what_the_model_of_the_run_has(tuned, tmp_path, dtype):
    folder = release(tuned, tmp_path / "out" / "mine", dtype=dtype)
    assert list((tmp_path / "out").iterdir()) == [folder]
    assert names_in(folder) == names_in(tuned / "model") | ADDED and as_they_were(folder)
    for name in ("task.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        assert (folder / name).read_bytes() == (tuned / "model" / name).read_bytes()
    ours, theirs = (json.loads((one / "config.json").read_text()) for one in (tuned / "model", folder))
    assert theirs == {**ours, "dtype": dtype, "torch_dtype": dtype}
    assert theirs["architectures"] == ["BertForSequenceClassification"]
    before, after = (load_file(one / "model.safetensors") for one in (tuned / "model", folder))
    assert before.keys() == after.keys() and {str(array.dtype) for array in after.values()} == {dtype}
    found, wanted = (Predictor.load(one, engine="numpy").predict(TEXTS) for one in (folder, tuned))
    assert found.answers() == wanted.answers()
    np.testing.assert_allclose(found.outputs, wanted.outputs, atol=0.02 if dtype == "float16" else 1e-6)


def test_card_and_receipt_name_the_folder_and_no_path_of_the_machine(tuned, tmp_path):
    folder = release(tuned, tmp_path / "my stars")
    card = (folder / "README.md").read_text()
    assert "glassbert predict 'my stars' " in card and 'Predictor.load("my stars")' in card
    assert (tuned / "model" / "README.md").read_text().count("\n") == card.count("\n")
    assert "stars/model" not in card
    receipt = json.loads((folder / "receipt.json").read_text())
    assert receipt["dtype"] == "float16" and receipt["data"] == "train.csv" and "started_from" not in receipt
    result = json.loads((tuned / "result.json").read_text())
    assert receipt["result"] == {name: value for name, value in result.items() if name != "checksum"}
    for name in ADDED:
        assert str(tuned.parent.parent) not in (folder / name).read_text()


def test_name_and_notes(tuned, tmp_path):
    card = (
        release(tuned, tmp_path / "mine", name=r'Stars "\1"', notes="## Licence\n\nFree.") / "README.md"
    ).read_text()
    title = (tuned / "model" / "README.md").read_text().split("\n# ")[1].split("\n")[0]
    assert '\n# Stars "\\1"\n' in card and f"# {title}" not in card and card.endswith("\n## Licence\n\nFree.\n")
    index = next(line for line in card.splitlines() if line.startswith("model-index: "))
    (entry,) = json.loads(index.removeprefix("model-index: "))
    assert entry["name"] == r'Stars "\1"' and entry["results"][0]["dataset"]["name"] == title
    assert f"\n# {title}\n" in (release(tuned, tmp_path / "other") / "README.md").read_text()


def test_a_card_of_ones_own_stays_as_it_is():
    assert card_of_copy("My words.\n", "there", "name") == "My words.\n"
    quoted = """glassbert predict 'it'"'"'s/model' 'a text'\n"""
    assert card_of_copy(quoted, "there") == "glassbert predict there 'a text'\n"


def test_recipe_gives_the_settings_again(tuned, bert, files, tmp_path):
    recipe = tomllib.loads((release(tuned, tmp_path / "mine") / "recipe.toml").read_text())
    assert recipe["model"].endswith(bert.name) and not {"train", "dev", "data"} & recipe.keys()
    own = {"model": str(bert), "train": str(files[0]), "dev": str(files[1])}
    saved = json.loads((tuned / "settings.json").read_text())["settings"]
    assert FineTuningSettings.from_dict({**recipe, **own}) == FineTuningSettings.from_dict(saved)


def test_receipt_names_what_a_run_started_from(bert, files, tuned, tmp_path):
    first = release(tuned, tmp_path / "first")
    tune(tmp_path / "further", first, *files, epochs=1)
    second = release(tmp_path / "further", tmp_path / "second")
    receipts = [json.loads((one / "receipt.json").read_text()) for one in (first, second)]
    assert receipts[1]["started_from"] == receipts[0]
    (tmp_path / "tokenizer").mkdir()
    make_tokenizer().save(tmp_path / "tokenizer")
    sizes = {"from_scratch": True, "preset": "mini", "tokenizer": str(tmp_path / "tokenizer"), "limit": 8}
    tune(tmp_path / "scratch", "", *files, epochs=1, **sizes)
    assert "started_from" not in json.loads(
        (release(tmp_path / "scratch", tmp_path / "own") / "receipt.json").read_text()
    )


# ---- other runs ------------------------------------------------------------------------------------------------------


def test_a_folder_of_sentence_transformers(bert, tmp_path):
    both = zip(sentences(32), sentences(32, 5), strict=True)
    rows = [[text, other, 5 * (label == theirs)] for (text, label), (other, theirs) in both]
    train = write_csv(tmp_path / "pairs.csv", ["a", "b", "verdict"], rows)
    tune(tmp_path / "run", bert, train, epochs=1, head="embedding", text="a", pair="b")
    folder = release(tmp_path / "run", tmp_path / "mine", dtype="float32")
    assert names_in(folder) == names_in(tmp_path / "run" / "model") | ADDED and as_they_were(folder)
    assert "1_Pooling/config.json" in json.loads((folder / "manifest.json").read_text())["files"]
    found, wanted = (Predictor.load(one, engine="numpy").predict(TEXTS) for one in (folder, tmp_path / "run"))
    np.testing.assert_allclose(found.outputs, wanted.outputs, atol=1e-6)


@pytest.mark.parametrize("changes", [{"low_rank": 2}, {"seeds": 2}, {"seeds": 2, "soup": True, "choose": "last"}])
def test_runs_with_adapters_and_of_several_seeds(bert, files, tmp_path, changes):
    tune(tmp_path / "run", bert, *files, epochs=1, **changes)
    folder = release(tmp_path / "run", tmp_path / "mine", dtype="float32")
    before, after = (load_file(one / "model.safetensors") for one in (tmp_path / "run" / "model", folder))
    assert before.keys() == after.keys() and all(np.array_equal(before[name], after[name]) for name in before)


def test_a_cross_validation_and_its_folds(bert, files, tmp_path):
    tune(tmp_path / "run", bert, files[0], epochs=1, folds=2)
    for run in ("run", "run/fold-1", "run/final"):
        folder = release(tmp_path / run, tmp_path / f"out-{run.replace('/', '-')}")
        assert as_they_were(folder) and Predictor.load(folder, engine="numpy").predict(TEXTS).answers()


def test_a_distilled_run_with_several_teachers(bert, files, tuned, tmp_path):
    shutil.copytree(tuned, tmp_path / "second")
    teachers = {"teacher": str(tuned), "further_teachers": (str(tmp_path / "second"),), "compare": True}
    tune(tmp_path / "run", bert, *files, epochs=1, **teachers)
    for run in ("run", "run/without-teacher"):
        folder = release(tmp_path / run, tmp_path / f"out-{run.replace('/', '-')}")
        assert as_they_were(folder)
        assert not any(str(tmp_path) in (folder / name).read_text() for name in ADDED)
    receipt = json.loads((tmp_path / "out-run" / "receipt.json").read_text())
    assert receipt["result"]["distillation"]["teacher"] == "stars, second"
    assert "teacher" not in tomllib.loads((tmp_path / "out-run" / "recipe.toml").read_text())


# ---- the command -----------------------------------------------------------------------------------------------------


def test_command(tuned, tmp_path, capsys):
    (tmp_path / "notes.md").write_text("## Licence")
    flags = ("--dtype", "float16", "--name", "Stars", "--notes", tmp_path / "notes.md", "--json")
    assert glassbert("export", tuned, "-o", tmp_path / "mine", *flags) == 0
    shown = json.loads(capsys.readouterr().out)
    assert set(shown["files"]) == {str(tmp_path / "mine" / name) for name in names_in(tmp_path / "mine")}
    assert "# Stars" in (tmp_path / "mine" / "README.md").read_text()
    assert glassbert("predict", tmp_path / "mine", TEXTS[0], "--engine", "numpy", "--json") == 0
    found = capsys.readouterr().out
    assert glassbert("predict", tuned, TEXTS[0], "--engine", "numpy", "--json") == 0
    assert json.loads(found)["prediction"] == json.loads(capsys.readouterr().out)["prediction"]
    assert glassbert("verify", tmp_path / "mine") == 0


def without(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def as_forecast(run):
    settings = json.loads((run / "settings.json").read_text())
    del settings["checksum"]
    (run / "settings.json").write_text(json.dumps({**settings, "kind": "forecasting"}))


@pytest.mark.parametrize(
    ("change", "place", "said"),
    [
        (lambda run: without(run / "result.json"), "run", "is not finished; continue it with: glassbert resume"),
        (lambda run: without(run / "model"), "run", "is gone; restore the folder"),
        (lambda run: without(run / "model" / "README.md"), "run", "restore it, or write one there"),
        (lambda run: without(run / "model" / "task.json"), "run", "task.json"),
        (as_forecast, "run", "is a run of forecasting, not of pretraining; its model is the folder"),
        (lambda run: None, "run/model", "is not a run: it has no settings.json; its run is"),
        (lambda run: without(run / "settings.json"), "run", "`glassbert runs` lists the runs in a folder"),
        (lambda run: None, "nowhere", "there is no run"),
    ],
)
def test_what_cannot_be_exported_is_said_in_a_sentence(tuned, tmp_path, capsys, change, place, said):
    shutil.copytree(tuned, tmp_path / "run")
    change(tmp_path / "run")
    assert glassbert("export", tmp_path / place, "-o", tmp_path / "out") == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert said in shown and "defect" not in shown
    assert not (tmp_path / "out").exists()


def test_runs_of_the_other_kind_are_refused_in_python(tuned, tmp_path):
    with pytest.raises(TrainingError, match="is a run of finetuning, not of pretraining"):
        pretraining.release(tuned, tmp_path / "mine")
