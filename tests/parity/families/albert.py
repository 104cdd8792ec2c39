"""ALBERT: narrow and wide embeddings, and layers in one group, in some, in one each."""

from tests.parity.families.members import SWEEP, member
from tests.parity.families.sweep import RAGGED

member(
    "albert",
    "Albert",
    small={"embedding_size": 12, "num_hidden_layers": 3},
    cases={
        **SWEEP,
        "wide embeddings, relu": ({"embedding_size": 40, "hidden_act": "relu"}, RAGGED),
        "5 layers in 2 groups": ({"num_hidden_layers": 5, "num_hidden_groups": 2, "hidden_act": "gelu"}, RAGGED),
        "a group for each layer": ({"num_hidden_groups": 3, "layer_norm_eps": 1e-5, "pad_token_id": 4}, [4, 0, 7]),
    },
    pretraining="ForPreTraining",
    presets={name: "pretraining" for name in ("albert-base", "albert-large", "albert-xlarge", "albert-xxlarge")},
)
