"""RoBERTa and XLM-R: BERT trained longer, on more text, on masked words alone.

Differs from BERT in
    positions       real tokens count from pad + 1 (2 in the published models); padding has position pad, untrained
    token types     one, which all tokens share
    tokenizer       byte-level BPE: every byte has a token, so no word is unknown (XLM-R: Unigram over 100 languages)
    pretraining     masked words only, other masks in every epoch, rows filled with full sentences; no pairs
    classifiers     dropout, dense and tanh before the classifier of a sequence, in the head instead of the encoder

A block computes what BERT's does. The names of its tensors are BERT's too, but for the heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from glassbert.checkpoints.family import CLASSIFIER, COMMON_KEYS, Family, register_family
from glassbert.checkpoints.fields import falls_back
from glassbert.checkpoints.names import one
from glassbert.errors import ConfigError
from glassbert.families.bert import BERT_CORE, BERT_RULES, BERT_WORDS, SPAN, BertConfig, BertWithHead
from glassbert.models.config import EncoderConfig
from glassbert.models.model import Model


@dataclass(frozen=True, kw_only=True)
class RobertaConfig(BertConfig):
    """RoBERTa: positions from pad + 1. `position_offset` follows from `pad_token_id`.

    The defaults are those of transformers for a config without these fields; the published sizes have one token type.
    """

    family: str = "roberta"
    vocab_size: int = 50_265
    pad_token_id: int | None = 1
    position_offset: int = 2
    pooler_dropout: float = 0.1

    def __post_init__(self) -> None:
        if self.pad_token_id is None and self.series is None:
            raise ConfigError("this family counts positions from pad_token_id + 1, so pad_token_id must be an id")
        if self.pad_token_id is None or isinstance(self.pad_token_id, int):
            offset = 0 if self.pad_token_id is None else self.pad_token_id + 1  # a series has no padding
            object.__setattr__(self, "position_offset", offset)
        super().__post_init__()

    @classmethod
    def get_base_config(cls) -> RobertaConfig:
        return cls(max_position_embeddings=514, type_vocab_size=1, layer_norm_eps=1e-5)

    @classmethod
    def get_large_config(cls) -> RobertaConfig:
        large = {"hidden_size": 1_024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4_096}
        return cls.get_base_config().replace(**large)


@dataclass(frozen=True, kw_only=True)
class XlmRobertaConfig(RobertaConfig):
    """XLM-R: RoBERTa with the vocabulary of 100 languages."""

    family: str = "xlm-roberta"
    vocab_size: int = 30_522

    @classmethod
    def get_base_config(cls) -> RobertaConfig:
        return super().get_base_config().replace(vocab_size=250_002)


MINI: dict[str, Any] = {
    "vocab_size": 8_192,
    "hidden_size": 192,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 768,
    "max_position_embeddings": 66,
    "layer_norm_eps": 1e-5,
    **dict.fromkeys(
        ("embedding_dropout", "attention_dropout", "hidden_dropout", "pooler_dropout", "classifier_dropout"), 0.0
    ),
}


class RobertaCore(Model):
    """A RoBERTa encoder; forward returns hidden states."""

    def __init__(self, config: EncoderConfig | None = None, **options: Any):
        super().__init__(config or RobertaConfig.get_base_config(), **options)


def class_for(config: EncoderConfig, head: str | None) -> type[Model]:
    return RobertaCore if head is None else BertWithHead


MLM = {
    "head.transform.{part}": one("lm_head.dense.{part}"),
    "head.norm.{part}": one("lm_head.layer_norm.{part}"),
}
HEADS = {
    "core": {},
    "mlm": {
        **MLM,
        "embeddings.token": one(BERT_WORDS, tied=("lm_head.decoder.weight",)),
        "head.decoder.bias": one("lm_head.bias", tied=("lm_head.decoder.bias",)),
    },
    "mlm_untied": {
        **MLM,
        "head.decoder.weight": one("lm_head.decoder.weight"),
        "head.decoder.bias": one("lm_head.decoder.bias", copies=("lm_head.bias",)),
    },
    "sequence": {
        "pooler.{part}": one("classifier.dense.{part}"),
        "head.classifier.{part}": one("classifier.out_proj.{part}"),
    },
    "token": CLASSIFIER,
    "span": SPAN,
}
DIFFERENCES = {
    "positions": "real tokens count from pad + 1; padding has a position of its own, which is not trained",
    "token types": "one, shared by all tokens",
    "tokenizer": "byte-level BPE: every byte has a token, so no word is unknown",
    "pretraining": "masked words only, other masks in every epoch, rows filled with full sentences; no pairs",
    "classifiers": "dropout, dense and tanh before the classifier of a sequence, in the head",
}
FORMULAS = """\
positions        position(t) = pad + number of real tokens up to t   pad + 1 for the first; pad for padding
embeddings       x = LN(token[id] + position[position(t)] + type[0])
masking          drawn again in every epoch: 80 % <mask>, 10 % another token, 10 % unchanged
sequence         softmax(V tanh(W h_<s> + b) + c)"""


def published(name: str, prefix: str, config_class: type[RobertaConfig], **more: Any) -> Family:
    """The family of one of the two model types: `prefix` begins the names of its classes in transformers."""
    return Family(
        name=name,
        config_class=config_class,
        architectures={
            "core": f"{prefix}Model",
            "mlm": f"{prefix}ForMaskedLM",
            "sequence": f"{prefix}ForSequenceClassification",
            "token": f"{prefix}ForTokenClassification",
            "span": f"{prefix}ForQuestionAnswering",
        },
        core_prefix="roberta.",
        core=BERT_CORE,
        heads=HEADS,
        rules=(
            *BERT_RULES,
            falls_back("pooler_dropout", "classifier_dropout", "hidden_dropout_prob")._replace(write=lambda config: {}),
        ),
        supported_values={**COMMON_KEYS, "position_embedding_type": (None, "absolute")},
        # The head for masked words has a GELU, whatever the activation of the layers is.
        head_values={"mlm": {"hidden_act": (None, "gelu", "gelu_python")}},
        at_least={"type_vocab_size": 1},
        token_ids={"bos_token_id": 0, "eos_token_id": 2},
        renamed={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},
        not_weights=("embeddings.position_ids", "embeddings.token_type_ids"),
        pretraining_only=("pooler.dense.{part}",),
        inferred_from_tensor={"pooler": "pooler.dense.weight"},
        class_for=class_for,
        formulas=FORMULAS,
        **more,
    )


ROBERTA = register_family(
    published(
        "roberta",
        "Roberta",
        RobertaConfig,
        presets={
            "roberta-mini": RobertaConfig(**MINI, type_vocab_size=1),
            "roberta-base": RobertaConfig.get_base_config(),
            "roberta-large": RobertaConfig.get_large_config(),
        },
        title="RoBERTa",
        paper="Liu, Ott, Goyal, Du and others, 2019: RoBERTa: A Robustly Optimized BERT Pretraining Approach",
        differences=DIFFERENCES,
        mini="roberta-mini",
        tokenizer="bpe",
    )
)
XLM_ROBERTA = register_family(
    published(
        "xlm-roberta",
        "XLMRoberta",
        XlmRobertaConfig,
        presets={
            "xlm-roberta-mini": XlmRobertaConfig(**MINI, type_vocab_size=1),
            "xlm-roberta-base": XlmRobertaConfig.get_base_config(),
            "xlm-roberta-large": XlmRobertaConfig.get_large_config(),
        },
        title="XLM-R",
        paper="Conneau, Khandelwal, Goyal and others, 2020: Unsupervised Cross-lingual Representation Learning at "
        "Scale",
        differences={**DIFFERENCES, "tokenizer": "Unigram over 100 languages, 250,002 pieces"},
        mini="xlm-roberta-mini",
        tokenizer="unigram",
    )
)
