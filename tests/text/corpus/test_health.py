"""The corpus report: numbers compared with a slow count, and findings for every kind of bad corpus."""

import json
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from glassbert.errors import TextError
from glassbert.reports import figures
from glassbert.text.corpus import build_corpus, write_corpus
from glassbert.text.corpus.health import CHECKS, examine, health_page
from glassbert.text.corpus.health import repeats as repeats_module
from glassbert.text.corpus.health import scan as scan_module
from glassbert.text.corpus.health.measures import zipf_slope
from glassbert.text.corpus.health.repeats import Repeats
from glassbert.text.corpus.health.scan import Lengths
from glassbert.text.corpus.health.vocabulary_tables import VocabularyTables, character_kind
from glassbert.text.corpus.storage import SPLITS
from glassbert.text.fast import FastTokenizer, load_tokenizer
from tests.text.corpus.sample_corpora import binary, giant_line, pages, prose

RAW = {"clean": False, "exact_duplicates": False, "near_duplicates": None, "workers": 1}


@pytest.fixture(scope="module")
def tokenizer():
    signs = " ".join("".join(binary(20)))
    return FastTokenizer.train([*prose(200), *pages(5), signs], vocab_size=260)


def corpus_of(tmp_path, tokenizer, documents, **settings):
    return write_corpus(tmp_path / "corpus", tokenizer, documents, validation=0.1, **settings)


def names(health, *levels):
    return {finding.name for finding in health.findings if not levels or finding.level in levels}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    fitting = FastTokenizer.train(prose(300), vocab_size=220)
    return examine(write_corpus(tmp_path_factory.mktemp("c") / "corpus", fitting, prose(900), validation=0.2))


def test_prose_has_no_warnings(healthy):
    assert not names(healthy, "problem", "warning")
    of_little_text = {"tokens", "validation_share", "repeated_sentences_share", "never_seen_share"}
    assert names(healthy, "note") <= of_little_text


def test_numbers_equal_a_slow_count(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(scan_module, "BLOCK", 37)  # block borders are inside words, sentences and documents
    corpus = corpus_of(tmp_path, tokenizer, [*prose(12), giant_line(30), "zzz ☃ unknown 12345"])
    health = examine(corpus)
    tokens, sentences, documents, words, unknown = [], [], [], [], 0
    for name in SPLITS:
        for shard in corpus.split(name).shards:
            begin = first = 0
            for last in shard.document_ends.tolist():
                documents.append(0)
                for end in shard.sentence_ends[first:last].tolist():
                    pieces = [tokenizer.id_to_token(id) for id in shard.tokens[begin:end]]
                    tokens += pieces
                    sentences.append(len(pieces))
                    documents[-1] += len(pieces)
                    unknown += pieces.count("[UNK]")
                    text = re.sub(" ##", "", " ".join(pieces))
                    words += [word for word in text.split() if word.isalnum()]
                    begin = end
                first = last
    measures = health.measures
    assert measures["tokens"] == len(tokens) and measures["words"] == len(words)
    assert measures["unknown_share"] == pytest.approx(unknown / len(tokens)) and unknown
    assert {t: c for t, c in enumerate(health.token_counts) if c} == Counter(map(tokenizer.token_to_id, tokens))
    for lengths, expected in ((health.document_lengths, documents), (health.sentence_lengths, sentences)):
        assert dict(zip(*map(np.ndarray.tolist, lengths.values()), strict=True)) == Counter(expected)
        assert lengths.quantile(1.0) == max(expected) and lengths.mean() == pytest.approx(np.mean(expected))
        assert lengths.histogram()[0].sum() == pytest.approx(len(expected))
    letters = sum(sum(map(str.isalpha, piece.removeprefix("##"))) for piece in tokens if piece != "[UNK]")
    signs = sum(len(piece.removeprefix("##")) for piece in tokens if piece != "[UNK]")
    assert measures["letters_share"] == pytest.approx(letters / signs)
    assert health.top_tokens[0][1] == Counter(tokens).most_common(1)[0][1]


def test_a_digest_does_not_depend_on_the_blocks(tmp_path, tokenizer, monkeypatch):
    corpus = corpus_of(tmp_path, tokenizer, prose(20) * 2)
    whole = examine(corpus).measures
    monkeypatch.setattr(scan_module, "BLOCK", 50)
    assert examine(corpus).measures == whole
    monkeypatch.setattr(scan_module, "BLOCK", 7)  # shorter than a sentence
    parts = examine(corpus).measures
    assert whole["repeated_documents_share"] == 0.5
    assert all(parts[name] == whole[name] for name in whole if name.startswith(("repeated", "leaked", "unknown")))


def test_a_digest_depends_on_words_and_their_order(tmp_path, tokenizer, monkeypatch):
    texts = ["The dog saw the house.", "The house saw the dog.", "The dog saw the house.", "The dog saw a house."]
    shard = write_corpus(tmp_path / "corpus", tokenizer, texts, validation=0.0).split("train").shards[0]
    tables = VocabularyTables.of(tokenizer)

    def digests(block):
        monkeypatch.setattr(scan_module, "BLOCK", block)
        return scan_module.scan(shard, tables, np.zeros(260, np.int64), Lengths(), lambda tokens: None).digest.tolist()

    one, turned, same, other = digests(1 << 20)
    assert one == same and len({one, turned, other}) == 3
    assert digests(1) == digests(3) == [one, turned, same, other], "independent of block borders"


@pytest.fixture(scope="module")
def bad_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    sources = {"copies": prose(120) * 2, "binary": binary(40), "pages": pages(60), "giant": [giant_line(3000)]}
    for name, documents in sources.items():
        (folder / f"{name}.txt").write_text("\n\n".join(documents), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def bad(tmp_path_factory, tokenizer, bad_files):
    return examine(build_corpus([bad_files], tmp_path_factory.mktemp("raw") / "corpus", tokenizer, **RAW))


def test_a_bad_corpus_gives_a_finding_per_problem(bad):
    expected = {"repeated_documents_share", "noise_share", "markup_per_1000_tokens", "longest_sentence", "giant_share"}
    assert expected <= names(bad, "problem", "warning") and bad.verdict == "problem"
    found = {finding.name: finding for finding in bad.findings}
    assert "binary.txt" in found["noise_share"].evidence
    assert "pages.txt" in found["markup_per_1000_tokens"].evidence and "<" in found["markup_per_1000_tokens"].samples[0]
    assert "giant.txt" in found["giant_share"].evidence
    assert found["repeated_documents_share"].samples[0].startswith("2 × ")
    assert all(finding.remedy and re.search(r"\d", finding.evidence) for finding in bad.findings)


def test_source_names_are_relative_to_the_common_folder(bad):
    assert [name for name, _ in bad.largest_sources()][:1] == ["giant.txt"]
    assert {name for name, _ in bad.largest_sources()} == {"giant.txt", "copies.txt", "pages.txt", "binary.txt"}


def test_changes_by_the_build_are_reported(tmp_path, tokenizer, bad_files):
    health = examine(build_corpus([bad_files], tmp_path / "corpus", tokenizer, workers=1))
    reported = {"removed_duplicates_share", "removed_noise_share", "html_documents_share", "empty_sources"}
    assert reported <= names(health)
    gone = {"repeated_documents_share", "noise_share", "markup_per_1000_tokens"}
    assert not gone & names(health), "removed by the build"
    empty = next(finding for finding in health.findings if finding.name == "empty_sources")
    assert len(empty.samples) == 1 and "binary.txt" in empty.samples[0]


def test_a_tokenizer_that_does_not_fit(tmp_path):
    greek = FastTokenizer.train(["αβγδε ζηθικ λμνξο πρστυ φχψω"] * 3, vocab_size=55)
    health = examine(corpus_of(tmp_path, greek, prose(100)))
    assert {"unknown_share", "never_seen_share"} <= names(health)
    assert "[UNK]" in health.excerpts["unknown"][0]


def test_byte_level_tokenizers(tmp_path):
    from tokenizers import ByteLevelBPETokenizer

    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(prose(200), vocab_size=600, special_tokens=names, show_progress=False)
    trained.save(str(tmp_path / "tokenizer.json"))
    health = examine(
        corpus_of(tmp_path, load_tokenizer(tmp_path), [*prose(50), "<p>日本 é</p>", "日本 <br/> text here"])
    )
    measures = health.measures
    assert measures["damaged_share"] == 0, "part of a character is not damage"
    assert measures["words"] == pytest.approx(sum(len(text.split()) for text in prose(50)), abs=10)
    assert 1 < measures["tokens_per_word"] < 2 and measures["markup_per_1000_tokens"] > 0


def test_random_tokens_have_no_zipf_slope(tmp_path, tokenizer):
    chance = np.random.default_rng(0)
    words = [token for token in tokenizer.vocabulary if token.isalpha()]
    documents = [" ".join(chance.choice(words, 300)) for _ in range(60)]
    assert "zipf_slope" in names(examine(corpus_of(tmp_path, tokenizer, documents)))


def test_leaks_are_found_sentence_by_sentence(tmp_path, tokenizer):
    kept = prose(60)
    sentences = [text.split(". ") for text in kept]
    turned = [". ".join(reversed(one)) for one in sentences]  # different documents with the same sentences
    health = examine(corpus_of(tmp_path, tokenizer, kept + turned))
    assert "leaked_documents_share" in names(health, "problem") and health.excerpts["leaked_documents"]
    assert health.measures["repeated_documents_share"] == 0, "the order of sentences differs"


def test_no_validation_split_is_a_problem(tmp_path, tokenizer):
    corpus = write_corpus(tmp_path / "corpus", tokenizer, prose(20), validation=0.0)
    assert "validation_tokens" in names(examine(corpus), "problem")


def test_the_share_of_copies_is_estimated_from_a_sample(monkeypatch):
    monkeypatch.setattr(repeats_module, "BUDGET", 1 << 10)
    digests = np.random.default_rng(0).integers(0, 1 << 64, 20_000, np.uint64)
    repeats = Repeats(30_000)
    for part in (digests, digests[:10_000]):  # a third of all are copies
        repeats.add("train", 0, part, np.ones(len(part), bool))
    assert repeats.sampled == 1 / 32 and sum(map(len, repeats.digests)) < 1500
    assert repeats.share() == pytest.approx(1 / 3, abs=0.03)


def test_progress_reaches_the_end(tmp_path, tokenizer):
    corpus = corpus_of(tmp_path, tokenizer, prose(30))
    reported = []
    examine(corpus, reported.append)
    assert sum(reported) == sum(corpus.split(name).tokens for name in SPLITS)


def test_the_page_and_the_json(healthy, tmp_path):
    text = health_page(healthy).write(tmp_path / "report.html").read_text(encoding="utf-8")
    assert text.count("<svg") == (5 if figures.available() else 0)
    assert all(check.measure.replace("_", " ") in text for check in CHECKS)
    assert json.loads(json.dumps(healthy.as_dict(), allow_nan=False))["verdict"] == healthy.verdict


def test_html_in_a_corpus_does_not_reach_the_page(bad):
    evil = ["<script>alert(1)</script>"]
    finding = replace(bad.findings[0], samples=evil, evidence=evil[0])
    page = health_page(replace(bad, excerpts={"markup": evil}, findings=[finding], folder=evil[0])).render()
    assert "<script" not in page and page.count("&lt;script") >= 4


def test_an_empty_corpus_raises(tmp_path, tokenizer, monkeypatch):
    corpus = corpus_of(tmp_path, tokenizer, prose(3))
    for name, split in corpus.splits.items():
        corpus.splits[name] = type(split)(name, 0, 0, 0, [])
    with pytest.raises(TextError, match="no tokens"):
        examine(corpus)


def test_lengths_beyond_the_table():
    lengths = Lengths()
    for part in ([3, 3, 5], [1 << 20, 4], [1 << 20]):
        lengths.add(np.array(part))
    assert [one.tolist() for one in lengths.values()] == [[3, 4, 5, 1 << 20], [2, 1, 1, 2]]
    assert lengths.quantile(0.5) == 4 and lengths.quantile(1.0) == 1 << 20


def test_kinds_of_characters():
    kinds = dict.fromkeys("aé", "Latin letters") | {"ж": "other letters", "7": "digits", "!": "punctuation"}
    kinds |= {"€": "symbols", "\ufffd": "damaged", "\x07": "damaged", "日": "other letters"}
    assert {character: character_kind(character) for character in kinds} == kinds


def test_zipf_slope():
    ranks = np.arange(1, 3000)
    assert zipf_slope((1e6 / ranks).astype(int)) == pytest.approx(-1, abs=0.01)
    assert zipf_slope(np.full(3000, 7)) == pytest.approx(0, abs=1e-9) and zipf_slope(ranks[:50]) is None


def test_remedies_name_options_that_exist():
    from typer.main import get_command

    from glassbert.cli.corpus import app

    options = {name for one in get_command(app).commands["build"].params for name in (*one.opts, *one.secondary_opts)}
    named = {name for check in CHECKS for name in re.findall(r"--[a-z-]+", check.remedy + check.evidence)}
    assert len(named) >= 5 and named <= options


def test_every_check_has_a_measure_and_limits_in_order(healthy):
    for check in CHECKS:
        assert check.measure in healthy.measures
        limits = [limit for limit in check.limits if limit is not None]
        assert limits and limits == sorted(limits, reverse=not check.below)
