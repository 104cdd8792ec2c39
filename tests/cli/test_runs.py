"""`glassbert runs`, `report` and `embed`, and the commands that a run proposes at its end."""

import csv
import json
import shlex

import numpy as np
import pytest

from glassbert.cli import main
from glassbert.evaluation import evaluate
from tests.finetuning.toy import make_model, write_reviews
from tests.training.toy import SETTINGS, make_corpus

WAVE = "step,value [€]\n" + "\n".join(f"{n},{20 + 4 * np.sin(n):.3f}" for n in range(120))
MACHINE = ("--engine", "numpy", "--threads", 1)


def glassbert(*arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return ended.value.code or 0


def flags(**changes):
    return [word for name, value in {**SETTINGS, **changes}.items() for word in ("--" + name.replace("_", "-"), value)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a run of every kind, in folders whose names the shell would split."""
    folder = tmp_path_factory.mktemp("all kinds")
    patch = pytest.MonkeyPatch()
    patch.setattr("glassbert.training.building.measure_matmul_rate", lambda *rest, **options: 100.0)
    runs = folder / "my runs"
    corpus = make_corpus(folder / "corpus")
    assert glassbert("pretrain", "--corpus", corpus, "--run", runs / "own", *flags(batch=8)) == 0
    encoder, files = make_model(folder / "encoder"), write_reviews(folder, train=60)
    given = ("--model", encoder, "--train", files[0], "--dev", files[1], "--target", "verdict")
    few = ("--epochs", 1, "--seeds", 2, "--resamples", 20)
    assert glassbert("finetune", *given, "--run", runs / "reviews", *few, *MACHINE) == 0
    (folder / "wave.csv").write_text(WAVE, encoding="utf-8")
    small = {
        "horizon": 4,
        "window": 12,
        "patch": 4,
        "period": 6,
        "hidden-size": 8,
        "num-hidden-layers": 1,
        "steps": 8,
        "seeds": 1,
    }
    given = ("--series", folder / "wave.csv", "--frame", "standard", "--shortcut", "learned", "--evaluate-every", 4)
    sizes = [word for name, value in small.items() for word in (f"--{name}", value)]
    assert glassbert("forecast", *given, *sizes, "--run", runs / "wave", *MACHINE) == 0
    evaluate([runs / "own"], ["embeddings"], command="glassbert evaluate runs/own").write(runs / "own" / "evaluation")
    yield folder
    patch.undo()


def test_runs_of_every_kind_are_listed(place, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    runs = place / "my runs"
    assert glassbert("runs", runs, "--json") == 0
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    kinds = {"own": "pretraining", "reviews": "fine-tuning", "wave": "forecast", "own/evaluation": "evaluation"}
    assert {name: one["kind"] for name, one in found.items()} == kinds
    assert all(one["state"] == "finished" for one in found.values())
    assert 0 <= found["reviews"]["score"] <= 1 and found["reviews"]["seeds"] == 2 and found["wave"]["mase"] > 0
    assert found["own"]["steps"] == 12 and found["own"]["held_out_loss"] > 0
    assert glassbert("runs", runs) == 0
    shown = capsys.readouterr().out
    for title in ("Pretraining", "Fine-tuning", "Forecasts", "Evaluations"):
        assert title in shown
    assert glassbert("runs", runs, "-o", place / "runs.html") == 0
    assert "Comparison of runs" in (place / "runs.html").read_text()


def test_a_damaged_run_hides_no_other(place, tmp_path, capsys):
    for name, content in (
        ("one", "{"),
        ("two", "[]"),
        ("three", '{"settings": 3}'),
        ("four", '{"kind": "finetuning"}'),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "settings.json").write_text(content)
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(place / "my runs" / "own")
    assert glassbert("runs", tmp_path, "--json") == 0
    found = {one["name"]: one["state"] for one in json.loads(capsys.readouterr().out)}
    assert found["link"] == "finished" and found["four"] == "damaged" and "other" not in found
    assert glassbert("runs", tmp_path) == 0


def test_a_report_is_written_again(place, capsys):
    for name in ("own", "reviews"):
        page = place / "my runs" / name / "report.html"
        before = page.read_text()
        page.unlink()
        assert glassbert("report", place / "my runs" / name, "--json") == 0
        assert json.loads(capsys.readouterr().out)["report"] == str(page)
        after = page.read_text()
        assert "<svg" in after and abs(len(after) - len(before)) < 0.2 * len(before)
    assert "over 2 seeds" in after


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wave", "written when it ends"),
        ("own/evaluation", "start it again: glassbert evaluate runs/own"),
        ("nowhere", "there is no run"),
        ("..", "is not a run"),
    ],
)
def test_reports_that_cannot_be_written_again(place, name, message, capsys):
    assert glassbert("report", place / "my runs" / name) == 2
    assert message in " ".join(capsys.readouterr().err.split())


# ---- embed -----------------------------------------------------------------------------------------------------------


def test_vectors_of_a_file(tmp_path, capsys):
    texts = ["A king ruled the land.", "A queen, so they say, ruled it.", "The [bold]engine[/bold] is “broken”."]
    (tmp_path / "lines.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    with open(tmp_path / "table.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["id", "review"], *enumerate(texts)])
    assert glassbert("embed", tmp_path / "lines.txt", "-o", tmp_path / "a.npy", "--engine", "numpy", "--json") == 0
    assert json.loads(capsys.readouterr().out)["dimensions"] == 192
    vectors = np.load(tmp_path / "a.npy", allow_pickle=False)
    assert vectors.shape == (3, 192) and vectors.dtype == np.float32
    assert np.allclose((vectors**2).sum(1), 1, atol=1e-5) and vectors[0] @ vectors[1] > vectors[0] @ vectors[2]
    for name in ("b.csv", "b.tsv", "b.jsonl", "b.parquet"):
        given = ("embed", tmp_path / "table.csv", "--text", "review", "-o", tmp_path / name, "--engine", "numpy")
        assert glassbert(*given) == 0
        assert np.array_equal(read_vectors(tmp_path / name, texts), vectors), name


def test_vectors_of_a_file_as_people_have_them(tmp_path):
    (tmp_path / "table.csv").write_bytes("id;Beschreibung\n1;schön\n2;gut; so\n2;süß\n".encode("cp1252"))
    given = ("embed", tmp_path / "table.csv", "--text", "Beschreibung", "-o", tmp_path / "a.npy", "--engine", "numpy")
    assert glassbert(*given) == 2  # a row of three cells
    assert glassbert(*given, "--ragged", "skip") == 0
    assert len(np.load(tmp_path / "a.npy", allow_pickle=False)) == 2


def read_vectors(path, texts):
    if path.suffix == ".parquet":
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(path).to_pydict()
        assert table["text"] == texts
        return np.array(table["vector"], np.float32)
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        assert [row["text"] for row in rows] == texts
        return np.array([row["vector"] for row in rows], np.float32)
    with open(path, newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ",")
    assert header[:2] == ["text", "v0"] and [row[0] for row in rows] == texts
    return np.array([row[1:] for row in rows], np.float32)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere.txt", "-o", "v.npy"), "there is no file nowhere.txt"),
        (("x.txt", "-o", "v.xls"), "unknown file extension; use one of .npy, .csv"),
        (("x.csv", "-o", "v.npy"), "--text"),
        (("x.txt", "-o", "v.npy", "--model", "nothing"), "there is no folder 'nothing'"),
        (("empty.txt", "-o", "v.npy"), "empty.txt is empty"),
    ],
)
def test_errors_of_embed(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.txt").write_text("a text\n")
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    (tmp_path / "empty.txt").write_text("\n\n")
    assert glassbert("embed", *arguments) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "v.npy").exists()


def test_vectors_of_a_run_and_of_a_forecaster(place, tmp_path, capsys):
    (tmp_path / "x.txt").write_text("a red bird sings\n")
    given = ("embed", tmp_path / "x.txt", "-o", tmp_path / "v.npy", "--model")
    assert glassbert(*given, place / "my runs" / "reviews") == 0
    assert glassbert(*given, place / "my runs" / "wave") == 2
    capsys.readouterr()


# ---- what runs propose at their end ----------------------------------------------------------------------------------


def proposed(shown):
    """The command after `Try`, split as a shell does."""
    (line,) = [line for line in shown.splitlines() if line.startswith("Try")]
    return shlex.split(line.removeprefix("Try"))


ROWS = [
    {"a": f"{n} {word} birds' “song”; $HOME", "b": f'a {word} "king" `x`', "n": n, "y": "yes" if n % 2 else "no"}
    for n, word in enumerate(["red", "old", "small", "green"] * 15)
]


@pytest.mark.parametrize(
    "columns", [("--text", "a"), ("--text", "a", "--pair", "b"), ("--template", "auto")], ids=["text", "pair", "table"]
)
def test_the_line_to_try_works_when_it_is_pasted(place, columns, tmp_path, capsys):
    with open(tmp_path / "rows.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(ROWS[0]))
        table.writeheader()
        table.writerows(ROWS)
    run = tmp_path / "it's a run"
    given = ("--model", place / "encoder", "--train", tmp_path / "rows.csv", "--target", "y", *columns, "--run", run)
    few = ("--epochs", 1, "--no-report", "--no-baseline", "--resamples", 20)
    assert glassbert("finetune", *given, *few, *MACHINE) == 0
    command = proposed(capsys.readouterr().out)
    assert command[:3] == ["glassbert", "predict", str(run)]
    assert glassbert(*command[1:]) == 0
    assert "yes" in capsys.readouterr().out


def test_a_pretraining_proposes_what_its_model_can_do(place, tmp_path, capsys):
    assert glassbert("pretrain", "--corpus", place / "corpus", "--run", tmp_path / "a run", *flags(steps=2)) == 0
    assert glassbert(*proposed(capsys.readouterr().out)[1:]) == 0
    given = flags(preset="gpt2-mini", steps=2, sentence="the [MASK]")
    assert glassbert("pretrain", "--corpus", place / "corpus", "--run", tmp_path / "gpt", *given) == 0
    command = proposed(capsys.readouterr().out)
    assert command[1] == "generate" and glassbert(*command[1:], "--tokens", 3) == 0


def test_models_without_the_head_are_refused(place, capsys):
    assert glassbert("fill-mask", place / "my runs" / "reviews", "the [MASK] sings") == 2
    assert "predicts no words" in capsys.readouterr().err
    assert glassbert("predict", "A film to remember.") == 2
    assert "mini has a head of type mlm, so it cannot predict; fine-tune it first" in capsys.readouterr().err
