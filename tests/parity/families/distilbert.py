"""DistilBERT. Its config has other names for the sizes."""

from tests.parity.families.members import SWEEP, Case, member
from tests.parity.families.sweep import RAGGED

NAMES = {
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
}


def renamed(case: Case) -> Case:
    changes, lengths = case
    return {NAMES.get(name, name): value for name, value in changes.items()}, lengths


CASES = {
    **{name: renamed(case) for name, case in SWEEP.items()},
    "relu": ({"activation": "relu", "pad_token_id": 3}, RAGGED),
}
member("distilbert", "DistilBert", cases=CASES, names=NAMES, presets={"distilbert-base": "mlm"})
