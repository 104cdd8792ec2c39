"""Cases of the heads: their outputs, and every head with every pooling and every loss it can be trained with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from glassbert.arrays import Array
from glassbert.layers.scope import Parameter, with_prefix
from glassbert.models.config import EncoderConfig
from glassbert.models.encoder import Batch
from glassbert.models.heads import Head, PairHead, make_head, pooler, pooler_backward, pooler_parameters, with_pooling
from glassbert.models.passes import head_loss, head_loss_backward
from glassbert.proof.cases import Fixture, case
from glassbert.proof.layer_cases import DROPOUT, MASK, TINY_BERT, TINY_MODERN, UNTIED, Rng, layer_fixture

GELU_POOLER = TINY_BERT.replace(pooler_activation="gelu", pooler_dropout=0.3)


def head_fixture(
    rng: Rng, config: EncoderConfig, kind: str, labels: int = 0, rows: Any = None, mask: Any = None, **options: Any
) -> Fixture:
    head = PairHead(config) if kind == "pair" else make_head(kind, config, labels)
    parameters = parameters_of(head)
    if head.decodes and config.tie_word_embeddings:
        parameters.append(Parameter("embeddings.token", (config.vocab_size, config.embedding_width), "embedding"))

    def forward(engine, x, scope):
        chosen = None if rows is None else engine.integers(np.asarray(rows))
        return laid_out(engine, head.forward(x, batch_with(engine, mask), scope.inside("head"), chosen))

    def backward(engine, dy, scope):
        shapes = {"mlm": (3, 5, config.vocab_size) if rows is None else (len(rows), config.vocab_size), "pair": (3, 2)}
        return head.backward(taken_apart(dy, shapes) if kind == "pretraining" else dy, scope.inside("head"))

    return layer_fixture(
        rng,
        parameters,
        forward,
        backward,
        (3, 5, config.hidden_size),
        **options,
    )


def batch_with(engine: Any, mask: Any) -> Batch:
    """A batch with a mask, the only input that heads read."""
    return Batch(engine.integers(np.arange(5)[None]), mask=None if mask is None else engine.integers(np.asarray(mask)))


def parameters_of(head: Head) -> list[Parameter]:
    own = with_prefix("head", head.parameters())
    return own + pooler_parameters(head.config) if head.config.pooler and head.pools else own


def laid_out(engine: Any, output: Any) -> Array:
    """The outputs of a head with several parts in one row, one after the other."""
    if not isinstance(output, Mapping):
        return output
    return engine.xp.concatenate([part.reshape(-1) for part in output.values()])


def taken_apart(dy: Array, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    parts, start = {}, 0
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        parts[name] = dy[start : start + size].reshape(shape)
        start += size
    return parts


case("layer", "mlm", "tied, chosen rows")(lambda rng: head_fixture(rng, TINY_BERT, "mlm", rows=[1, 4, 11]))
case("layer", "mlm", "untied, every row")(lambda rng: head_fixture(rng, UNTIED, "mlm"))
case("layer", "mlm", "no transform, no decoder bias")(
    lambda rng: head_fixture(rng, UNTIED.replace(head_transform=False, decoder_bias=False), "mlm", rows=[0, 9])
)
case("layer", "causal", "tied, no transform, no decoder bias, chosen rows")(
    lambda rng: head_fixture(
        rng, TINY_BERT.replace(causal=True, head_transform=False, decoder_bias=False), "causal", rows=[0, 7, 3]
    )
)
case("layer", "token", "dropout")(lambda rng: head_fixture(rng, TINY_BERT.replace(**DROPOUT), "token", 3, dropout=True))
case("layer", "token", "modernbert")(lambda rng: head_fixture(rng, TINY_MODERN, "token", 3))
case("layer", "sequence", "pooler, dropout")(
    lambda rng: head_fixture(rng, TINY_BERT.replace(**DROPOUT), "sequence", 3, dropout=True)
)
case("layer", "sequence", "modernbert, mean over ragged rows")(
    lambda rng: head_fixture(rng, TINY_MODERN.replace(classifier_pooling="mean"), "sequence", 2, mask=MASK)
)
case("layer", "pair", "pooler, dropout of other classifiers left alone")(
    lambda rng: head_fixture(rng, TINY_BERT.replace(**DROPOUT), "pair", dropout=True)
)
case("layer", "pair", "modernbert, no pooler")(lambda rng: head_fixture(rng, TINY_MODERN, "pair", mask=MASK))
case("layer", "pretraining", "tied, chosen rows and every [CLS]")(
    lambda rng: head_fixture(rng, TINY_BERT, "pretraining", rows=[1, 4, 11])
)
case("layer", "pretraining", "untied, every row")(lambda rng: head_fixture(rng, UNTIED, "pretraining"))
case("layer", "span", "scores, ragged and all-padding rows")(
    lambda rng: head_fixture(rng, TINY_BERT, "span", mask=MASK)
)
case("layer", "mlm", "tied, narrow embeddings")(
    lambda rng: head_fixture(rng, TINY_BERT.replace(embedding_size=4), "mlm", rows=[1, 4, 11])
)
case("layer", "discriminator", "gelu")(lambda rng: head_fixture(rng, TINY_BERT, "discriminator"))
case("layer", "discriminator", "norm, without its bias")(
    lambda rng: head_fixture(rng, TINY_BERT.replace(discriminator_norm=True, norm_bias=False), "discriminator")
)
case("layer", "rtd", "the score of the discriminator")(
    lambda rng: head_fixture(rng, TINY_BERT.replace(num_hidden_layers=1), "rtd")
)
case("layer", "pooler", "dropout before it, gelu")(
    lambda rng: layer_fixture(
        rng,
        pooler_parameters(TINY_BERT),
        lambda engine, x, scope: pooler(x, scope, GELU_POOLER),
        lambda engine, dy, scope: pooler_backward(dy, scope),
        (3, 6),
        dropout=True,
    )
)
case("layer", "pooler", "tanh")(
    lambda rng: layer_fixture(
        rng,
        pooler_parameters(TINY_BERT),
        lambda engine, x, scope: pooler(x, scope, TINY_BERT),
        lambda engine, dy, scope: pooler_backward(dy, scope),
        (3, 6),
    )
)


# ---- from hidden states to the loss --------------------------------------------------------------------------------


def loss_fixture(rng: Rng, head: Head, labels: Any, rows: int = 3) -> Fixture:
    """From hidden states through pooling and scores to the loss, and back."""
    prepared = head.prepare_labels(np.asarray(labels), (rows, 5))
    mask = np.array((MASK + MASK)[:rows])

    def forward(engine, x, scope):
        targets = {k: (engine.integers if v.dtype.kind in "iu" else engine.array)(v) for k, v in prepared.items()}
        return head_loss(head, x, batch_with(engine, mask), targets, scope.inside("head"))

    def backward(engine, dloss, scope):
        return head_loss_backward(head, dloss, scope.inside("head"))

    return layer_fixture(rng, parameters_of(head), forward, backward, (rows, 5, head.config.hidden_size), entries=2)


POOLED = {
    "cls through the pooler": TINY_BERT,
    "cls": TINY_BERT.replace(pooler=False),
    **{pooling: with_pooling(TINY_BERT, pooling) for pooling in ("mean", "max", "attention", "last")},
}
CLASSES, RANKS, YES_OR_NO = [2, 0, -100], [3, 0, 1], [[1, 0, 1], [1, -100, 0], [0, 0, 1]]
# name -> (loss, its options, number of labels, labels)
SEQUENCE_LOSSES: dict[str, tuple[str, dict[str, Any], int, Any]] = {
    "multiclass": ("cross_entropy", {}, 3, CLASSES),
    "multiclass, class weights, smoothing": (
        "cross_entropy", {"class_weights": [0.5, 1.0, 3.0], "label_smoothing": 0.1}, 3, CLASSES,
    ),
    "multiclass, focal": ("cross_entropy", {"focal_gamma": 2.0, "class_weights": [0.5, 1.0, 3.0]}, 3, CLASSES),
    "binary": ("binary_cross_entropy", {}, 1, [1, 0, 1]),
    "binary, focal": ("binary_cross_entropy", {"focal_gamma": 2.0}, 1, [1, 0, 1]),
    "multilabel, positive weights": ("binary_cross_entropy", {"positive_weights": [2.0, 0.5, 4.0]}, 3, YES_OR_NO),
    "regression, scaled targets": (
        "mean_squared_error", {"target_mean": [20.0], "target_scale": [7.0]}, 1, [25, 3, 18],
    ),
    "regression, three numbers": ("mean_squared_error", {}, 3, [[0.1, -1.0, 2.0]] * 2 + [[-100, 1.0, 0.5]]),
    "ordinal": ("ordinal", {}, 4, RANKS),
}  # fmt: skip
PAIR_LOSSES: dict[str, tuple[str, dict[str, Any], list[float]]] = {
    "cosine": ("cosine", {}, [0.9, 0.9, -0.2, -0.2, 0.4, 0.4]),
    "contrastive": ("contrastive", {"temperature": 0.2}, [1, 1, 1, 1, -100, -100]),
    "ranking": ("ranking", {"temperature": 0.2}, [0.9, 0.9, -0.2, -0.2, 0.4, 0.4]),
}
TOKENS = [[0, 2, -100, 1, 2], [-100] * 5, [2, 2, 0, -100, -100]]
TOKEN_LOSSES: dict[str, dict[str, Any]] = {
    "class weights, smoothing": {"class_weights": [0.5, 1.0, 3.0], "label_smoothing": 0.1},
    "focal": {"focal_gamma": 2.0},
}


def enter(subject: str, situation: str, head: Head, labels: Any, rows: int = 3) -> None:
    case("layer", subject, situation)(lambda rng: loss_fixture(rng, head, labels, rows))


for pooling, config in POOLED.items():
    for name, (loss, options, count, labels) in SEQUENCE_LOSSES.items():
        enter("sequence", f"{name}, {pooling}", make_head("sequence", config, count, loss, options), labels)
    for name, (loss, options, labels) in PAIR_LOSSES.items():
        if pooling != "cls through the pooler":
            enter("embedding", f"{name}, {pooling}", make_head("embedding", config, 0, loss, options), labels, 6)
for name, options in TOKEN_LOSSES.items():
    enter("token", name, make_head("token", TINY_BERT, 3, None, options), TOKENS)
enter("sequence", "ordinal, attention, modernbert",
      make_head("sequence", with_pooling(TINY_MODERN, "attention"), 4, "ordinal"), RANKS)  # fmt: skip
REPLACED = [[0, 1, -100, 1, 0], [-100] * 5, [1, 0, 0, -100, -100]]
enter("discriminator", "loss of real tokens", make_head("discriminator", TINY_BERT), REPLACED)
enter("span", "bert", make_head("span", TINY_BERT), [[1, 3], [-100, -100], [0, 2]])
enter("span", "modernbert, one end unknown", make_head("span", TINY_MODERN), [[1, 3], [4, -100], [0, 0]])
