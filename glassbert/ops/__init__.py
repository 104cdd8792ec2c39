"""Operations: plain forward and backward functions with their formulas, one module for each operation or group."""

from glassbert.ops.activations import (
    geglu,
    geglu_backward,
    gelu,
    gelu_backward,
    gelu_tanh,
    gelu_tanh_backward,
    relu,
    relu_backward,
    tanh,
    tanh_backward,
)
from glassbert.ops.attention import AttentionPattern, attention, attention_backward, softmax, softmax_backward
from glassbert.ops.chosen_tokens import put_tokens, put_tokens_backward, take_tokens, take_tokens_backward
from glassbert.ops.compare import compare, compare_backward
from glassbert.ops.convolution import convolution, convolution_backward
from glassbert.ops.distillation import (
    cosine_distance_loss,
    cosine_distance_loss_backward,
    relation_loss,
    relation_loss_backward,
    soft_target_loss,
    soft_target_loss_backward,
)
from glassbert.ops.dropout import dropout, dropout_backward
from glassbert.ops.embedding import embedding, embedding_backward
from glassbert.ops.focal import binary_focal_loss, binary_focal_loss_backward, focal_loss, focal_loss_backward
from glassbert.ops.heads import join_heads, join_heads_backward
from glassbert.ops.huber import huber_loss, huber_loss_backward
from glassbert.ops.layer_norm import layer_norm, layer_norm_backward
from glassbert.ops.linear import linear, linear_backward
from glassbert.ops.losses import (
    IGNORED,
    binary_cross_entropy,
    binary_cross_entropy_backward,
    cross_entropy,
    cross_entropy_backward,
    mean_squared_error,
    mean_squared_error_backward,
    take_rows,
    take_rows_backward,
)
from glassbert.ops.low_rank import low_rank, low_rank_backward
from glassbert.ops.numbers import number_embedding, number_embedding_backward
from glassbert.ops.ordinal import ordinal_loss, ordinal_loss_backward
from glassbert.ops.pooling import (
    attention_pool,
    attention_pool_backward,
    cls_pool,
    cls_pool_backward,
    last_pool,
    last_pool_backward,
    max_pool,
    max_pool_backward,
    mean_pool,
    mean_pool_backward,
)
from glassbert.ops.quantized import (
    QuantizedArray,
    quantized_embedding,
    quantized_embedding_backward,
    quantized_linear,
    quantized_linear_backward,
)
from glassbert.ops.registry import OPERATIONS, operation, operation_names
from glassbert.ops.relative import relative_scores, relative_scores_backward
from glassbert.ops.relative_shift import relative_shift, relative_shift_backward
from glassbert.ops.rotary import rotary, rotary_angles, rotary_backward
from glassbert.ops.similarity import (
    contrastive_loss,
    contrastive_loss_backward,
    cosine_loss,
    cosine_loss_backward,
    ranking_loss,
    ranking_loss_backward,
    unit_length,
    unit_length_backward,
)
from glassbert.ops.tiled_attention import tiled_attention, tiled_attention_backward

__all__ = [
    "IGNORED",
    "OPERATIONS",
    "AttentionPattern",
    "QuantizedArray",
    "attention",
    "attention_backward",
    "attention_pool",
    "attention_pool_backward",
    "binary_cross_entropy",
    "binary_cross_entropy_backward",
    "binary_focal_loss",
    "binary_focal_loss_backward",
    "cls_pool",
    "cls_pool_backward",
    "compare",
    "compare_backward",
    "contrastive_loss",
    "contrastive_loss_backward",
    "convolution",
    "convolution_backward",
    "cosine_distance_loss",
    "cosine_distance_loss_backward",
    "cosine_loss",
    "cosine_loss_backward",
    "cross_entropy",
    "cross_entropy_backward",
    "dropout",
    "dropout_backward",
    "embedding",
    "embedding_backward",
    "focal_loss",
    "focal_loss_backward",
    "geglu",
    "geglu_backward",
    "gelu",
    "gelu_backward",
    "gelu_tanh",
    "gelu_tanh_backward",
    "huber_loss",
    "huber_loss_backward",
    "join_heads",
    "join_heads_backward",
    "last_pool",
    "last_pool_backward",
    "layer_norm",
    "layer_norm_backward",
    "linear",
    "linear_backward",
    "low_rank",
    "low_rank_backward",
    "max_pool",
    "max_pool_backward",
    "mean_pool",
    "mean_pool_backward",
    "mean_squared_error",
    "mean_squared_error_backward",
    "number_embedding",
    "number_embedding_backward",
    "operation",
    "operation_names",
    "ordinal_loss",
    "ordinal_loss_backward",
    "put_tokens",
    "put_tokens_backward",
    "quantized_embedding",
    "quantized_embedding_backward",
    "quantized_linear",
    "quantized_linear_backward",
    "ranking_loss",
    "ranking_loss_backward",
    "relation_loss",
    "relation_loss_backward",
    "relative_scores",
    "relative_scores_backward",
    "relative_shift",
    "relative_shift_backward",
    "relu",
    "relu_backward",
    "rotary",
    "rotary_angles",
    "rotary_backward",
    "soft_target_loss",
    "soft_target_loss_backward",
    "softmax",
    "softmax_backward",
    "take_rows",
    "take_rows_backward",
    "take_tokens",
    "take_tokens_backward",
    "tanh",
    "tanh_backward",
    "tiled_attention",
    "tiled_attention_backward",
    "unit_length",
    "unit_length_backward",
]
