"""Bad input across families: files of one opened as another, unknown fields, and tokenizers of the wrong kind."""

import json
import shutil

import pytest

import glassbert
from glassbert.errors import CheckpointError, ConfigError, InputError, TextError, TrainingError
from glassbert.models.model import Model
from glassbert.text.kinds import train_tokenizer
from glassbert.text.loading import load_with_tokenizer
from tests.families.test_everywhere import toy
from tests.training.toy import make_trainer, texts

STORED = ("roberta", "distilbert", "albert", "modernbert")  # families whose toy models transformers has classes for


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    found = {}
    for family in STORED:
        found[family] = tmp_path_factory.mktemp(family)
        Model(toy(family), "mlm", engine="numpy", threads=1).save(found[family])
        (found[family] / "checksums.json").unlink()  # as another tool leaves a folder
    return found


@pytest.mark.parametrize("other", STORED)
@pytest.mark.parametrize("family", STORED)
def test_weights_with_the_config_of_another_family(family, other, folders, tmp_path):
    if family == other:
        assert glassbert.load(folders[family], engine="numpy").config.family == family
        return
    mixed = shutil.copytree(folders[family], tmp_path / "mixed")
    shutil.copy(folders[other] / "config.json", mixed / "config.json")
    with pytest.raises(CheckpointError, match=f"names in the file are those of {family}, so its config.json, which"):
        glassbert.load(mixed, engine="numpy")


@pytest.mark.parametrize(("family", "other"), [("roberta", "distilbert"), ("albert", "roberta")])
def test_weights_of_another_family_do_not_load_into_a_model(family, other, folders):
    model = Model(toy(family), "mlm", engine="numpy", threads=1)
    with pytest.raises(CheckpointError, match=f"family is '{other}' there and '{family}' here"):
        model.load_checkpoint(folders[other])


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("albert", {"inner_group_num": 2}, "inner_group_num is 2; GlassBERT supports only 1"),
        ("albert", {"num_hidden_groups": 9}, "layer_groups must be between 1 and the 2 layers"),
        ("albert", {"embedding_size": 16}, "embedding_size must differ from hidden_size 16"),
        ("albert", {"hidden_act": "swish"}, "hidden_act is 'swish'; GlassBERT has gelu"),
        ("roberta", {"hidden_act": "relu"}, "hidden_act is 'relu'; GlassBERT supports only 'gelu'"),
        ("roberta", {"pad_token_id": None}, "pad_token_id must be an id"),
        ("roberta", {"max_position_embeddings": 1}, "leaves no position of 1"),
        ("distilbert", {"n_heads": 3}, "3 attention heads do not divide hidden_size 16"),
        ("distilbert", {"model_type": "distilgpt"}, "model_type is 'distilgpt'; GlassBERT opens bert"),
    ],
)
def test_configs_that_cannot_be_opened(family, changes, message, folders, tmp_path):
    folder = shutil.copytree(folders[family], tmp_path / "changed")
    fields = {**json.loads((folder / "config.json").read_text()), **changes}
    (folder / "config.json").write_text(json.dumps(fields))
    with pytest.raises(CheckpointError, match=message):
        glassbert.load(folder, engine="numpy")


def test_fields_that_a_config_does_not_know():
    with pytest.raises(ConfigError, match="RobertaConfig has no field 'embedding_sise'; did you mean 'embedding_size'"):
        toy("roberta").replace(embedding_sise=3)
    with pytest.raises(ConfigError, match="pad_token_id must be an id"):
        toy("mpnet").replace(pad_token_id=None)
    with pytest.raises(ConfigError, match="must differ from hidden_size"):
        toy("albert").replace(embedding_size=None)


def test_a_tokenizer_of_another_model(folders, tmp_path):
    folder = shutil.copytree(folders["roberta"], tmp_path / "model")
    train_tokenizer("bpe", texts(), 300).save(folder)
    with pytest.raises(InputError, match=r"\(BPE\) has 300 entries, but the model \(roberta\) has .* 120"):
        load_with_tokenizer(folder, engine="numpy")


def test_a_tokenizer_of_the_wrong_kind(tmp_path):
    train_tokenizer("wordpiece", texts(), 64).save(tmp_path / "tokenizer")
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(texts()), encoding="utf-8")
    options = {"family": "roberta", "preset": "roberta-mini", "tokenizer": str(tmp_path / "tokenizer")}
    with pytest.raises(TrainingError, match="of the kind wordpiece, and roberta is trained with bpe; leave"):
        make_trainer(text, tmp_path / "run", **options)
    trainer = make_trainer(text, tmp_path / "run", **options, tokenizer_kind="wordpiece", max_position_embeddings=17)
    assert trainer.model.config.vocab_size == 64


def test_a_file_that_is_no_tokenizer(tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"type": "BPE", "vocab": {}, "merges": []}}))
    with pytest.raises(TextError, match=r"cannot be loaded|has no"):
        glassbert.load_tokenizer(tmp_path)
