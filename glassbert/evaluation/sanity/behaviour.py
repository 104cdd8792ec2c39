"""Checks of the forward pass: weights, tokenizer, dropout, determinism, padding, batch, packing, attention.

The dropout check uses the model as it is, so that a model left in training mode is found.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from glassbert.evaluation.encoding import LONG, SHORT, encoder_output, in_float64, ordinary_tokens, random_rows
from glassbert.evaluation.measures import Check, failed
from glassbert.evaluation.subject import Subject
from glassbert.models.model import Model
from glassbert.training.evaluate import evaluation_mode

TOLERANCE = 1e-6  # relative, in float64, where rounding is about 1e-15
MIN_CHANGE = 1e-9  # smaller changes count as none
REPEATS = "the same input gives the same output"
MIN_VOCABULARY = 0.5  # of the model's vocabulary: a smaller tokenizer is probably that of another model


def check_weights(subject: Subject) -> Check:
    """No weight is NaN or infinite."""
    name = "every weight is finite"
    count = 0
    for parameter, array in subject.model.parameters.items():
        values = subject.model.engine.to_numpy(array)
        if not np.isfinite(values).all():
            bad = np.argwhere(~np.isfinite(values))
            row = f", first in row {bad[0][0]}" if values.ndim > 1 else ""
            return failed(
                name,
                "A weight is not finite.",
                f"{parameter} has {len(bad):,} values that are NaN or infinite{row}.",
                "a step was applied with a gradient that was not finite, or a file is damaged.",
                "Use an earlier checkpoint; train with gradient clipping and a lower learning rate.",
            )
        count += values.size
    return Check(name, f"{count:,} weights")


def check_tokenizer(subject: Subject) -> Check:
    name = "the tokenizer fits the model"
    tokenizer, config = subject.tokenizer, subject.model.config
    sizes = f"The tokenizer has {tokenizer.vocab_size:,} entries and the model {config.vocab_size:,}."
    if tokenizer.vocab_size > config.vocab_size or tokenizer.vocab_size < MIN_VOCABULARY * config.vocab_size:
        return failed(
            name,
            "The tokenizer belongs to another model.",
            sizes,
            "the folder contains the tokenizer of another model.",
            "Use the tokenizer that the model was trained with.",
        )
    if config.pad_token_id is not None and tokenizer.pad_id != config.pad_token_id:
        return failed(
            name,
            "Tokenizer and model have different padding ids.",
            f"[PAD] is {tokenizer.pad_id} for the tokenizer and {config.pad_token_id} for the model.",
            "config.json and tokenizer come from different models.",
            "Set pad_token_id in config.json to the tokenizer's.",
        )
    return Check(name, sizes)


def check_behaviour(subject: Subject) -> Iterator[Check]:
    """Dropout, determinism, padding, batch, packing, attention. Stops if the output is not deterministic."""
    yield check_dropout(subject)
    with evaluation_mode(subject.model):
        repeats = check_repeats(subject, subject.model)
    yield repeats
    if not repeats.passed:
        return
    exact = in_float64(subject.model)
    with evaluation_mode(exact):
        yield check_padding(subject, exact)
        yield check_batch_independence(subject, exact)
        yield check_packing(subject, exact)
        yield check_attention(subject, exact)


def check_dropout(subject: Subject) -> Check:
    name = "dropout is off in evaluation"
    model = subject.model
    ids = random_rows(subject)
    seed = model.dropout_seed
    one, two = encoder_output(model, ids), encoder_output(model, ids)
    drawn, model.dropout_seed = model.dropout_seed != seed, seed
    difference = _relative_difference(one, two)
    if model.training or drawn:
        return failed(
            name,
            "Dropout is on.",
            f"The model is {'in training mode' if model.training else 'drawing dropout masks'}, and two passes over "
            f"the same rows differ by {difference:.2g}.",
            "set_training(True) was called, and set_training(False) was not called after training.",
            "Call model.set_training(False) before evaluating or predicting.",
        )
    return Check(name, f"two passes differ by {difference:.2g}")


def check_repeats(subject: Subject, model: Model) -> Check:
    name = REPEATS
    ids = random_rows(subject)
    difference = _relative_difference(encoder_output(model, ids), encoder_output(model, ids))
    if difference > TOLERANCE:
        return failed(
            name,
            "The model is not deterministic.",
            f"Two passes over the same rows differ by {difference:.2g} with dropout off.",
            "random numbers without a seed, or a race between threads.",
            "Compute with one thread (threads=1) and check again; then check your own layers.",
        )
    return Check(name, f"two passes differ by {difference:.2g}")


def check_padding(subject: Subject, model: Model) -> Check:
    """The output of a short row must not depend on the padding that follows it."""
    name = "padding changes nothing"
    short, long = min(SHORT, subject.max_length // 2), min(LONG, subject.max_length)
    alone = random_rows(subject, 1, short)
    noise = np.random.default_rng(1).choice(ordinary_tokens(subject), (1, long - short))
    padded = np.concatenate([alone, noise], 1)
    mask = np.zeros(padded.shape, np.int64)
    mask[:, :short] = 1
    wanted = encoder_output(model, alone)

    def distance(given: np.ndarray, skip: bool) -> float:
        return _relative_difference(wanted, encoder_output(model, padded, skip, attention_mask=given)[:, :short])

    difference = max(distance(mask, False), distance(mask, True))
    if difference <= TOLERANCE:
        return Check(name, f"by {difference:.2g} at most")
    inverted = distance(1 - mask, False) <= TOLERANCE
    return failed(
        name,
        "The attention mask is inverted." if inverted else "The attention mask is ignored.",
        f"A row of {short} tokens changes by {difference:.2g} when {long - short} tokens of padding follow it"
        + ("; with the inverted mask it does not change." if inverted else "."),
        "1 and 0 are exchanged before attention." if inverted else "the mask does not reach attention.",
        "1 means a real token and 0 padding: look for a wrong 1 - mask."
        if inverted
        else "Check that attention_mask reaches every layer and that masked scores are far below all others.",
    )


def check_batch_independence(subject: Subject, model: Model) -> Check:
    name = "rows of a batch are independent"
    ids = random_rows(subject)
    together = encoder_output(model, ids)
    difference = max(_relative_difference(encoder_output(model, ids[i : i + 1]), together[i : i + 1]) for i in (0, -2))
    if difference > TOLERANCE:
        return failed(
            name,
            "Rows of a batch influence each other.",
            f"A row changes by {difference:.2g} when other rows are in its batch.",
            "a mean or a norm over the batch axis instead of the feature axis.",
            "Look for sums over axis 0 and for batch statistics.",
        )
    return Check(name, f"by {difference:.2g} at most")


def check_packing(subject: Subject, model: Model) -> Check:
    """Two documents in one row, separated by segment_ids only."""
    name = "packed documents are independent"
    short = min(SHORT, subject.max_length // 2)
    one, two = random_rows(subject, 2, short)
    segments = np.repeat([[1, 2]], short, axis=1)
    together = encoder_output(model, np.concatenate([one, two])[None], segment_ids=segments)
    difference = max(
        _relative_difference(together[:, :short], encoder_output(model, one[None])),
        _relative_difference(together[:, short:], encoder_output(model, two[None])),
    )
    if difference > TOLERANCE:
        return failed(
            name,
            "Documents packed into one row influence each other.",
            f"A document changes by {difference:.2g} when another is packed into its row.",
            "segment_ids do not reach attention, or positions do not restart with each document.",
            "Train with segment_ids and position_ids from the batch; check that both reach the model.",
        )
    return Check(name, f"by {difference:.2g} at most")


def check_attention(subject: Subject, model: Model) -> Check:
    """A changed word must change the output at its neighbours."""
    name = "attention connects the words"
    ids = random_rows(subject, 1)
    changed = ids.copy()
    others = ordinary_tokens(subject)
    changed[0, 2] = others[(np.searchsorted(others, ids[0, 2]) + len(others) // 2) % len(others)]
    before, after = encoder_output(model, ids), encoder_output(model, changed)
    neighbour = np.abs(before - after)[0].max(-1)[[1, 3]].max()
    if neighbour < MIN_CHANGE:
        return failed(
            name,
            "No word influences another.",
            f"With another word at position 2 its neighbours change by {neighbour:.1g}.",
            "attention returns zeros or attends to the token itself: zero output weights, or everything is masked.",
            "Check attention.output.weight and the mask; train again from initial weights.",
        )
    return Check(name, f"a neighbour changes by {neighbour:.2g}")


def _relative_difference(one: np.ndarray, two: np.ndarray) -> float:
    """The largest difference, relative to the largest value."""
    return float(np.abs(one - two).max() / max(np.abs(one).max(), 1e-30))
