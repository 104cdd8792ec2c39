"""MPNet: BERT with relative positions in the scores, and the encoder of many published sentence embeddings.

Differs from BERT in
    positions       learned vectors from pad + 1, as RoBERTa, and a bias of the scores for each head and each bucket of
                    distances, one table for all layers
    embeddings      no token types
    pretraining     masked and permuted words; here on masked words
    classifiers     dropout, dense and tanh before the classifier of a sequence, in the head

The 32 buckets are 16 for each direction: one for each distance up to 7, then ranges that grow as the logarithm up to
128, where the last bucket begins. Published sentence embeddings (modules.json with pooling and normalisation) open with
`glassbert.load(folder, head="embedding")`. transformers has padding id 1 for this model; a model that was trained with
another one, such as that of our WordPiece tokenizers, is saved in our own layout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from glassbert.arrays import Array, namespace
from glassbert.checkpoints.family import CLASSIFIER, COMMON_KEYS, SHARED_RULES, Family, register_family
from glassbert.checkpoints.fields import activation, follows, same
from glassbert.checkpoints.names import one, stacked
from glassbert.families.bert import BERT_WORDS, SPAN, BertWithHead
from glassbert.families.roberta import MINI, RobertaConfig
from glassbert.families.roberta import MLM as ROBERTA_MLM
from glassbert.layers.positions import LearnedPositions
from glassbert.layers.registry import POSITIONS
from glassbert.layers.scope import Parameter, Scope
from glassbert.models.config import EncoderConfig
from glassbert.models.model import Model

BUCKETS, FARTHEST = 32, 128


def bucket(distance: np.ndarray) -> np.ndarray:
    """The bucket of the distance from a query to a key. Keys after the query have the second half.

    bucket(n) = n for n < 8, then 8 + 8 · log(n / 8) / log(128 / 8), at most 15      n = |query - key|
    """
    each, exact = BUCKETS // 2, BUCKETS // 4
    far = np.abs(distance)
    ratio = np.log(np.maximum(far, 1).astype(np.float32) / np.float32(exact)) / np.float32(math.log(FARTHEST / exact))
    grown = np.minimum(exact + (ratio * (each - exact)).astype(np.int64), each - 1)
    return np.where(far < exact, far, grown) + each * (distance < 0)


@lru_cache(maxsize=16)
def buckets_of(length: int) -> np.ndarray:
    """[Tq, Tk]"""
    place = np.arange(length)
    return bucket(place[:, None] - place[None])


def recorded_buckets(length: Any, xp: Any) -> Array:
    """The same where the length is unknown: all distances from FARTHEST on have one bucket."""
    place, table = xp.arange(length), bucket(np.arange(-FARTHEST, FARTHEST + 1))
    return xp.array(table)[xp.clip(place[:, None] - place[None], -FARTHEST, FARTHEST) + FARTHEST]


@POSITIONS.register("buckets")
class BucketPositions(LearnedPositions):
    """Learned positions, and score(i, j) += table[bucket(i - j), head] in every layer."""

    def parameters(self) -> list[Parameter]:
        return [Parameter("buckets", (BUCKETS, self.config.num_attention_heads), "embedding")]

    def begin(self, batch: Any, scope: Scope) -> Array | None:
        table, length = scope.parameter("buckets"), batch.positions.shape[1]
        xp = namespace(table)
        index = xp.array(buckets_of(length)) if isinstance(length, int) else recorded_buckets(length, xp)  # [T, T]
        rows = scope.run("embedding", "buckets", table, index)  # [T, T, heads]
        return scope.record("bias", rows.transpose(2, 0, 1)[None], (2, 3))  # [1, heads, T, T]

    def backward(self, dbias: Array, batch: Any, scope: Scope) -> None:
        """All pairs of a bucket share a number, so its gradient is the sum over them, and over the layers."""
        scope.add_rows("buckets", *scope.run_backward("buckets", dbias[0].transpose(1, 2, 0)))


@dataclass(frozen=True, kw_only=True)
class MPNetConfig(RobertaConfig):
    """MPNet: relative buckets, no token types. `position_offset` follows from `pad_token_id`."""

    family: str = "mpnet"
    vocab_size: int = 30_527
    type_vocab_size: int = 0
    positions: str = "buckets"

    @classmethod
    def get_base_config(cls) -> MPNetConfig:
        return cls(max_position_embeddings=514, layer_norm_eps=1e-5)


class MPNetCore(Model):
    """An MPNet encoder; forward returns hidden states."""

    def __init__(self, config: EncoderConfig | None = None, **options: Any):
        super().__init__(config or MPNetConfig.get_base_config(), **options)


def class_for(config: EncoderConfig, head: str | None) -> type[Model]:
    return MPNetCore if head is None else BertWithHead


LAYER = "{core}encoder.layer.{layer}."

MPNET = register_family(
    Family(
        name="mpnet",
        config_class=MPNetConfig,
        architectures={
            "core": "MPNetModel",
            "mlm": "MPNetForMaskedLM",
            "sequence": "MPNetForSequenceClassification",
            "token": "MPNetForTokenClassification",
            "span": "MPNetForQuestionAnswering",
        },
        core_prefix="mpnet.",
        core={
            "embeddings.token": one(BERT_WORDS),
            "embeddings.position": one("{core}embeddings.position_embeddings.weight"),
            "embeddings.norm.{part}": one("{core}embeddings.LayerNorm.{part}"),
            "positions.buckets": one("{core}encoder.relative_attention_bias.weight"),
            "layers.{layer}.attention.qkv.{part}": stacked(
                LAYER + "attention.attn.q.{part}", LAYER + "attention.attn.k.{part}", LAYER + "attention.attn.v.{part}"
            ),
            "layers.{layer}.attention.output.{part}": one(LAYER + "attention.attn.o.{part}"),
            "layers.{layer}.attention.norm.{part}": one(LAYER + "attention.LayerNorm.{part}"),
            "layers.{layer}.ffn.up.{part}": one(LAYER + "intermediate.dense.{part}"),
            "layers.{layer}.ffn.down.{part}": one(LAYER + "output.dense.{part}"),
            "layers.{layer}.ffn.norm.{part}": one(LAYER + "output.LayerNorm.{part}"),
            "pooler.{part}": one("{core}pooler.dense.{part}"),
        },
        heads={
            "core": {},
            "mlm": {
                **ROBERTA_MLM,
                "embeddings.token": one(BERT_WORDS, tied=("lm_head.decoder.weight",)),
                "head.decoder.bias": one("lm_head.bias", tied=("lm_head.decoder.bias",)),
            },
            "mlm_untied": {
                **ROBERTA_MLM,
                "head.decoder.weight": one("lm_head.decoder.weight"),
                "head.decoder.bias": one("lm_head.decoder.bias", copies=("lm_head.bias",)),
            },
            "sequence": {
                "pooler.{part}": one("classifier.dense.{part}"),
                "head.classifier.{part}": one("classifier.out_proj.{part}"),
            },
            "token": CLASSIFIER,
            "span": SPAN,
        },
        rules=(
            *SHARED_RULES,
            same("layer_norm_eps"),
            activation("hidden_act"),
            same("hidden_dropout", "hidden_dropout_prob"),
            follows("embedding_dropout", "hidden_dropout_prob"),
            follows("pooler_dropout", "hidden_dropout_prob"),
            follows("classifier_dropout", "hidden_dropout_prob"),
            same("attention_dropout", "attention_probs_dropout_prob"),
        ),
        # transformers has the padding id 1 and 32 buckets, whatever its config says.
        supported_values={**COMMON_KEYS, "pad_token_id": (None, 1), "relative_attention_num_buckets": (None, BUCKETS)},
        head_values={"mlm": {"hidden_act": (None, "gelu", "gelu_python")}},
        token_ids={"bos_token_id": 0, "eos_token_id": 2},
        not_weights=("embeddings.position_ids",),
        pretraining_only=("pooler.dense.{part}",),
        inferred_from_tensor={"pooler": "pooler.dense.weight"},
        presets={"mpnet-mini": MPNetConfig(**MINI), "mpnet-base": MPNetConfig.get_base_config()},
        title="MPNet",
        paper="Song, Tan, Qin, Lu and Liu, 2020: MPNet: Masked and Permuted Pre-training for Language Understanding",
        differences={
            "positions": "learned vectors from pad + 1, and a bias of the scores for each head and bucket of "
            "distances, shared by all layers",
            "token types": "none",
            "pretraining": "masked and permuted words; here on masked words",
            "classifiers": "dropout, dense and tanh before the classifier of a sequence, in the head",
        },
        formulas="""\
scores           score(i, j) = q_i · k_j / √d + β[head, bucket(i - j)]        one table β for all layers
buckets          bucket(n) = |n| for |n| < 8, else 8 + 8 log(|n| / 8) / log 16, at most 15; + 16 where n < 0
                 dβ[head, b] = Σ over layers, rows and pairs of bucket b of dscore(i, j)
positions        position(t) = pad + number of real tokens up to t""",
        mini="mpnet-mini",
        class_for=class_for,
    )
)
