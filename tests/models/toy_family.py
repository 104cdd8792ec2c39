"""A family of its own, in one file: shared layers, narrow embeddings and an additive score term.

Differs from BERT in
    embeddings   half as wide as the layers, and projected
    layers       all of them share one set of parameters
    positions    none in the embeddings; a learned bias for every head and distance is added to the scores
"""

from dataclasses import dataclass

import numpy as np

from glassbert import POSITIONS, EncoderConfig, Family, register_family
from glassbert.arrays import namespace
from glassbert.layers.positions import Positions
from glassbert.layers.scope import Parameter

REACH = 3  # distances beyond this share one entry


@POSITIONS.register("toy-distance")
class DistanceBias(Positions):
    """score(i, j) += table[head, clip(j - i)]"""

    def parameters(self):
        return [Parameter("table", (2 * REACH + 1, self.config.num_attention_heads), "embedding")]

    def begin(self, batch, scope):
        place = np.arange(batch.positions.shape[1])
        distance = np.clip(place[None] - place[:, None], -REACH, REACH) + REACH  # [T, T]
        table = scope.parameter("table")
        rows = scope.run("embedding", "table", table, namespace(table).array(distance))
        return rows.transpose(2, 0, 1)[None]  # [1, heads, T, T]

    def backward(self, dbias, batch, scope):
        scope.add_rows("table", *scope.run_backward("table", dbias[0].transpose(1, 2, 0)))


@dataclass(frozen=True, kw_only=True)
class ToyConfig(EncoderConfig):
    family: str = "toy"
    positions: str = "toy-distance"
    embedding_size: int | None = 384
    layer_groups: int | None = 1


TINY = ToyConfig(
    vocab_size=50,
    hidden_size=16,
    embedding_size=8,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=16,
)
register_family(Family("toy", ToyConfig, presets={"toy-tiny": TINY}))
