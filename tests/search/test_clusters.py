"""Groups of texts that are known, their words, and the page."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from glassbert.cli import main
from glassbert.errors import InputError
from glassbert.search.cluster_page import make_page
from glassbert.search.clusters import NONE, characteristic_words, cluster_texts
from glassbert.search.vectors import TextVectors

WORDS = ("river water boat", "stock price market", "goal player match", "flour oven bread", "star planet orbit")


def groups(count: int = 40, spread: float = 0.05, seed: int = 0) -> TextVectors:
    """Five groups around five directions; their texts share words within a group and "the" everywhere."""
    rng = np.random.default_rng(seed)
    centres = np.linalg.qr(rng.normal(size=(24, len(WORDS))))[0].T
    texts, vectors = [], []
    for number in range(count * len(WORDS)):
        group = number % len(WORDS)
        texts.append(f"the {rng.choice(WORDS[group].split())} and the {rng.choice(WORDS[group].split())} {number}")
        vectors.append(centres[group] + spread * rng.normal(size=24))
    found = np.array(vectors)
    return TextVectors(texts, found / np.linalg.norm(found, axis=1, keepdims=True), "mini", "f" * 64, "texts.txt")


@pytest.mark.parametrize("method", ["kmeans", "hdbscan"])
def test_known_groups_are_found_with_their_words(method):
    found = cluster_texts(groups(), method=method, picture="pca")
    assert len(found.clusters) == 5
    assert found.silhouette > 0.5
    kept = found.numbers != NONE
    assert kept.mean() > 0.7
    truth = np.arange(len(found.texts)) % 5
    for one in found.clusters:
        members = {int(truth[row]) for row in one.rows}
        assert len(members) == 1
        assert set(one.words) <= set(WORDS[members.pop()].split())
        assert found.closeness[one.rows[0]] == max(found.closeness[one.rows])


def test_a_given_number_of_groups_and_the_same_result_twice():
    one, two = (cluster_texts(groups(spread=0.3), clusters=3, picture="pca") for _ in range(2))
    assert len(one.clusters) == 3
    assert not one.tried
    assert (one.numbers == two.numbers).all()
    assert (one.points == two.points).all()
    sizes = [len(cluster.rows) for cluster in one.clusters]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(("different", "clusters"), [(1, None), (3, 4)])
def test_texts_with_equal_vectors(different, clusters, recwarn):
    vectors = np.eye(24)[np.arange(20) % different]
    found = TextVectors([f"text {n}" for n in range(20)], vectors, "mini", "f" * 64, "texts.txt")
    with pytest.raises(InputError, match=f"have {different} different vectors, too few for {clusters or 2} groups"):
        cluster_texts(found, clusters=clusters, picture="pca")
    vectors = np.eye(24)[np.arange(20) % 3]
    assert len(cluster_texts(replace(found, vectors=vectors), clusters=3, picture="pca").clusters) == 3
    assert not recwarn.list


def test_words_of_every_text_characterise_nothing():
    texts = ["the red fox", "the red hen", "the red cat", "the blue fox", "the blue hen", "the blue cat"]
    assert characteristic_words(texts, [1, 1, 1, 2, 2, 2]) == {1: ["red"], 2: ["blue"]}


def test_few_texts_and_wrong_names():
    few = groups(count=1).select([0, 1, 2])
    with pytest.raises(InputError, match="has 3 different texts, too few for 2 groups"):
        cluster_texts(few)
    with pytest.raises(InputError, match="too few for 500 groups"):
        cluster_texts(groups(), clusters=500)
    for wrong in ({"method": "magic"}, {"picture": "oil"}, {"method": "hdbscan", "clusters": 3}):
        with pytest.raises(InputError):
            cluster_texts(groups(), **wrong)


@pytest.mark.parametrize("clusters", [2, 8])
def test_the_page_has_the_groups_and_escapes_texts(clusters):
    vectors = groups()
    vectors.texts[0] = "<script>alert(1)</script> $x$ river"
    found = cluster_texts(vectors, clusters=clusters, picture="pca")
    html = make_page(found, "texts.txt", "mini", "k-means").render()
    assert "<script>" not in html
    assert html.count("<details") == clusters
    assert html.count("<svg") == 1
    assert "prefers-color-scheme: dark" in html


def test_the_command_writes_page_and_table(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("\n".join(groups(count=12).texts))
    with pytest.raises(SystemExit) as end:
        main(["cluster", "texts.txt", "-o", "out", "--clusters", "4", "--picture", "pca", "--threads", "1", "--json"])
    assert not end.value.code
    facts = json.loads(capsys.readouterr().out)
    assert facts["texts"] == 60
    assert sum(one["texts"] for one in facts["clusters"]) == 60
    rows = list(csv.DictReader((tmp_path / "out" / "clusters.csv").open()))
    assert len(rows) == 60
    assert {row["cluster"] for row in rows} == {"1", "2", "3", "4"}
    assert (tmp_path / "out" / "report.html").exists()
