"""Exercises of the objective: masking and cross-entropy."""

from __future__ import annotations

import numpy as np

from glassbert import ops
from glassbert.learn.exercise import Exercise, mistake, register
from glassbert.learn.solutions import training as solutions
from glassbert.learn.topics.blocks import ORDINARY, random
from glassbert.ops.losses import IGNORED
from glassbert.text.masking import Masker


def mask_cases():
    generator = np.random.default_rng(3)
    ids = generator.integers(5, 40, (3, 12))
    draws = generator.random(ids.shape)
    draws[0, :4] = 0.8, 0.9, 0.05, 0.95  # the borders, and each kind
    chosen = generator.random(ids.shape) < 0.4
    chosen[0, :4] = True
    return {
        ORDINARY: {
            "ids": ids,
            "chosen": chosen,
            "draws": draws,
            "random_ids": generator.integers(5, 40, ids.shape),
            "mask_id": 4,
        }
    }


def mask_tokens(ids, chosen, draws, random_ids, mask_id):
    """The rule of `Masker`, with given random numbers in place of its own."""
    masked = ids.copy()
    masked[chosen & (draws < 0.8)] = mask_id
    swapped = chosen & (draws >= 0.8) & (draws < 0.9)
    masked[swapped] = random_ids[swapped]
    return masked, np.where(chosen, ids, IGNORED)


register(
    Exercise(
        "mask_tokens",
        lesson=9,
        task=(
            "Mask the chosen tokens: [MASK] where draws < 0.8, a random token where 0.8 <= draws < 0.9, unchanged "
            "otherwise. Labels hold the original id of every chosen token, and -100 elsewhere."
        ),
        shapes={
            "ids": "[B, T], whole numbers",
            "chosen": "[B, T], True for targets",
            "draws": "[B, T], uniform in [0, 1)",
            "random_ids": "[B, T], a random token for each position",
            "mask_id": "the id of [MASK]",
        },
        outputs={"masked": "[B, T]", "labels": "[B, T]"},
        cases=mask_cases,
        reference=mask_tokens,
        solution=solutions.mask_tokens,
        hints=(
            "Tokens that are not chosen stay as they are, and their label is -100.",
            "np.where(condition, a, b) takes a where the condition holds. Conditions are joined with & and brackets.",
        ),
        mistakes=(
            mistake(
                "labels hold the masked ids, not the original ones",
                "These labels are the masked ids: the model would have to predict [MASK].",
                "The label is what was there before: take it from ids.",
                ("np.where(chosen, ids, IGNORED)", "np.where(chosen, masked, IGNORED)"),
            ),
            mistake(
                "every target becomes [MASK]",
                "Every chosen token has become [MASK]: 100 % instead of 80 / 10 / 10.",
                "Use the draws: below 0.8 [MASK], below 0.9 a random token, above unchanged.",
                ("chosen & (draws < 0.8)", "chosen"),
                ("chosen & (draws >= 0.8) & (draws < 0.9)", "chosen & False"),
            ),
            mistake(
                "no random tokens",
                "The tenth that should become a random token stays unchanged.",
                "Where 0.8 <= draws < 0.9, take random_ids.",
                ("chosen & (draws >= 0.8) & (draws < 0.9)", "chosen & False"),
            ),
            mistake(
                "a fifth becomes random",
                "All chosen tokens with draws of 0.8 and more have become random; a tenth must stay unchanged.",
                "Random only below 0.9. The rest stays, so that the model also learns to keep words.",
                ("(draws >= 0.8) & (draws < 0.9)", "(draws >= 0.8)"),
            ),
            mistake(
                "tokens that were not chosen are masked too",
                "Tokens that were not chosen have been masked.",
                "Every condition must also ask for chosen.",
                ("chosen & (draws < 0.8)", "(draws < 0.8)"),
                ("chosen & (draws >= 0.8)", "(draws >= 0.8)"),
            ),
            mistake(
                "only changed tokens have a label",
                "Chosen tokens that stayed unchanged have no label here.",
                "All chosen tokens are targets, also those that stay.",
                ("np.where(chosen, ids, IGNORED)", "np.where(masked != ids, ids, IGNORED)"),
            ),
            mistake(
                "every token has a label",
                "Every token has a label here: the loss would count tokens that can be seen.",
                "Tokens that are not chosen get -100.",
                ("np.where(chosen, ids, IGNORED)", "ids"),
            ),
            mistake(
                "0 instead of -100",
                "Tokens without a target have the label 0, which is the id of a token.",
                "-100 marks a token that the loss ignores.",
                ("np.where(chosen, ids, IGNORED)", "np.where(chosen, ids, 0)"),
            ),
        ),
        library=Masker.__call__,
    )
)


def loss_cases():
    return {
        ORDINARY: {"logits": random(6, 5), "targets": np.array([0, 4, IGNORED, 2, IGNORED, 2])},
        "every row has a target": {"logits": random(4, 5, seed=1), "targets": np.array([1, 1, 3, 0])},
        "large logits": {"logits": 900.0 * random(3, 4), "targets": np.array([0, IGNORED, 3])},
        "an unlikely target": {"logits": np.array([[0.0, -800.0, -1.0]]), "targets": np.array([1])},
        "no target at all": {"logits": random(2, 3), "targets": np.array([IGNORED, IGNORED])},
    }


register(
    Exercise(
        "cross_entropy",
        lesson=9,
        task=(
            "The mean of -log softmax(logits)[target] over the rows that have a target. Rows with -100 do not count; "
            "with no target at all the loss is 0. Logits may be large."
        ),
        shapes={"logits": "[N, V]", "targets": "[N], ids or -100"},
        outputs={"loss": "a number"},
        cases=loss_cases,
        reference=lambda logits, targets: ops.cross_entropy(logits, targets)[0],
        solution=solutions.cross_entropy,
        hints=(
            "-log softmax(z)[target] = log Σ exp(z) - z[target].",
            "Subtract the maximum of each row first: log of a probability that was rounded to 0 is infinite.",
            "Divide by the number of rows that have a target, at least 1.",
        ),
        mistakes=(
            mistake(
                "ignored rows count in the mean",
                "This is what comes out when the sum is divided by all rows, also those without a target.",
                "Count only the rows whose target is not -100.",
                ("max(valid.sum(), 1)", "len(targets)"),
            ),
            mistake(
                "the sum instead of the mean",
                "This is the sum of the losses, not their mean.",
                "Divide by the number of targets; else a larger batch has a larger gradient.",
                ("losses.sum() / count", "losses.sum()"),
            ),
            mistake(
                "-100 is used as an index",
                "Rows without a target count here: -100 was used as an index, or replaced by a class.",
                "Leave the rows out whose target is -100.",
                ("np.where(valid, log_total - picked, 0.0)", "log_total - picked"),
            ),
            mistake(
                "-100 is used as an index",
                "Rows without a target count here: -100 was used as an index, or replaced by a class.",
                "Leave the rows out whose target is -100.",
                ("np.where(valid, log_total - picked, 0.0)", "log_total - picked"),
                ("max(valid.sum(), 1)", "len(targets)"),
            ),
            mistake(
                "-100 is used as an index",
                "-100 was used as an index into the classes, and there is no such class.",
                "Leave the rows out whose target is -100.",
                ("np.where(valid, targets, 0)", "targets"),
            ),
            mistake(
                "the sign is wrong",
                "This is the negative of the loss.",
                "The logarithm of a probability is negative; the loss is its negative.",
                ("log_total - picked, 0.0", "picked - log_total, 0.0"),
            ),
            mistake(
                "the maximum is not subtracted",
                "This is right for small logits and not finite for large ones: exp overflows.",
                "Subtract the largest logit of each row first.",
                ("logits - logits.max(-1, keepdims=True)", "logits"),
            ),
            mistake(
                "the logarithm of a rounded probability",
                "This is right for small logits. For large ones a probability was rounded to 0, and log 0 is infinite.",
                "Do not form the probability: log Σ exp(z) - z[target] never takes the logarithm of 0.",
                ("log_total - picked, 0.0", "-np.log(np.exp(picked) / np.exp(z).sum(-1)), 0.0"),
            ),
            mistake(
                "divided by zero when there is no target",
                "This is right, but NaN for a batch without targets.",
                "Divide by at least 1.",
                ("max(valid.sum(), 1)", "valid.sum()"),
            ),
            mistake(
                "the probability instead of its logarithm",
                "This is the mean of 1 - p or p: the logarithm is missing.",
                "The loss of a row is -log p of its target.",
                ("log_total - picked, 0.0", "np.exp(picked - log_total), 0.0"),
            ),
            mistake(
                "logarithm in base 2",
                "This is the loss in bits: the logarithm has base 2.",
                "Use the natural logarithm, np.log.",
                ("losses.sum() / count", "losses.sum() / count / math.log(2)"),
            ),
        ),
        library=ops.cross_entropy,
        digits=8,
    )
)
