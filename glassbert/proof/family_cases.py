"""Cases of family members: RoBERTa, DistilBERT, ALBERT and MPNet with their own parts and heads."""

from __future__ import annotations

from typing import Any

from glassbert.families.albert import AlbertConfig
from glassbert.families.distilbert import DistilBertConfig
from glassbert.families.mpnet import MPNetConfig
from glassbert.families.roberta import RobertaConfig
from glassbert.proof.cases import case
from glassbert.proof.layer_cases import NO_DROPOUT, RATES, embeddings_fixture, tiny_tiles
from glassbert.proof.model_cases import MLM_LABELS, PADDED, register

SIZES: dict[str, Any] = {
    "vocab_size": 11, "hidden_size": 6, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 7,
    "max_position_embeddings": 9, **NO_DROPOUT,
}  # fmt: skip
DROPPED: dict[str, Any] = dict.fromkeys(RATES, 0.3)
TINY_ROBERTA = RobertaConfig(**SIZES, pad_token_id=0, type_vocab_size=1)
TINY_MPNET = MPNetConfig(**SIZES, pad_token_id=0)
TINY_DISTILBERT = DistilBertConfig(**SIZES, pad_token_id=None)
TINY_ALBERT = AlbertConfig(**{**SIZES, "num_hidden_layers": 3}, embedding_size=4, pad_token_id=None)
PADDED_IDS = [[3, 1, 3, 3, 2], [0] * 5, [9, 1, 1, 0, 0]]
SPANS = [[1, 4], [-100, -100], [2, 0]]

register("roberta", "mlm, positions from 1, padded, two threads", TINY_ROBERTA, "mlm", ids=PADDED_IDS,
         labels=[[-100, 5, -100, 3, -100], [-100] * 5, [1, -100, 5, -100, -100]], inputs=PADDED, threads=2)  # fmt: skip
register("roberta", "sequence, dropout before and after the dense layer", TINY_ROBERTA.replace(**DROPPED), "sequence",
         ids=PADDED_IDS, num_labels=3, labels=[2, -100, 0], inputs=PADDED, training=True)  # fmt: skip
register("distilbert", "mlm, dropout", TINY_DISTILBERT.replace(**DROPPED), "mlm", labels=MLM_LABELS, inputs=PADDED,
         training=True)  # fmt: skip
register("distilbert", "spans, dropout", TINY_DISTILBERT.replace(**DROPPED), "span", ids=PADDED_IDS, labels=SPANS,
         inputs=PADDED, training=True)  # fmt: skip
register("albert", "words and order, tied, narrow decoder, checkpointing", TINY_ALBERT, "pretraining",
         labels=MLM_LABELS, inputs={**PADDED, "pair_labels": [1, -100, 0]}, checkpointing=True)  # fmt: skip
register("albert", "mlm, untied, two groups, two threads",
         TINY_ALBERT.replace(layer_groups=2, tie_word_embeddings=False), "mlm", labels=MLM_LABELS, inputs=PADDED,
         threads=2)  # fmt: skip
register("mpnet", "mlm, buckets shared by layers, two threads", TINY_MPNET, "mlm", ids=PADDED_IDS,
         labels=[[-100, 5, -100, 3, -100], [-100] * 5, [1, -100, 5, -100, -100]], inputs=PADDED, threads=2)  # fmt: skip
register("mpnet", "token labels, tiled, checkpointing", TINY_MPNET, "token", ids=PADDED_IDS, num_labels=3,
         labels=[[0, 2, -100, 1, 2], [-100] * 5, [2, 2, 0, -100, -100]], inputs=PADDED, around=tiny_tiles,
         checkpointing=True)  # fmt: skip
case("layer", "embeddings", "positions with buckets")(
    lambda rng: embeddings_fixture(
        rng, TINY_MPNET.replace(pad_token_id=7, max_position_embeddings=14), positions=[[8, 9, 10, 11, 12]]
    )
)
