"""The arithmetic and the reports of the benchmarks; nothing is timed here."""

import importlib
import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import common, forecast, gpu, inference, long_context, profile, scaling, train_step
from benchmarks.batches import CLS, MASK, SEP, SPECIAL, masked_batches
from glassbert import MINI_BERT_CONFIG, PRESETS, BertConfig, ModernBertConfig
from glassbert.errors import ConfigError
from glassbert.models.flops import forward_flops, training_flops, visible_pairs
from glassbert.models.model import Model
from glassbert.ops import IGNORED

# ---- operation counts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 7, 12])
@pytest.mark.parametrize("window", [None, 1, 3, 6, 11, 50])
@pytest.mark.parametrize("causal", [False, True])
def test_visible_pairs_match_the_mask(length, window, causal):
    i, j = np.arange(length)[:, None], np.arange(length)[None]
    visible = np.ones((length, length), bool) if window is None else np.abs(i - j) <= window
    assert visible_pairs(length, window, causal) == (visible & (j <= i) if causal else visible).sum()


# Members with an attention of their own count further products (`more_flops`), which their own tests check.
PLAIN = [name for name, config in PRESETS.items() if config.attention == "self"]


@pytest.mark.parametrize("preset", PLAIN)
@pytest.mark.parametrize(("head", "labels"), [(None, 0), ("mlm", 0), ("token", 5), ("sequence", 3)])
def test_every_weight_matrix_is_counted_once_per_row(preset, head, labels):
    """Except for attention, the count is 2 · rows · size of each weight matrix in a product.

    After the attention of the last layer, the rows are those that the head reads.
    """
    config = PRESETS[preset].replace(vocab_size=97, pad_token_id=0, hidden_size=48, num_attention_heads=4)
    config = config.replace(num_hidden_layers=3, intermediate_size=56, max_position_embeddings=16)
    batch, length, scored = 2, 10, 7
    model = Model(config, head, labels, engine="numpy", initialize=False)
    expected = 0
    read = {"mlm": scored, "sequence": batch if config.classifier_pooling == "cls" else batch * length}
    tables = ("embeddings.token", "embeddings.position", "positions.")
    for name, shape in model.layout.shapes.items():
        if len(shape) != 2 or name.startswith(tables) or (name.startswith("pooler") and head is None):
            continue
        rows = batch * length
        if name.startswith("layers."):
            group = int(name.split(".")[1])
            rows *= sum(config.group_of(i) == group for i in range(3))
            if config.group_of(2) == group and "qkv" not in name:
                rows += read.get(head, batch * length) - batch * length
        if head == "mlm" and name.startswith("head."):
            rows = scored
        if head == "sequence" and not name.startswith(("layers.", "embeddings.")):
            rows = batch
        expected += 2 * rows * int(np.prod(shape))
    if head == "mlm" and config.tie_word_embeddings:
        expected += 2 * scored * config.embedding_width * config.vocab_size
    flops = forward_flops(config, batch, length, head=head, num_labels=labels, scored_rows=scored)
    attention = flops.pop("attention.scores") + flops.pop("attention.context")
    assert sum(flops.values()) == expected
    pairs = sum(visible_pairs(length, config.window_of(i), config.causal) for i in range(3))
    assert attention == 2 * 2 * batch * pairs * config.hidden_size


def test_known_counts():
    mini = forward_flops(MINI_BERT_CONFIG, 32, 64, head="mlm", scored_rows=307)
    assert mini["ffn.up"] == 2 * (2 * 2048 + 307) * 192 * 768
    assert mini["attention.qkv"] == 3 * 2 * 2048 * 192 * 576
    assert mini["attention.scores"] == 3 * 2 * 32 * 64 * 64 * 192
    assert mini["head.decoder"] == 2 * 307 * 192 * 8192
    assert "head.transform" not in mini
    assert training_flops(MINI_BERT_CONFIG, 32, 64, scored_rows=307) == 3 * sum(mini.values())
    base = BertConfig.get_base_config()
    assert sum(forward_flops(base, 1, 128).values()) == pytest.approx(2 * 85e6 * 128, rel=0.05)


def test_local_layers_grow_linearly_and_global_ones_quadratically():
    local = ModernBertConfig.get_base_config().replace(global_attention_every=100, num_hidden_layers=2)
    config = ModernBertConfig.get_base_config().replace(num_hidden_layers=1)
    short, long = (forward_flops(config, 1, n)["attention.scores"] for n in (2048, 8192))
    assert long == 16 * short
    short, long = (forward_flops(local, 1, n)["attention.scores"] for n in (2048, 8192))
    assert long < 16 * short
    assert visible_pairs(8192, 64) < 8192 * 129


def test_all_tokens_are_scored_by_default():
    everything = forward_flops(MINI_BERT_CONFIG, 2, 8, head="mlm")
    assert (
        everything["head.decoder"] == forward_flops(MINI_BERT_CONFIG, 2, 8, head="mlm", scored_rows=16)["head.decoder"]
    )


# ---- batches ---------------------------------------------------------------------------------------------------------


def test_masked_batches_are_reproducible_and_text_like():
    first, again = (masked_batches(1000, 64, 50, 2, seed=3) for _ in range(2))
    assert all(np.array_equal(a.input_ids, b.input_ids) for a, b in zip(first, again, strict=True))
    ids, labels = first[0]
    assert ids.shape == labels.shape == (64, 50)
    assert (ids[:, 0] == CLS).all() and (ids[:, -1] == SEP).all()
    masked = labels != IGNORED
    assert masked.sum() == first[0].masked
    assert 0.12 < masked.mean() < 0.18
    assert 0.7 < (ids[masked] == MASK).mean() < 0.9
    assert labels[masked].min() >= SPECIAL and ids.max() < 1000
    counts = np.bincount(np.where(masked, labels, ids)[:, 1:-1].ravel(), minlength=1000)
    assert counts[SPECIAL] > 5 * counts[SPECIAL + 50] > 0


# ---- rounds, tables, JSON --------------------------------------------------------------------------------------------


def test_interleave_calls_all_in_every_round():
    order = []
    turns = {name: lambda name=name: order.append(name) or float(len(order)) for name in ("a", "b")}
    assert common.interleave(turns, 3, settle=0, control=None) == {"a": [1, 3, 5], "b": [2, 4, 6]}
    assert order == ["a", "b"] * 3


def test_ratio_is_the_median_over_rounds():
    spread = common.Spread.of_ratio([2.0, 30.0, 4.0], [1.0, 10.0, 1.0])
    assert (spread.median, spread.low, spread.high) == (3.0, 2.0, 4.0)


def test_contender_error_is_one_line():
    local = common.Local("benchmarks.train_step:Matmul", size=32)
    with pytest.raises(common.ContenderError, match="AttributeError"):
        local.call("no_such_method")
    assert local.call("memory") >= 0


# ---- programs --------------------------------------------------------------------------------------------------------


def without(monkeypatch, *modules):
    """Hide modules from `importlib.util.find_spec`."""
    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in modules else found(name))


@pytest.mark.parametrize(
    ("program", "options"),
    [
        ("train_step", []), ("train_step", ["--family", "roberta"]), ("inference", []), ("finetune", []),
        ("learning", ["corpus"]), ("quantize", []), ("gpu", ["--contenders", "eager"]),
    ],
)  # fmt: skip
def test_a_program_without_its_peer_says_what_to_install_before_it_measures(program, options, monkeypatch):
    without(monkeypatch, "torch")
    main = importlib.import_module(f"benchmarks.{program}").main
    with pytest.raises(SystemExit, match=r"this benchmark needs torch.*: pip install torch"):
        main(options)


@pytest.mark.parametrize("program", ["train_step", "inference", "profile", "scaling", "trainer", "long_context"])
def test_no_rounds_are_refused_in_a_sentence(program, capsys):
    with pytest.raises(SystemExit):
        importlib.import_module(f"benchmarks.{program}").main(["--rounds", "0"])
    assert "argument --rounds: must be a whole number of at least 1, got '0'" in capsys.readouterr().err


def test_a_program_ends_with_a_sentence_and_leaves_no_process():
    def fails():
        common.Worker("benchmarks.train_step:Matmul", size=32).call("no_such_method")

    with pytest.raises(SystemExit, match="AttributeError: 'Matmul' object has no attribute 'no_such_method'"):
        common.run_program(fails)
    for process in multiprocessing.active_children():
        process.join(30)
    assert not multiprocessing.active_children()


def test_errors_that_the_user_can_mend_have_no_traceback(tmp_path):
    def reads():
        (tmp_path / "sts-dev.csv").read_text()

    with pytest.raises(SystemExit, match=r"^there is no .*sts-dev.csv; --help says"):
        common.run_program(reads)
    with pytest.raises(common.ContenderError, match=r"^unknown preset") as raised:
        common.Local("tests.benchmarks.test_benchmarks:Refusing").call("run")
    assert raised.value.details == ""
    with pytest.raises(SystemExit) as ended:
        common.run_program(lambda: 3)
    assert ended.value.code == 3


def test_a_program_whose_reader_stops_ends_quietly():
    """`python -m benchmarks.family --table FOLDER | head -1` ended in a traceback."""
    code = (
        "from benchmarks.common import run_program as run; run(lambda: [print('row', flush=True) for _ in range(9999)])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=Path(common.__file__).parents[1],
    )
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait(60) == 1


class Refusing:
    def run(self):
        raise ConfigError("unknown preset 'none'")


def test_json_can_go_into_a_file_everywhere(monkeypatch, capsys):
    for program in ("profile", "quantize", "serve", "tokenizer", "vocabulary", "train_step", "scaling"):
        monkeypatch.setattr(sys, "argv", [program, "--help"])
        with pytest.raises(SystemExit):
            importlib.import_module(f"benchmarks.{program}").main()
        assert "--json [FILE]" in capsys.readouterr().out


def test_profile_leaves_bfloat16_out_where_there_is_none(monkeypatch, capsys):
    measured = []
    monkeypatch.setattr(profile.onednn, "why_not", lambda: "no such instructions")
    monkeypatch.setattr(profile, "measure", lambda *what: measured.append(what))
    monkeypatch.setattr(profile, "table_of", lambda *_: common.Table("", []))
    profile.main(["--preset", "mini", "--rounds", "1"])
    assert measured == [("mini", "float32", 1)]
    assert "without bfloat16: no such instructions" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("cores", "batch", "names", "note"),
    [
        (1, 32, [], "one core only"),
        (2, 32, ["1 process x 2 threads", "2 processes x 1 thread, MPI"], ""),
        (3, 32, ["1 process x 3 threads", "2 processes x 1 thread, MPI"], "3 processes would not share"),
        (64, 8, ["1 process x 64 threads", "8 processes x 1 thread, MPI"], "64 processes would not share"),
        (2, 7, ["1 process x 2 threads"], "no number up to 2 divides the batch of 7"),
    ],
)
def test_processes_share_the_batch_evenly_and_what_is_left_out_has_a_reason(cores, batch, names, note, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name, path: "mpirun")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    found, notes = scaling.contenders(cores, batch)
    assert list(found) == ["1 process x 1 thread", *names] and note in " ".join(notes) and bool(note) == bool(notes)
    monkeypatch.setattr("shutil.which", lambda name, path: None)
    found, notes = scaling.contenders(2, 32)
    assert list(found)[1:] == ["1 process x 2 threads"] and "pip install mpich mpi4py" in notes[0]


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads Linux's /proc")
def test_memory_of_this_process():
    before = common.reset_peak_memory()
    array = np.ones(64 * common.MIB // 8)
    assert common.peak_memory() >= before + 0.9 * array.nbytes
    assert common.current_memory() > 0


def print_and_read(table, report, capsys):
    """Print table and report; return the parsed last line of the output."""
    assert all(row is None or len(row) == len(table.columns) for row in table.rows)
    assert table.title in table.plain()
    table.show()
    common.show_json(report)
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.parametrize("preset", train_step.WORKLOADS)
def test_train_step_report(preset, capsys):
    workload = train_step.WORKLOADS[preset]
    times = {"matmul": [2e11] * 3, "ours": [0.2, 0.4, 0.2], "hf": [0.6, 1.2, 0.8], "sparse": [0.3, 0.6, 0.3]}
    report = train_step.summarise(workload, 300.2, times, dict.fromkeys(train_step.NAMES, 2**28), {})
    flops = training_flops(workload.config, workload.batch, workload.length, scored_rows=300)
    read = print_and_read(train_step.table_of([report], "a machine"), report, capsys)
    assert read["preset"] == preset
    assert read["ratio_hf"] == pytest.approx(3.0)
    assert read["ratio_sparse"] == pytest.approx(1.5)
    assert read["matmul_fraction"] == pytest.approx(flops / 0.2 / 2e11, rel=1e-3)
    assert read["tokens_per_second"] == pytest.approx(workload.batch * workload.length / 0.2, rel=1e-3)
    assert read["peak_memory_mib"]["hf"] == 256


def test_train_step_report_with_bfloat16(capsys):
    """Peers in bfloat16 are compared with ours in bfloat16, and stock float32 with both; one may be missing."""
    workload = train_step.WORKLOADS["mini"]
    times = {
        "matmul": [2e11] * 2, "matmul16": [4e11] * 2, "ours": [0.2, 0.2], "hf": [0.6, 0.6], "sparse": [0.3, 0.3],
        "ours16": [0.1, 0.1], "sparse16": [0.18, 0.18],
    }  # fmt: skip
    report = train_step.summarise(workload, 300, times, dict.fromkeys(times, 2**28), {})
    table = train_step.table_of([report], "a machine")
    read = print_and_read(table, report, capsys)
    assert read["ratio_hf"] == pytest.approx(3.0) and read["ratio_hf_bfloat16"] == pytest.approx(6.0)
    assert read["ratio_sparse16"] == pytest.approx(1.8) and "ratio_compiled16" not in read
    flops = training_flops(workload.config, workload.batch, workload.length, scored_rows=300)
    assert read["matmul_fraction_bfloat16"] == pytest.approx(flops / 0.1 / 4e11, rel=1e-3)
    assert "6.00 x stock" in table.plain() and "autocast, compiled" not in table.plain()


def test_profile_rows_add_up(capsys):
    """Time inside another clock counts once, and what no clock covers is a row of its own."""
    clock = profile.Clock()
    with clock.timed("outer"):
        sum(range(200_000))
        with clock.timed("inner"):
            sum(range(200_000))
    clock.switch()
    assert set(clock.seconds) == {"outer", "inner", profile.REST}
    assert clock.running == [profile.REST] and all(value >= 0 for value in clock.seconds.values())
    assert clock.seconds["inner"] > 0 and clock.seconds["outer"] > 0
    rows = [
        {"name": "linear maps", "seconds": 0.03, "gflops": 150.0, "share": 0.75, "of_product": 0.75},
        {"name": profile.REST, "seconds": 0.01, "gflops": None, "share": 0.25, "of_product": None},
    ]
    report = {
        "preset": "mini", "precision": "bfloat16", "rows": rows, "seconds": 0.04, "seconds_without_clocks": 0.04,
        "seconds_all_threads": 0.025, "threads": 2, "product_gflops": 200.0, "gflop": 4.5, "of_product": 0.56,
        "rounds": 3,
    }  # fmt: skip
    text = profile.table_of(report, "a machine").plain()
    assert "80% of the ideal" in text and "40.00" in text and "75.0%" in text


def test_inference_report(capsys):
    batches = {name: [inference.pad([[2, 7, 3], [2, 3]])] for name in ("full", "mixed")}
    times = {name: {"ours": [1.0, 1.0], "torch": [1.5, 1.7], "onnx": [1.1, 1.1]} for name in batches}
    times["mixed"]["onnx"] = [2.0, 2.0]
    memory = dict.fromkeys(inference.NAMES, 2**20)
    report = inference.summarise(batches, times, {"torch": 1e-7, "onnx": 2e-7}, memory, {})
    read = print_and_read(inference.table_of(report, "somewhere", "a machine"), report, capsys)
    assert read["workloads"]["full"]["ratio_torch"] == pytest.approx(1.6)
    assert read["workloads"]["mixed"]["ratio_onnx"] == pytest.approx(2.0)
    assert read["ratio_onnx"] == pytest.approx(1.1)
    assert read["workloads"]["mixed"]["padding"] == pytest.approx(1 / 6, rel=1e-3)
    for part in times.values():
        part.update(ours16=[0.5, 0.5], torch16=[0.8, 0.8])
    differences = {"torch": 1e-7, "onnx": 2e-7, "ours16": 1e-3, "torch16": 2e-3}
    report = inference.summarise(batches, times, differences, memory, {})
    report["stsb_spearman"] = {"ours": 0.8672, "ours16": 0.8671}
    text = inference.table_of(report, "somewhere", "a machine").plain()
    assert report["ratio_torch16"] == pytest.approx(1.6) and report["ratio_torch"] == pytest.approx(1.6)
    assert "0.8671 (GlassBERT (NumPy), bfloat16)" in text and "agree within 2.0e-07" in text


def test_docstring_sentences():
    sentences = [sentence for sentence, _ in zip(inference.docstring_sentences(), range(50), strict=False)]
    assert len(sentences) == 50
    assert all(sentence[0].isupper() and sentence[-1] in ".?!" and "\n" not in sentence for sentence in sentences)


def test_long_context_report(capsys):
    times = {f"{what} {n}": [n / 1e4] * 3 for what in ("forward", "forward_backward") for n in (2048, 8192)}
    one = {"seconds": 1.0, "tokens_per_second": 8192.0, "extra_memory_gb": 2.0, "extra_memory_gib": 1.9}
    report = {
        "length": 8192,
        "passes": dict.fromkeys(long_context.PASSES, one),
        "local_attention": long_context.growth_of([2048, 8192], times),
    }
    read = print_and_read(long_context.table_of(report, "a machine"), report, capsys)
    assert read["local_attention"]["forward_backward"]["ratio"] == pytest.approx(4.0)


@pytest.mark.parametrize("name", gpu.WORKLOADS)
def test_gpu_report(name, capsys):
    workload = gpu.WORKLOADS[name].small()
    times = {"matmul mlx": [1e12] * 3, "matmul torch": [2e12] * 3, "mlx": [0.1] * 3, "eager": [0.3, 0.2, 0.25]}
    facts = {name: {"seconds": 0.1, "preparing_seconds": 3.0} for name in ("mlx", "eager")}
    memory = dict.fromkeys(facts, 2.0**30)
    report = gpu.summarise(workload, times, memory, facts, {"compiled": "RuntimeError: no compiler"})
    read = print_and_read(gpu.table_of([report], "a machine"), report, capsys)
    assert read["ratio_eager"] == pytest.approx(2.5)
    share = read["tflop_per_step"] * 1e12 / 0.1 / 2e12
    assert read["contenders"]["mlx"]["share_of_matmul"] == pytest.approx(share, rel=1e-2)
    assert "no compiler" in gpu.table_of([report], "a machine").plain()


def test_forecast_accuracy(tmp_path, capsys):
    progress = np.linspace(0.05, 1, 20)
    for name, slope, last in (("usual", -0.15, 1.0), ("steep", -0.6, 1.0), ("unfinished", -0.1, 0.5)):
        (tmp_path / name).mkdir()
        lines = [{"kind": "evaluation", "progress": p, "loss": 3 * p**slope} for p in progress if p <= last]
        (tmp_path / name / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = forecast.measure([tmp_path / "usual"])
    assert found["runs"] == 1 and all(row["inside"] == 1 and abs(row["error"]) < 0.01 for row in found["moments"])
    found = forecast.measure(sorted(tmp_path.iterdir()))
    assert found["runs"] == 2 and found["moments"][0]["inside"] == 0.5  # so steep a slope is not predicted so early
    forecast.main([str(tmp_path / "usual"), "--json"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["runs"] == 1
    with pytest.raises(SystemExit, match="none of the 1 folders"):
        forecast.measure([tmp_path / "unfinished"])


def test_plans_of_the_reference_runs(capsys, monkeypatch, tmp_path):
    from benchmarks import plan

    monkeypatch.setenv("GLASSBERT_DATA", str(tmp_path))
    plan.main(["--table", "--json"])
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["runs"]
    assert len(rows) > 40 and sum(row["inside"] for row in rows) / len(rows) > 0.85
    with pytest.raises(SystemExit):
        plan.main([])


def test_a_run_is_compared_with_its_plan(corpus, monkeypatch):
    from benchmarks import plan

    monkeypatch.setattr("glassbert.training.planning.timing.SECONDS", 0.0)
    monkeypatch.setattr("glassbert.training.building.measure_matmul_rate", lambda *rest, **options: 100.0)
    small = {"size": 1, "steps": 14, "batch": 4, "length": 16, "evaluation_rows": 16, "final_evaluation_rows": 16}
    (row,) = plan.measure(str(corpus), [small], threads=1)
    assert row["tokens"] == [14 * 64, 14 * 64] and row["first_steps"] > 0
    assert row["inside"] == (row["expected"][1] <= row["loss"] <= row["expected"][2])
