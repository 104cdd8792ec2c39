"""The command `glassbert evaluate`."""

import dataclasses
import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from glassbert.cli import main
from glassbert.evaluation import MEASURES, SUITES
from tests.training.toy import make_corpus, make_trainer


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("glassbert.training.building.measure_matmul_rate", lambda *rest, **options: 100.0)
        patch.setattr("glassbert.training.finishing.write_report", lambda run, result=None: None)
        make_trainer(make_corpus(folder / "corpus"), folder / "toy", steps=40, evaluate_every=10).train()
    return folder / "toy"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    before = dict(SUITES)
    yield
    MEASURES.clear()
    SUITES.clear()
    SUITES.update(before)


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", *(str(argument) for argument in arguments)])
    return ended.value.code or 0


def test_an_interrupted_evaluation_says_how_to_continue_and_does(run_folder, tmp_path, capsys):
    def interrupted(*given):
        raise KeyboardInterrupt

    command = (run_folder, "--quick", "--only", "sanity,language", "--engine", "numpy", "-o", tmp_path / "report")
    whole = SUITES["language"]
    SUITES["language"] = dataclasses.replace(whole, function=interrupted)
    assert run(*command) == 130
    assert "the same command with --resume continues" in " ".join(capsys.readouterr().err.split())

    def again(*given):
        raise AssertionError("this suite was finished")

    again.__module__ = SUITES["sanity"].function.__module__
    SUITES.update(language=whole, sanity=dataclasses.replace(SUITES["sanity"], function=again))
    assert run(*command, "--resume") == 0


def test_a_run_is_evaluated_on_its_own_corpus(run_folder, capsys):
    assert run(run_folder, "--quick", "--only", "sanity,language,grammar", "--engine", "numpy") == 0
    shown = capsys.readouterr()
    assert "Language modelling" in shown.out and "perplexity" in shown.out and "checks passed" in shown.out
    assert "left out: there are no minimal pairs" in " ".join(shown.out.split())
    lines = shown.err.splitlines()  # without a terminal there is one line per suite instead of a bar
    assert [line.split()[3].strip(",") for line in lines] == ["Sanity", "Language", "Grammar"]
    page = (run_folder / "evaluation" / "evaluation.html").read_text(encoding="utf-8")
    assert "Evaluation of toy" in page and "http" not in page.split("</style>")[1].replace("www.w3.org", "")[:200]
    written = json.loads((run_folder / "evaluation" / "evaluation.json").read_text(encoding="utf-8"))
    assert written["subjects"][0]["tokens_seen"] == 40 * 8 * 16
    assert written["results"]["toy"]["language"]["measures"][0]["name"] == "masked words right"


def test_two_models_and_an_untrained_one_are_compared(run_folder, tmp_path, capsys):
    given = (run_folder, run_folder / "model", "--untrained", "--quick", "--only", "language", "--dev",
             run_folder.parent / "corpus", "-o", tmp_path, "--json", "--engine", "numpy")  # fmt: skip
    assert run(*given) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["results"]) == ["toy", "toy (2)", "toy untrained"]
    rows = {(row["subject"], row["name"]): row for row in found["comparison"]}
    assert rows["toy (2)", "cross-entropy"]["difference"] == 0
    assert rows["toy untrained", "cross-entropy"]["verdict"] == "worse"


def test_finished_suites_are_kept_and_used_by_resume(run_folder, tmp_path, capsys):
    given = (run_folder, "--quick", "--only", "language,cost", "-o", tmp_path, "--json", "--engine", "numpy")
    assert run(*given) == 0
    first = json.loads(capsys.readouterr().out)
    assert run(*given, "--resume") == 0
    shown = capsys.readouterr()
    again = json.loads(shown.out)
    assert shown.err.count("finished before") == 2
    assert again["results"] == first["results"]  # the times too, so nothing was measured again
    assert run(*given) == 0
    assert "finished before" not in capsys.readouterr().err


def test_user_suites_are_loaded_from_a_file(run_folder, tmp_path, capsys):
    (tmp_path / "mine.py").write_text(
        "from glassbert.evaluation import measure\n\n"
        "@measure('width')\ndef width(subject, options):\n    return subject.model.config.hidden_size\n"
    )
    given = ("--with", tmp_path / "mine.py", "--only", "own", "-o", tmp_path / "out", "--engine", "numpy")
    assert run(run_folder, *given) == 0
    assert "Your own measures" in capsys.readouterr().out
    (tmp_path / "broken.py").write_text("raise RuntimeError('no')")
    assert run(run_folder, "--with", tmp_path / "broken.py") == 2
    assert "broken.py, line 1, raised RuntimeError: no" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nowhere/at/all",), "there is no file or folder"),
        (("RUN", "--only", "poetry"), "there is no suite 'poetry'"),
        (("RUN", "--data", "nowhere"), "--data: there is no file or folder nowhere"),
        (("RUN", "--with", "nowhere.py"), "--with: there is no file nowhere.py"),
        (("RUN", "--quick", "--thorough"), "--quick and --thorough exclude each other"),
    ],
)
def test_wrong_arguments_give_an_error_message(run_folder, arguments, sentence, capsys):
    assert run(*(run_folder if word == "RUN" else word for word in arguments)) == 2
    assert sentence in capsys.readouterr().err


def test_a_sanity_problem_gives_exit_code_1(run_folder, tmp_path, capsys, monkeypatch):
    import shutil

    broken = tmp_path / "broken"
    shutil.copytree(run_folder, broken)
    weights = load_file(broken / "model" / "model.safetensors")
    weights["embeddings.token"] = np.array(weights["embeddings.token"])
    weights["embeddings.token"][9] = np.nan
    save_file(weights, broken / "model" / "model.safetensors")
    assert run(broken, "--only", "sanity", "--engine", "numpy") == 2
    assert "model.safetensors" in capsys.readouterr().err
    monkeypatch.setenv("GLASSBERT_VERIFY", "0")  # as --no-verify
    assert run(broken, "--only", "sanity", "--engine", "numpy") == 1
    assert "A weight is not finite." in capsys.readouterr().out
