"""Everyday texts from the training files of tasks: what is kept, and what is left out."""

import json
import lzma

import pytest

from benchmarks import everyday


@pytest.fixture
def data(tmp_path):
    files = {
        "goemotions/train.tsv": "What a lovely day it was\t1\tx\nThanks [NAME] for that\t2\ty\nNo way\t3\tz\n",
        "goemotions/dev.tsv": "Somebody else wrote this one\t1\tx\n",
        "stsb/sts-train.csv": "g\tf\ty\t1\t5.0\tA plane is taking off.\tA plane is taking off!\n"
        "g\tf\ty\t2\t1.0\tSomebody else wrote this one.\tA man plays a flute.\n",
        "stsb/sts-dev.csv": "g\tf\ty\t1\t5.0\tA cat sleeps here.\tA dog sleeps here.\n",
        "wnut17/train.conll": "@you\tO\nIt\tO\nrains\tO\nagain\tO\n\t\nThis\tO\nis\tO\nshit\tO\n\n",
        "wnut17/dev.conll": "Hello\tO\nto\tO\nyou\tO\n\n",
        "sst2/dev.tsv": "sentence\tlabel\nthe end is near\t1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "ud_english_ewt").mkdir()
    for split in ("train", "dev"):
        text = f"# text = The end is near\n1\tThe\n\n# text = From the {split} file, only here\n1\tFrom\n\n"
        with lzma.open(tmp_path / f"ud_english_ewt/en_ewt-ud-{split}.conllu.xz", "wt", encoding="utf-8") as file:
            file.write(text)
    return tmp_path


def test_texts_are_kept_once_and_never_those_of_a_dev_file(data, tmp_path, capsys):
    everyday.main([str(data), str(tmp_path / "texts"), "--json", str(tmp_path / "found.json")])
    texts = {file.stem: file.read_text(encoding="utf-8").split("\n\n") for file in (tmp_path / "texts").iterdir()}
    assert texts == {
        "comments": ["What a lovely day it was\n"],
        "captions-and-headlines": ["A plane is taking off.", "A man plays a flute.\n"],
        "tweets": ["@you It rains again\n"],
        "web": ["From the train file, only here\n"],
    }
    rows = {row["source"]: row for row in json.loads((tmp_path / "found.json").read_text())["sources"]}
    assert rows["comments"]["short"] == 2  # the end of the file is one
    assert rows["captions-and-headlines"]["repeated"] == rows["captions-and-headlines"]["in a dev file"] == 1
    assert rows["tweets"]["coarse"] == 1 and rows["web"]["in a dev file"] == 1
    assert "captions-and-headlines" in capsys.readouterr().out


def test_missing_files_are_named(data, tmp_path, capsys):
    (data / "wnut17/dev.conll").unlink()
    with pytest.raises(SystemExit):
        everyday.main([str(data), str(tmp_path / "texts")])
    assert "wnut17/dev.conll; DATA is the folder" in capsys.readouterr().err
    assert not (tmp_path / "texts").exists()
