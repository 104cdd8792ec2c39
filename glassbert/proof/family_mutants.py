"""Wrong gradients of parts of family members."""

from __future__ import annotations

from glassbert.families.mpnet import BucketPositions
from glassbert.layers.attention import SelfAttention
from glassbert.layers.scope import Scope
from glassbert.proof.mutants import wrong_in


@wrong_in({BucketPositions: "backward"}, "buckets: queries and keys exchanged", "mpnet")
def _(self, dbias, batch, scope):
    scope.add_rows("buckets", *scope.run_backward("buckets", dbias[0].transpose(2, 1, 0)))


@wrong_in({BucketPositions: "backward"}, "buckets: the table is not trained", "mpnet")
def _(self, dbias, batch, scope):
    pass


@wrong_in({SelfAttention: "score_bias_backward"}, "buckets: only the first layer of the backward counts", "mpnet")
def _(self, dbias, scope, context):
    if context.bias_name not in scope.cache.stored:
        scope.cache.accumulate(context.bias_name, dbias)
    return None, None


@wrong_in({Scope: "dropout_backward"}, "pooler: the dropout before it is left out of the backward",
          "roberta: sequence")  # fmt: skip
def _(self, dy, name):
    if name == "pooler.dropout" or self.saved(name) is None:
        return dy
    return self.run_backward(name, dy)
