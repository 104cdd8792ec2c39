"""RoBERTa and XLM-R. With pad_token_id 1 the padding of a batch (id 0) counts as text, and ids 1 have no position."""

from tests.parity.families.members import SWEEP, member
from tests.parity.families.sweep import RAGGED

CASES = {
    **SWEEP,
    "padding id 1": ({"pad_token_id": 1, "layer_norm_eps": 1e-12}, RAGGED),
    "two token types": ({"type_vocab_size": 2, "classifier_dropout": 0.3}, RAGGED),
}
member(
    "roberta", "Roberta", cases=CASES, small={"type_vocab_size": 1},
    presets={"roberta-base": "mlm", "roberta-large": "mlm"},
)  # fmt: skip
member(
    "xlm-roberta", "XLMRoberta", cases={name: CASES[name] for name in ("ragged", "padding id 1")},
    small={"type_vocab_size": 1}, presets={"xlm-roberta-base": "mlm"},
)  # fmt: skip
