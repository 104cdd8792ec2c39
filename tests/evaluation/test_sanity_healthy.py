"""Healthy runs of different presets and recipes must pass all checks."""

import pytest

from glassbert.evaluation import SUITES
from tests.evaluation.subjects import subject, trained

pytestmark = pytest.mark.usefixtures("quick_runs")

RUNS = {
    "adamw": {},
    "muon, pre-norm, gated": {
        "optimizer": "muon", "norm_position": "pre", "feed_forward": "gated", "activation": "gelu",
        "num_hidden_layers": 4,
    },
    "modernbert": {
        "preset": "modernbert-base", "num_hidden_layers": 3, "local_window": 8, "optimizer": "adamw",
        "learning_rate": 3e-3,
    },
    "lion, dropout, whole words": {
        "optimizer": "lion", "learning_rate": 1e-3, "dropout": 0.1, "masking": "words", "num_hidden_layers": 2
    },
    "two questions, tied, small batches": {
        "objective": "mlm+0.5*sop", "tie_word_embeddings": True, "type_vocab_size": 2, "physical_batch": 4,
        "activation": "gelu",
    },
    "wide, constant rate, float64": {
        "hidden_size": 64, "intermediate_size": 128, "schedule": "constant", "precision": "float64"
    },
}  # fmt: skip


@pytest.mark.parametrize("changes", RUNS.values(), ids=RUNS.keys())
def test_a_healthy_run_passes_all_checks(corpus, tmp_path, changes):
    found = SUITES["sanity"](trained(corpus, tmp_path / "run", **changes))
    assert [str(finding) for finding in found.findings] == []
    assert found["checks passed"].value == 1
    assert sum(row[1] == "ok" for row in found.tables[0].rows) >= 20


def test_an_untrained_model_passes_all_checks():
    assert SUITES["sanity"](subject()).findings == []
