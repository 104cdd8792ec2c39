"""`glassbert corpus report`: tables, HTML page, JSON and exit code."""

import io
import json

import pytest
from typer.testing import CliRunner

from glassbert.cli.corpus import app
from glassbert.text.corpus import write_corpus
from glassbert.text.fast import FastTokenizer
from tests.text.corpus.sample_corpora import prose


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpora")
    tokenizer = FastTokenizer.train(prose(200), vocab_size=220)
    write_corpus(folder / "good", tokenizer, prose(900), validation=0.2)
    write_corpus(folder / "copies", tokenizer, prose(30) * 20, validation=0.2)
    return folder


def run(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def test_a_healthy_corpus_gives_tables_and_exit_code_0(corpora):
    result = run(corpora / "good")
    assert result.exit_code == 0, result.output
    for words in ("Sources", "tokens per word", "unknown tokens", "ready for training"):
        assert words in result.output


def test_a_problem_gives_exit_code_1_and_a_remedy(corpora):
    result = run(corpora / "copies")
    assert result.exit_code == 1
    assert "problem: The corpus contains copies" in result.output and "--keep-duplicates" in result.output


def test_the_page_is_written_where_asked(corpora, tmp_path):
    result = run(corpora / "good", "-o", tmp_path / "reports" / "page.html")
    assert "page.html" in result.output.replace("\n", "")
    assert (tmp_path / "reports" / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_json_is_json_alone(corpora, tmp_path):
    result = run(corpora / "copies", "--json", "-o", tmp_path / "page.html")
    content = json.loads(result.stdout)
    assert content["verdict"] == "problem" and (tmp_path / "page.html").exists()
    assert content["measures"]["repeated_documents_share"] == pytest.approx(0.95)
    assert {finding["name"] for finding in content["findings"]} >= {"repeated_documents_share"}


def test_square_brackets_in_names_are_no_markup(corpora):
    assert "[UNK]" not in run(corpora / "good").output
    from rich.console import Console

    from glassbert.cli.corpus_report import show
    from glassbert.text.corpus import Corpus
    from glassbert.text.corpus.health import examine

    health = examine(Corpus.open(corpora / "good"))
    health.sources[0]["name"] = "[red]a[/nonsense]"
    console = Console(record=True, width=120, file=io.StringIO())
    show(console, health)
    assert "[red]a[/nonsense]" in console.export_text()


def test_a_folder_without_a_corpus(tmp_path):
    result = run(tmp_path)
    assert result.exit_code != 0 and "no corpus" in str(result.exception)
