"""Training dynamics: gradient flow, the log of a run, and its saved steps."""

import json

import numpy as np
import pytest

from glassbert import load
from glassbert.errors import InputError, TrainingError
from glassbert.insight import (
    evolution,
    gradient_flow,
    logged_flow,
    masked_batches,
    open_model,
    read_rows,
    untrained,
    weight_change,
)
from glassbert.insight.dynamics import saved_steps
from glassbert.training.run_folder import RunFolder
from tests.insight.specimen import sentences, specimen
from tests.training.toy import make_corpus, make_trainer


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("glassbert.training.building.measure_matmul_rate", lambda *rest, **options: 100.0)
        patch.setattr("glassbert.training.finishing.write_report", lambda run, result=None: None)
        make_trainer(make_corpus(folder / "corpus"), folder / "run", steps=40, snapshots=4).train()
    return folder / "run"


def test_gradient_flow_is_the_norm_of_the_gradients():
    loaded = specimen()
    batches = masked_batches(loaded, sentences(20))
    assert len(batches) == 2
    found = gradient_flow(loaded.model, batches)
    squares, streams = {}, {}
    for batch in batches:
        _, cache = loaded.model.loss(**batch, trace=True)
        for name, gradient in loaded.model.backward(cache).items():
            place = ".".join(name.split(".")[:2]) if name.startswith("layers") else name.split(".")[0]
            squares[place] = squares.get(place, 0) + (gradient**2).sum()
        for place in ("embeddings", "layers.0", "layers.1"):
            streams[place] = streams.get(place, 0) + (cache[f"{place}.d_output"] ** 2).sum()
    assert found.parameters == pytest.approx({k: np.sqrt(v / len(batches)) for k, v in squares.items()})
    assert found.stream == pytest.approx({k: np.sqrt(v / len(batches)) for k, v in streams.items()})
    assert found.loss == pytest.approx(np.mean([float(loaded.model.loss(**batch)[0]) for batch in batches]))


def test_gradient_flow_needs_a_batch():
    with pytest.raises(InputError, match="no batches"):
        gradient_flow(specimen().model, [])


def write_log(folder, inside):
    folder.mkdir(exist_ok=True)
    (folder / "settings.json").write_text(json.dumps({"settings": {}}))
    lines = [{"kind": "inside", "step": step, "seconds": 1.0, **values} for step, values in inside]
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return RunFolder(folder)


def inside_line(value):
    return {
        "gradient_norm": {"embeddings": value, "layers.0": 2 * value},
        "update_ratio": {"embeddings": 0.1, "layers.0": 0.2},
        "attention_entropy": {"layers.0": 0.9},
    }


def test_the_log_is_read_as_tables(tmp_path):
    run = write_log(tmp_path / "run", [(3, inside_line(1.0)), (9, inside_line(2.0)), (12, inside_line("nan"))])
    found = logged_flow(run)
    assert found.steps.tolist() == [3, 9]  # the line with a gradient that is not finite is skipped
    assert found.places == ["embeddings", "layers.0"] and found.layers == ["layers.0"]
    assert found.gradient_norms.tolist() == [[1, 2], [2, 4]]
    assert found.update_ratios.tolist() == [[0.1, 0.2]] * 2
    assert found.attention_entropies.tolist() == [[0.9]] * 2


def test_a_log_with_too_few_lines_is_an_error(tmp_path):
    with pytest.raises(TrainingError, match="1 lines of kind 'inside'"):
        logged_flow(write_log(tmp_path / "run", [(3, inside_line(1.0))]))


def test_saved_steps_and_initial_weights(run):
    saved = saved_steps(RunFolder(run))
    assert [step for step, path in saved.items() if path.parent.name == "snapshots"] == [0, 5, 10, 20]
    assert saved[40] == run / "model"
    first, again = load(saved[0]), untrained(open_model(run)).model
    for name, values in first.parameters.items():
        assert (values == again.parameters[name]).all(), name


def test_evolution_starts_at_no_change_and_ends_at_full_likeness(run):
    loaded = open_model(run)
    rows = read_rows(loaded, sentences(30))
    found = evolution(loaded, rows)
    assert found.steps[0] == 0 and found.steps[-1] == 40 and len(found.steps) == len(saved_steps(RunFolder(run)))
    assert (found.change[0] == 0).all() and (found.change[1:, 0] > 0).all()
    assert found.likeness[-1] == pytest.approx(np.ones(len(found.layers)))
    assert (found.likeness[0] < 1).all()
    embeddings = [load(run / "snapshots" / f"step-{step:08d}").parameters for step in (0, 10)]
    moved = sum(
        np.square(embeddings[1][n] - embeddings[0][n]).sum() for n in embeddings[0] if n.startswith("embeddings")
    )
    size = sum(np.square(embeddings[0][n]).sum() for n in embeddings[0] if n.startswith("embeddings"))
    place = found.places.index("embeddings")
    assert found.change[list(found.steps).index(10), place] == pytest.approx(np.sqrt(moved / size), rel=1e-5)


def test_weights_that_were_zero_have_no_relative_change():
    model = specimen().model
    beginning = {name: values * (not name.startswith("head")) for name, values in model.parameters.items()}
    assert weight_change(beginning, model) == {"embeddings": 0, "layers.0": 0, "layers.1": 0, "final_norm": 0}


def test_evolution_needs_a_run(run):
    with pytest.raises(TrainingError, match="no run"):
        evolution(specimen(), [])
    assert open_model(run / "model").run is None
