"""MPNet. In transformers its padding id is always 1; the harness pads with 0, which so counts as text."""

from tests.parity.families.members import SWEEP, member
from tests.parity.families.sweep import RAGGED

member(
    "mpnet",
    "MPNet",
    small={"pad_token_id": 1},
    cases={**SWEEP, "eps": ({"layer_norm_eps": 1e-5}, RAGGED)},
    presets={"mpnet-base": "mlm"},
)
