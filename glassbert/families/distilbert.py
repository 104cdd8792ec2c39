"""DistilBERT: half of BERT's layers, taken from BERT and trained to answer as BERT does.

Differs from BERT in
    layers          6 instead of 12; the first weights are those of every second layer of a BERT (`student_of`)
    embeddings      no token types
    pooler          none in the bare encoder; dense and ReLU before the classifier of a sequence
    pretraining     distillation: softened scores of the teacher, masked words, direction of the last hidden states

A block computes what BERT's does. `glassbert pretrain --family distilbert --start-from BERT --teacher BERT` begins with
every second layer of BERT and learns from it. transformers drops out nothing between attention and residual sum; ours
does, with `hidden_dropout`, as BERT.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from glassbert.arrays import Array
from glassbert.checkpoints.family import CLASSIFIER, COMMON_KEYS, Family, register_family
from glassbert.checkpoints.fields import activation, follows, same
from glassbert.checkpoints.names import one, stacked
from glassbert.errors import ConfigError
from glassbert.families.bert import BERT_WORDS, SPAN, BertWithHead
from glassbert.models.config import EncoderConfig
from glassbert.models.model import Model


@dataclass(frozen=True, kw_only=True)
class DistilBertConfig(EncoderConfig):
    """DistilBERT: BERT with 6 layers, without token types and without a pooler of its own."""

    family: str = "distilbert"
    num_hidden_layers: int = 6
    embedding_dropout: float = 0.1
    attention_dropout: float = 0.1
    hidden_dropout: float = 0.1
    classifier_dropout: float = 0.2
    pooler: bool = True
    pooler_activation: str = "relu"
    pooler_of_head: bool = True
    span_dropout: bool = True

    @classmethod
    def get_base_config(cls) -> DistilBertConfig:
        return cls()


DISTILBERT_MINI_CONFIG = DistilBertConfig(
    vocab_size=8_192,
    hidden_size=192,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=768,
    max_position_embeddings=64,
    embedding_dropout=0.0,
    attention_dropout=0.0,
    hidden_dropout=0.0,
    classifier_dropout=0.0,
)

# What a student takes over from its teacher, and what must be equal: only so a layer computes the same in both.
EQUAL = (
    "vocab_size", "hidden_size", "num_attention_heads", "intermediate_size", "max_position_embeddings",
    "activation", "pad_token_id",
)  # fmt: skip
FIXED = ("positions", "position_offset", "attention", "feed_forward", "norm_position", "embedding_norm", "final_norm",
         "embedding_width", "attention_bias", "ffn_bias", "norm_bias", "layer_groups", "causal", "local_window",
         "layer_norm_eps")  # fmt: skip


def student_of(teacher: Model, head: str | None = "mlm", **options: Any) -> Model:
    """A DistilBERT with every second layer of a BERT, the first one included: 0, 2, 4, ...

    `options` are those of `Model`. The head keeps the teacher's weights if both are of one kind.
    """
    same_fields = {name: getattr(teacher.config, name) for name in EQUAL}
    config = DistilBertConfig(**same_fields, num_hidden_layers=max(1, teacher.config.num_hidden_layers // 2))
    student = Model(config, head, **{"engine": teacher.engine, **options})
    take_layers(student, teacher)
    return student


def take_layers(student: Model, teacher: Model) -> None:
    """Give the student the weights of every n-th layer of the teacher, and its embeddings."""
    ours, theirs = student.config, teacher.config
    for name in (*EQUAL, *FIXED):
        if getattr(ours, name) != getattr(theirs, name):
            raise ConfigError(
                f"a {ours.family} cannot begin with the layers of this {theirs.family}: {name} is "
                f"{getattr(theirs, name)!r}, but {getattr(ours, name)!r} in the student"
            )
    step, rest = divmod(theirs.num_hidden_layers, max(1, ours.num_hidden_layers))
    if rest or not step:
        raise ConfigError(
            f"{ours.num_hidden_layers} layers cannot be every n-th of {theirs.num_hidden_layers}; "
            f"every second would be {theirs.num_hidden_layers // 2}"
        )
    for name, values in _taken(student, teacher, step):
        student.parameters[name] = student.engine.array(teacher.engine.to_numpy(values))


def _taken(student: Model, teacher: Model, step: int) -> Iterator[tuple[str, Array]]:
    for name in student.parameters:
        source = name
        if name.startswith("layers."):
            _, layer, rest = name.split(".", 2)
            source = f"layers.{int(layer) * step}.{rest}"
        elif name.startswith(("head.", "pooler.")) and not _same_head(student, teacher):
            continue
        values = teacher.parameters[source]
        if name == "embeddings.position" and "embeddings.token_type" in teacher.parameters:
            values = values + teacher.parameters["embeddings.token_type"][0]  # the type of every first sentence
        yield name, values


def _same_head(student: Model, teacher: Model) -> bool:
    parts = [(name, values.shape) for name, values in student.parameters.items() if name.startswith("head.")]
    return student.head is not None and all(
        name in teacher.parameters and teacher.parameters[name].shape == shape for name, shape in parts
    )


class DistilBertCore(Model):
    """A DistilBERT encoder; forward returns hidden states."""

    def __init__(self, config: EncoderConfig | None = None, **options: Any):
        super().__init__(config or DistilBertConfig(), **options)


def class_for(config: EncoderConfig, head: str | None) -> type[Model]:
    return DistilBertCore if head is None else BertWithHead


LAYER = "{core}transformer.layer.{layer}."
MLM = {
    "head.transform.{part}": one("vocab_transform.{part}"),
    "head.norm.{part}": one("vocab_layer_norm.{part}"),
    "head.decoder.bias": one("vocab_projector.bias"),
}

DISTILBERT = register_family(
    Family(
        name="distilbert",
        config_class=DistilBertConfig,
        architectures={
            "core": "DistilBertModel",
            "mlm": "DistilBertForMaskedLM",
            "sequence": "DistilBertForSequenceClassification",
            "token": "DistilBertForTokenClassification",
            "span": "DistilBertForQuestionAnswering",
        },
        core_prefix="distilbert.",
        core={
            "embeddings.token": one(BERT_WORDS),
            "embeddings.position": one("{core}embeddings.position_embeddings.weight"),
            "embeddings.norm.{part}": one("{core}embeddings.LayerNorm.{part}"),
            "layers.{layer}.attention.qkv.{part}": stacked(
                LAYER + "attention.q_lin.{part}", LAYER + "attention.k_lin.{part}", LAYER + "attention.v_lin.{part}"
            ),
            "layers.{layer}.attention.output.{part}": one(LAYER + "attention.out_lin.{part}"),
            "layers.{layer}.attention.norm.{part}": one(LAYER + "sa_layer_norm.{part}"),
            "layers.{layer}.ffn.up.{part}": one(LAYER + "ffn.lin1.{part}"),
            "layers.{layer}.ffn.down.{part}": one(LAYER + "ffn.lin2.{part}"),
            "layers.{layer}.ffn.norm.{part}": one(LAYER + "output_layer_norm.{part}"),
        },
        heads={
            "core": {},
            "mlm": {**MLM, "embeddings.token": one(BERT_WORDS, tied=("vocab_projector.weight",))},
            "mlm_untied": {**MLM, "head.decoder.weight": one("vocab_projector.weight")},
            "sequence": {"pooler.{part}": one("pre_classifier.{part}"), **CLASSIFIER},
            "token": CLASSIFIER,
            "span": SPAN,
        },
        rules=(
            same("vocab_size"),
            same("hidden_size", "dim"),
            same("num_hidden_layers", "n_layers"),
            same("num_attention_heads", "n_heads"),
            same("intermediate_size", "hidden_dim"),
            same("max_position_embeddings"),
            same("pad_token_id"),
            same("initializer_range"),
            same("tie_word_embeddings"),
            activation("activation"),
            same("hidden_dropout", "dropout"),
            follows("embedding_dropout", "dropout"),
            same("attention_dropout"),
            same("classifier_dropout", "seq_classif_dropout"),
        ),
        supported_values=COMMON_KEYS,
        not_weights=("embeddings.position_ids",),
        presets={"distilbert-mini": DISTILBERT_MINI_CONFIG, "distilbert-base": DistilBertConfig()},
        title="DistilBERT",
        paper="Sanh, Debut, Chaumond and Wolf, 2019: DistilBERT, a distilled version of BERT",
        differences={
            "layers": "half of BERT's; the first weights are those of every second layer of a BERT",
            "embeddings": "no token types",
            "pooler": "none in the bare encoder; dense and ReLU before the classifier of a sequence",
            "pretraining": "distillation: softened scores of a teacher, masked words, direction of hidden states",
        },
        formulas="""\
soft targets     L_soft = T² · KL(softmax(w / T) ‖ softmax(z / T))    w: the teacher, z: the student
                 dz = T · (softmax(z / T) - softmax(w / T)) / rows
hidden states    L_cos = 1 - cos(h_student, h_teacher)                over all real tokens
loss             5 L_soft + 2 L_mlm + L_cos
first weights    layer i of the student = layer 2 i of the teacher""",
        mini="distilbert-mini",
        objective="2*mlm+5*distill+hidden",
        start=take_layers,
        class_for=class_for,
    )
)
