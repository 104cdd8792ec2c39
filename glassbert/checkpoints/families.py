"""The families that Hugging Face has classes for: a table of names and a table of config fields each.

A further family (RoBERTa, DistilBERT, ALBERT, ...) is a further `Family` here; nothing else changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from glassbert.checkpoints.fields import (
    GLOBAL,
    LOCAL,
    Rule,
    activation,
    falls_back,
    follows,
    global_attention_every,
    local_window,
    rope_theta,
    same,
)
from glassbert.checkpoints.names import Table, one, stacked
from glassbert.models.config import BertConfig, EncoderConfig, ModernBertConfig


@dataclass(frozen=True)
class Family:
    """How Hugging Face stores one family of models. The heads are "core" (none) and those of `HEADS`."""

    name: str  # of our config, and their model_type
    config_class: type[EncoderConfig]
    architectures: Mapping[str, str]  # head -> their class
    also_opens: Mapping[str, str]  # their other classes that hold one of our heads
    core_prefix: str
    core: Table
    heads: Mapping[str, Table]  # "mlm_untied" is "mlm" with a projection of its own, and so on
    rules: tuple[Rule, ...]
    # Keys that change what a model computes, and the only values under which it is ours.
    honoured: Mapping[str, tuple[Any, ...]]
    # For each head: keys that must agree with each other, and what a missing one means.
    must_agree: Mapping[str, tuple[tuple[tuple[str, ...], Any], ...]] = field(default_factory=dict)
    at_least: Mapping[str, int] = field(default_factory=dict)  # fields of ours that may be smaller than theirs can be
    token_ids: Mapping[str, int] = field(default_factory=dict)  # their defaults, null in a smaller vocabulary
    renamed: Mapping[str, str] = field(default_factory=dict)  # ends of names in old files
    not_weights: tuple[str, ...] = ()  # patterns of buffers that are no parameters
    pretraining_only: tuple[str, ...] = ()  # weights that a file may carry beside any head
    # A switch of our config that a file without a head does not tell, but this tensor does.
    told_by_tensor: Mapping[str, str] = field(default_factory=dict)


NEVER_OURS = {
    "auto_map": (None, {}),
    "quantization_config": (None, {}),
    "is_decoder": (None, False),
    "is_encoder_decoder": (None, False),
    "add_cross_attention": (None, False),
    "pruned_heads": (None, {}),
    "per_layer_config": (None, {}),
}

SHARED_RULES = (
    same("vocab_size"),
    same("hidden_size"),
    same("num_hidden_layers"),
    same("num_attention_heads"),
    same("intermediate_size"),
    same("max_position_embeddings"),
    same("pad_token_id"),
    same("initializer_range"),
    same("tie_word_embeddings"),
)

BERT_LAYER = "{core}encoder.layer.{layer}."
BERT_MLM = {
    "head.transform.{part}": one("cls.predictions.transform.dense.{part}"),
    "head.norm.{part}": one("cls.predictions.transform.LayerNorm.{part}"),
}
BERT_WORDS = "{core}embeddings.word_embeddings.weight"
BERT_TIED = {
    **BERT_MLM,
    "embeddings.token": one(BERT_WORDS, tied=("cls.predictions.decoder.weight",)),
    "head.decoder.bias": one("cls.predictions.bias", tied=("cls.predictions.decoder.bias",)),
}
BERT_UNTIED = {
    **BERT_MLM,
    "head.decoder.weight": one("cls.predictions.decoder.weight"),
    # transformers 5 computes with decoder.bias and leaves predictions.bias idle; in 4 they are one.
    "head.decoder.bias": one("cls.predictions.decoder.bias", copies=("cls.predictions.bias",)),
}
BERT_PAIR = {"head.pair.classifier.{part}": one("cls.seq_relationship.{part}")}
CLASSIFIER = {"head.classifier.{part}": one("classifier.{part}")}

BERT = Family(
    name="bert",
    config_class=BertConfig,
    architectures={
        "core": "BertModel",
        "mlm": "BertForMaskedLM",
        "sequence": "BertForSequenceClassification",
        "token": "BertForTokenClassification",
        "span": "BertForQuestionAnswering",
        "pretraining": "BertForPreTraining",
    },
    also_opens={},
    core_prefix="bert.",
    core={
        "embeddings.token": one(BERT_WORDS),
        "embeddings.position": one("{core}embeddings.position_embeddings.weight"),
        "embeddings.token_type": one("{core}embeddings.token_type_embeddings.weight"),
        "embeddings.norm.{part}": one("{core}embeddings.LayerNorm.{part}"),
        "layers.{layer}.attention.qkv.{part}": stacked(
            BERT_LAYER + "attention.self.query.{part}",
            BERT_LAYER + "attention.self.key.{part}",
            BERT_LAYER + "attention.self.value.{part}",
        ),
        "layers.{layer}.attention.output.{part}": one(BERT_LAYER + "attention.output.dense.{part}"),
        "layers.{layer}.attention.norm.{part}": one(BERT_LAYER + "attention.output.LayerNorm.{part}"),
        "layers.{layer}.ffn.up.{part}": one(BERT_LAYER + "intermediate.dense.{part}"),
        "layers.{layer}.ffn.down.{part}": one(BERT_LAYER + "output.dense.{part}"),
        "layers.{layer}.ffn.norm.{part}": one(BERT_LAYER + "output.LayerNorm.{part}"),
        "pooler.{part}": one("{core}pooler.dense.{part}"),
    },
    heads={
        "core": {},
        "mlm": BERT_TIED,
        "mlm_untied": BERT_UNTIED,
        "pretraining": {**BERT_TIED, **BERT_PAIR},
        "pretraining_untied": {**BERT_UNTIED, **BERT_PAIR},
        "sequence": CLASSIFIER,
        "token": CLASSIFIER,
        "span": {"head.classifier.{part}": one("qa_outputs.{part}")},
        "embedding": {},  # here and below: they have no class with this head
        "forecast": {},
    },
    rules=(
        *SHARED_RULES,
        same("type_vocab_size"),
        same("layer_norm_eps"),
        activation("hidden_act"),
        same("hidden_dropout", "hidden_dropout_prob"),
        follows("embedding_dropout", "hidden_dropout_prob"),
        same("attention_dropout", "attention_probs_dropout_prob"),
        falls_back("classifier_dropout", "classifier_dropout", "hidden_dropout_prob"),
    ),
    honoured={**NEVER_OURS, "position_embedding_type": (None, "absolute")},
    at_least={"type_vocab_size": 1},
    renamed={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},
    not_weights=("embeddings.position_ids", "embeddings.token_type_ids"),
    pretraining_only=("pooler.dense.{part}", "cls.seq_relationship.{part}"),
    told_by_tensor={"pooler": "pooler.dense.weight"},
)

MODERN_LAYER = "{core}layers.{layer}."
MODERN_TRANSFORM = {"head.transform.{part}": one("head.dense.{part}"), "head.norm.{part}": one("head.norm.{part}")}
MODERN_WORDS = "{core}embeddings.tok_embeddings.weight"
MODERN_TIED = {
    **MODERN_TRANSFORM,
    "embeddings.token": one(MODERN_WORDS, tied=("decoder.weight",)),
    "head.decoder.bias": one("decoder.bias"),
}
MODERN_UNTIED = {**MODERN_TRANSFORM, "head.decoder.{part}": one("decoder.{part}")}

# attention_dropout: transformers drops attention weights and the attention's output with it, GlassBERT the weights.
# Our hidden_dropout would drop the output of the feed-forward layer as well, so it stays out of the translation.
MODERNBERT = Family(
    name="modernbert",
    config_class=ModernBertConfig,
    architectures={
        "core": "ModernBertModel",
        "mlm": "ModernBertForMaskedLM",
        "sequence": "ModernBertForSequenceClassification",
        "token": "ModernBertForTokenClassification",
        "span": "ModernBertForQuestionAnswering",
    },
    also_opens={},
    core_prefix="model.",
    core={
        "embeddings.token": one(MODERN_WORDS),
        "embeddings.norm.{part}": one("{core}embeddings.norm.{part}"),
        "layers.{layer}.attention.qkv.{part}": one(MODERN_LAYER + "attn.Wqkv.{part}"),
        "layers.{layer}.attention.output.{part}": one(MODERN_LAYER + "attn.Wo.{part}"),
        "layers.{layer}.attention.norm.{part}": one(MODERN_LAYER + "attn_norm.{part}"),
        "layers.{layer}.ffn.up.{part}": one(MODERN_LAYER + "mlp.Wi.{part}"),
        "layers.{layer}.ffn.down.{part}": one(MODERN_LAYER + "mlp.Wo.{part}"),
        "layers.{layer}.ffn.norm.{part}": one(MODERN_LAYER + "mlp_norm.{part}"),
        "final_norm.{part}": one("{core}final_norm.{part}"),
    },
    heads={
        "core": {},
        "mlm": MODERN_TIED,
        "mlm_untied": MODERN_UNTIED,
        "pretraining": MODERN_TIED,  # they have no class with a pair head: a file gives the rest
        "pretraining_untied": MODERN_UNTIED,
        "sequence": {**MODERN_TRANSFORM, **CLASSIFIER},
        "token": {**MODERN_TRANSFORM, **CLASSIFIER},
        "span": {**MODERN_TRANSFORM, **CLASSIFIER},
        "embedding": {},
        "forecast": {},
    },
    rules=(
        *SHARED_RULES,
        same("layer_norm_eps", "norm_eps"),
        same("norm_bias"),
        same("attention_bias"),
        same("ffn_bias", "mlp_bias"),
        same("head_bias", "classifier_bias"),
        same("decoder_bias"),
        same("classifier_pooling"),
        activation("hidden_activation", "classifier_activation"),
        same("embedding_dropout"),
        same("attention_dropout"),
        same("ffn_dropout", "mlp_dropout"),
        same("classifier_dropout"),
        local_window(),
        global_attention_every(),
        rope_theta("global_rope_theta", GLOBAL),
        rope_theta("local_rope_theta", LOCAL),
    ),
    # The published files say position_embedding_type "absolute", which transformers never reads for this family.
    honoured={**NEVER_OURS, "rope_scaling": (None, {}), "classifier_pooling": (None, "cls", "mean")},
    must_agree=dict.fromkeys(
        ("mlm", "pretraining", "sequence", "token", "span"), ((("classifier_activation", "hidden_activation"), "gelu"),)
    ),
    token_ids={"bos_token_id": 50_281, "cls_token_id": 50_281, "eos_token_id": 50_282, "sep_token_id": 50_282},
    not_weights=("*rotary_emb*inv_freq",),
)

FAMILIES = {family.name: family for family in (BERT, MODERNBERT)}
