"""`pretrain --family`: every member trains at toy size with its own objective, and bad choices are named."""

import json

import pytest

from glassbert.checkpoints.family import FAMILIES, family_name
from glassbert.errors import TrainingError
from glassbert.evaluation.family import member
from glassbert.training.recipes import config_for
from glassbert.training.settings import TrainingSettings
from tests.training.toy import make_trainer

MEMBERS = [name for name, family in FAMILIES.items() if family.mini]


@pytest.mark.parametrize("family", MEMBERS)
def test_every_member_describes_itself(family):
    member = FAMILIES[family]
    assert member.title and member.paper and member.differences and member.formulas
    assert member.mini in member.presets
    for line in member.formulas.splitlines():
        assert len(line) <= 110


@pytest.mark.parametrize("family", MEMBERS)
def test_every_member_trains(family, corpus, tmp_path, quick_runs):
    changes = {"family": family, "preset": FAMILIES[family].mini, "steps": 3}
    settings = TrainingSettings.from_dict(changes)
    if "distill" in settings.objective:  # its teacher is a model of the same shape
        make_trainer(corpus, tmp_path / "teacher", **changes, objective="mlm").train()
        changes["teacher"] = str(tmp_path / "teacher")
    changes = {**settings_of(family), **changes}
    result = make_trainer(corpus, tmp_path / "run", **changes).train()
    assert result.stopped == "finished" and result.loss is not None
    saved = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert saved["model"]["family"] == family
    assert saved["settings"]["objective"] == FAMILIES[family].objective


def settings_of(family):
    """What of a family's training settings fits rows of 16 tokens, and narrow embeddings where it has them."""
    config = FAMILIES[family].presets[FAMILIES[family].mini]
    own = {name: value for name, value in FAMILIES[family].training.items() if name != "length"}
    narrow = {} if config.embedding_size in (None, config.hidden_size) else {"embedding_size": 8}
    return {**own, **narrow, "max_position_embeddings": 16 + 2}


def test_a_family_sets_objective_tokenizer_and_settings():
    roberta = TrainingSettings.from_dict({"family": "roberta"})
    assert (roberta.preset, roberta.objective, roberta.tokenizer_kind) == ("roberta-mini", "mlm", "bpe")
    assert roberta.packing == "sentences" and roberta.length == 64
    albert = TrainingSettings.from_dict({"family": "albert", "masking": "tokens"})
    assert albert.objective == "mlm+sop" and albert.masking == "tokens"
    assert TrainingSettings.from_dict({}).tokenizer_kind == "wordpiece"


@pytest.mark.parametrize(
    ("given", "name"),
    [("BERT", "bert"), ("GPT-2", "gpt2"), ("distil-bert", "distilbert"), ("ModernBERT", "modernbert")],
)
def test_a_family_is_named_in_the_usual_ways(given, name):
    assert TrainingSettings.from_dict({"family": given}) == TrainingSettings.from_dict({"family": name})
    assert member(given).name == name


@pytest.mark.parametrize("given", ["-", "", "toy family"])
def test_what_names_no_family_stays(given):
    assert family_name(given) == given


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"family": "robert"}, "there is no family 'robert'; did you mean 'roberta'"),
        ({"family": "roberta", "preset": "bert-base"}, "'bert-base' is not one of the family 'roberta'; its presets"),
        ({"family": "roberta", "tokenizer_kind": "words"}, "tokenizer_kind must be one of wordpiece, bpe, unigram"),
    ],
)
def test_bad_choices(values, message):
    with pytest.raises(TrainingError, match=message):
        TrainingSettings.from_dict(values)


def test_a_student_without_a_teacher_is_told_before_anything_is_read(tmp_path):
    with pytest.raises(TrainingError, match="name its folder with --teacher FOLDER, or choose another --objective"):
        make_trainer(tmp_path / "no corpus", tmp_path / "run", family="distilbert", preset="distilbert-mini")


def test_a_size_keeps_embeddings_narrow():
    """Also where the layers are as narrow as the embeddings of the Mini size."""
    for size in (1.0, 2.0, 6.0):
        config = config_for(TrainingSettings.from_dict({"family": "albert", "size": size}), 1_000, 0)
        assert 8 <= config.embedding_size < config.hidden_size
