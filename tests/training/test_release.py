"""A folder to publish: everything in it, nothing half-written, and the recipe trains the same model."""

import json
import tomllib

import pytest

import glassbert
from glassbert.checkpoints.packaged import verify
from glassbert.cli import main
from glassbert.errors import TrainingError
from glassbert.training.release import as_toml, release
from glassbert.training.settings import TrainingSettings
from tests.training.toy import make_trainer

pytestmark = pytest.mark.usefixtures("quick_runs")


@pytest.fixture
def finished(corpus, tmp_path):
    make_trainer(corpus, tmp_path / "run").train()
    return tmp_path / "run"


def test_folder_is_complete(finished, tmp_path):
    folder = release(finished, tmp_path / "out" / "mine", notes="## Licence\n\nThe texts are free.")
    verify(folder)
    names = {path.name for path in folder.iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json", "README.md", "recipe.toml", "receipt.json"} <= names
    card = (folder / "README.md").read_text()
    assert card.startswith("---") and "# mine" in card and "The texts are free." in card
    receipt = json.loads((folder / "receipt.json").read_text())
    assert receipt["dtype"] == "float16" and receipt["result"]["steps"] == 12
    assert str(tmp_path) not in json.dumps(receipt)
    original, opened = glassbert.load(finished, engine="numpy"), glassbert.load(folder, engine="numpy")
    for name, values in original.parameters.items():
        assert abs(values - opened.parameters[name]).max() <= 1e-3 * max(1.0, abs(values).max())
    assert list((tmp_path / "out").iterdir()) == [folder]


def test_receipt_and_card_name_what_a_run_started_from(finished, tmp_path, corpus):
    first = release(finished, tmp_path / "first")
    assert "trained from scratch" in (first / "README.md").read_text()
    make_trainer(corpus, tmp_path / "further", start_from=str(first)).train()
    second = release(tmp_path / "further", tmp_path / "second")
    before = json.loads((second / "receipt.json").read_text())["started_from"]
    assert before == json.loads((first / "receipt.json").read_text())
    assert "trained from the weights of `first`" in (second / "README.md").read_text()
    assert str(tmp_path) not in (second / "receipt.json").read_text() + (second / "README.md").read_text()


def test_recipe_gives_the_settings_again(finished, tmp_path, corpus):
    folder = release(finished, tmp_path / "mine")
    recipe = tomllib.loads((folder / "recipe.toml").read_text())
    saved = json.loads((finished / "settings.json").read_text())["settings"]
    assert TrainingSettings.from_dict({**recipe, "corpus": saved["corpus"]}) == TrainingSettings.from_dict(saved)


def test_a_discriminator_has_its_generator(tmp_path, corpus):
    make_trainer(corpus, tmp_path / "run", preset="electra-small", objective="rtd").train()
    folder = release(tmp_path / "run", tmp_path / "mine")
    verify(folder)
    assert "generator/model.safetensors" in json.loads((folder / "manifest.json").read_text())["files"]
    assert "glassbert fill-mask mine/generator" in (folder / "README.md").read_text()
    assert glassbert.load(folder / "generator", engine="numpy").head.kind == "mlm"


def test_recipe_has_no_paths_of_one_machine():
    settings = {"corpus": ["/texts"], "general": ["/more"], "teacher": "/teacher", "start_from": "/start", "steps": 3}
    assert as_toml(settings) == "steps = 3\n"


def test_recipe_is_toml_for_every_text_and_table():
    settings = {"sentence": 'a 🐦 of "the" [MASK]', "model": {"hidden_size": 16, "pooler": None}, "steps": 3}
    kept = {**settings, "model": {"hidden_size": 16}}
    assert tomllib.loads(as_toml(settings)) == kept and "model" not in as_toml({**settings, "model": {}})


def test_command(finished, tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        main(["export", str(finished), "-o", str(tmp_path / "mine"), "--dtype", "float32"])
    assert end.value.code == 0
    assert "recipe.toml" in capsys.readouterr().out
    assert json.loads((tmp_path / "mine" / "receipt.json").read_text())["dtype"] == "float32"


def test_unfinished_run_and_full_folder_are_refused(finished, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(TrainingError, match="not empty"):
        release(finished, tmp_path / "full")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine.txt"]
    (finished / "result.json").unlink()
    with pytest.raises(TrainingError, match="not finished"):
        release(finished, tmp_path / "mine")
    assert not (tmp_path / "mine").exists()
