"""Does the model do what a model must do, whatever it has learned?

It is asked as it stands: nothing is switched off first, so that a model left in training mode shows it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from glassbert.evaluation.encoding import LONG, SHORT, hidden_states, in_float64, ordinary_tokens, random_rows
from glassbert.evaluation.measures import Check, failed
from glassbert.evaluation.subject import Subject
from glassbert.models.model import Model
from glassbert.training.evaluate import quietly

TOLERANCE = 1e-6  # in float64, where rounding is a billion times smaller
VISIBLE = 1e-9  # a change that is there at all
REPEATS = "the same input gives the same answer"
FOREIGN = 0.5  # of the model's vocabulary: a tokenizer with fewer entries is hardly its own


def check_weights(subject: Subject) -> Check:
    """Every weight a number."""
    name = "every weight is a number"
    count = 0
    for parameter, array in subject.model.parameters.items():
        values = subject.model.engine.to_numpy(array)
        if not np.isfinite(values).all():
            place = np.argwhere(~np.isfinite(values))
            row = f", first in row {place[0][0]}" if values.ndim > 1 else ""
            return failed(
                name,
                "A weight is not a number.",
                f"{parameter} holds {len(place):,} values that are NaN or infinite{row}.",
                "a step with a gradient that was not finite was applied, or a file was damaged.",
                "Go back to an earlier checkpoint; train with clipping and a lower rate.",
            )
        count += values.size
    return Check(name, f"{count:,} weights")


def check_tokenizer(subject: Subject) -> Check:
    name = "the tokenizer fits the model"
    tokenizer, config = subject.tokenizer, subject.model.config
    sizes = f"The tokenizer has {tokenizer.vocab_size:,} entries and the model {config.vocab_size:,}."
    if tokenizer.vocab_size > config.vocab_size or tokenizer.vocab_size < FOREIGN * config.vocab_size:
        return failed(
            name,
            "The tokenizer is not the model's own.",
            sizes,
            "the folder holds the tokenizer of another model.",
            "Use the tokenizer the model was trained with; with another one every id means another word.",
        )
    if tokenizer.pad_id != config.pad_token_id:
        return failed(
            name,
            "Tokenizer and model disagree about padding.",
            f"[PAD] is {tokenizer.pad_id} for the tokenizer and {config.pad_token_id} for the model.",
            "config.json and tokenizer come from different models.",
            "Set pad_token_id in config.json to the tokenizer's.",
        )
    return Check(name, sizes)


def check_behaviour(subject: Subject) -> Iterator[Check]:
    """Dropout, determinism, padding, neighbours in the batch and in the row; nothing more where answers vary."""
    yield check_dropout(subject)
    with quietly(subject.model):
        repeats = check_repeats(subject, subject.model)
    yield repeats
    if not repeats.passed:
        return
    exact = in_float64(subject.model)
    with quietly(exact):
        yield check_padding(subject, exact)
        yield check_batch_mates(subject, exact)
        yield check_packing(subject, exact)
        yield check_attention(subject, exact)


def check_dropout(subject: Subject) -> Check:
    name = "dropout is off in evaluation"
    model = subject.model
    ids = random_rows(subject)
    seed = model.dropout_seed
    one, two = hidden_states(model, ids), hidden_states(model, ids)
    drawn, model.dropout_seed = model.dropout_seed != seed, seed
    apart = _apart(one, two)
    if model.training or drawn:
        return failed(
            name,
            "Dropout is left on.",
            f"The model is {'in training mode' if model.training else 'drawing dropout masks'}, and two passes over "
            f"the same rows differ by {apart:.2g}.",
            "set_training(True) was not taken back after training.",
            "Call model.set_training(False) before evaluating or predicting.",
        )
    return Check(name, f"two passes differ by {apart:.2g}")


def check_repeats(subject: Subject, model: Model) -> Check:
    name = REPEATS
    ids = random_rows(subject)
    apart = _apart(hidden_states(model, ids), hidden_states(model, ids))
    if apart > TOLERANCE:
        return failed(
            name,
            "The model is not deterministic.",
            f"Two passes over the same rows differ by {apart:.2g} with dropout off.",
            "randomness without a seed, or memory that threads share.",
            "Compute with one thread (threads=1) and see whether it stays; then look at your own layers.",
        )
    return Check(name, f"two passes differ by {apart:.2g}")


def check_padding(subject: Subject, model: Model) -> Check:
    """A short row must not notice what stands behind it."""
    name = "padding changes nothing"
    short, long = min(SHORT, subject.longest // 2), min(LONG, subject.longest)
    alone = random_rows(subject, 1, short)
    noise = np.random.default_rng(1).choice(ordinary_tokens(subject), (1, long - short))
    padded = np.concatenate([alone, noise], 1)
    mask = np.zeros(padded.shape, np.int64)
    mask[:, :short] = 1
    wanted = hidden_states(model, alone)

    def distance(given: np.ndarray, skip: bool) -> float:
        return _apart(wanted, hidden_states(model, padded, skip, attention_mask=given)[:, :short])

    apart = max(distance(mask, False), distance(mask, True))
    if apart <= TOLERANCE:
        return Check(name, f"by {apart:.2g} at most")
    inverted = distance(1 - mask, False) <= TOLERANCE
    return failed(
        name,
        "The attention mask is inverted." if inverted else "The attention mask is not honoured.",
        f"A row of {short} tokens changes by {apart:.2g} when {long - short} tokens of padding follow it"
        + ("; with the mask turned around it does not change." if inverted else "."),
        "1 and 0 are exchanged on the way into attention." if inverted else "the mask is lost on the way to attention.",
        "1 means a real token and 0 padding: see that no 1 - mask is left over."
        if inverted
        else "See that attention_mask reaches every layer and that masked scores are far below all others.",
    )


def check_batch_mates(subject: Subject, model: Model) -> Check:
    name = "rows of a batch do not see each other"
    ids = random_rows(subject)
    apart = max(_apart(hidden_states(model, ids[i : i + 1]), hidden_states(model, ids)[i : i + 1]) for i in (0, -2))
    if apart > TOLERANCE:
        return failed(
            name,
            "Rows of a batch influence each other.",
            f"A row changes by {apart:.2g} when others stand in its batch.",
            "a mean or a norm over the wrong axis, the batch's instead of the width's.",
            "Look for sums over axis 0 and for statistics of a batch.",
        )
    return Check(name, f"by {apart:.2g} at most")


def check_packing(subject: Subject, model: Model) -> Check:
    """Two documents in one row, told apart by segment_ids alone."""
    name = "packed documents do not see each other"
    short = min(SHORT, subject.longest // 2)
    one, two = random_rows(subject, 2, short)
    segments = np.repeat([[1, 2]], short, axis=1)
    together = hidden_states(model, np.concatenate([one, two])[None], segment_ids=segments)
    apart = max(
        _apart(together[:, :short], hidden_states(model, one[None])),
        _apart(together[:, short:], hidden_states(model, two[None])),
    )
    if apart > TOLERANCE:
        return failed(
            name,
            "Documents packed into one row see each other.",
            f"A document changes by {apart:.2g} when another is packed beside it.",
            "segment_ids do not reach attention, or positions do not begin anew with each document.",
            "Train with segment_ids and position_ids from the batch; see that both reach the model.",
        )
    return Check(name, f"by {apart:.2g} at most")


def check_attention(subject: Subject, model: Model) -> Check:
    """A word must make a difference to its neighbours."""
    name = "words see each other"
    ids = random_rows(subject, 1)
    changed = ids.copy()
    others = ordinary_tokens(subject)
    changed[0, 2] = others[(np.searchsorted(others, ids[0, 2]) + len(others) // 2) % len(others)]
    before, after = hidden_states(model, ids), hidden_states(model, changed)
    neighbour = np.abs(before - after)[0].max(-1)[[1, 3]].max()
    if neighbour < VISIBLE:
        return failed(
            name,
            "No word influences another.",
            f"With another word at place 2 its neighbours change by {neighbour:.1g}.",
            "attention gives zeros, or sees only itself: its output weights are zero or everything is masked.",
            "Look at attention.output.weight and at the mask; train again from a fresh beginning.",
        )
    return Check(name, f"a neighbour changes by {neighbour:.2g}")


def _apart(one: np.ndarray, two: np.ndarray) -> float:
    """The largest difference, relative to the largest value."""
    return float(np.abs(one - two).max() / max(np.abs(one).max(), 1e-30))
