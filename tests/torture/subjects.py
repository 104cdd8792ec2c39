"""What is tortured: one small instance of every kind of folder that GlassBERT writes, and how it is used.

A `Subject` names its files and has a function that uses them and returns a digest of everything that was read. Two uses
with the same digest computed with the same numbers.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import glassbert
from glassbert.checkpoints import load
from glassbert.cli.output import finite
from glassbert.cli.run_kinds import find_all
from glassbert.cli.runs import show
from glassbert.export.folder import export_onnx
from glassbert.finetuning.low_rank import LowRank
from glassbert.finetuning.predictor import Predictor
from glassbert.quantization import QuantizationSettings, quantize
from glassbert.search import VectorIndex, gather_vectors
from glassbert.tasks import TaskData, read_table
from glassbert.text.corpus import Corpus
from glassbert.text.fast import load_tokenizer
from glassbert.text.plan_cache import cached_plan
from glassbert.training.checkpointing import last_intact, read_checkpoint
from glassbert.training.display import NoDisplay
from glassbert.training.finishing import Result
from glassbert.training.history import History, find_runs, read_result
from glassbert.training.run_folder import RunFolder
from glassbert.training.trainer import Trainer
from tests.checkpoints.tiny import BERT, tiny
from tests.finetuning.toy import make_model, tune, write_reviews
from tests.torture import parquet
from tests.torture.jobs import WIDE
from tests.training.toy import make_corpus, make_trainer

PROBE = "the lovely house sings"


@dataclass
class Subject:
    name: str
    folder: Path
    files: list[str]
    use: Callable[[Path], str]
    needs: str = ""  # a package beyond the usual ones


def digest(*parts: Any) -> str:
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        found.update(part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode())
    return found.hexdigest()


def use_model(folder: Path) -> str:
    model = load(folder, engine="numpy", threads=1)
    tokenizer = load_tokenizer(folder)
    ids = tokenizer.encode(PROBE).ids
    weights = [(name, np.asarray(array)) for name, array in sorted(model.parameters.items())]
    return digest(model.config, ids, *(part for pair in weights for part in pair), tokenizer.fingerprint)


def use_predictor(folder: Path) -> str:
    predictor = Predictor.load(folder, engine="numpy", threads=1)
    found = predictor.predict([PROBE, "awful"])
    return digest(found.answers(), found.probabilities(), predictor.card)


def use_checkpoint(folder: Path) -> str:
    """As `glassbert resume` does; a checkpoint that was set aside counts as noticed."""
    run = RunFolder.existing(folder)
    run.read_settings()
    step, problems = last_intact(run)
    if problems:
        raise glassbert.GlassBertError(problems[0])
    trainer = Trainer.resume(folder, display=NoDisplay())
    saved = read_checkpoint(run, int(step or 0), trainer.model)
    weights = [np.asarray(array) for _, array in sorted(trainer.model.parameters.items())]
    return digest(trainer.settings, step, saved.state, *weights, *(saved.arrays[name] for name in sorted(saved.arrays)))


def use_index(folder: Path) -> str:
    index = VectorIndex.open(folder)
    vectors = np.asarray(index.graph.get(np.arange(len(index), dtype=np.uint64)), np.float32)
    return digest(index.manifest, vectors, [index.line(number) for number in range(len(index))])


def use_graph(folder: Path) -> str:
    predictor = Predictor.load(folder, engine="onnxruntime", threads=1)
    return digest(predictor.predict([PROBE, "awful"]).probabilities(), predictor.card)


def use_run(folder: Path) -> str:
    """As `glassbert runs` does; a run that is named as damaged counts as noticed."""
    problems: list[str] = []
    list(find_runs(folder.parent, problems))
    if problems:
        raise glassbert.GlassBertError(problems[0])
    found = list(find_all(folder.parent))
    show(Console(file=io.StringIO(), width=100), found)
    json.dumps(finite([facts for _, facts in found]), allow_nan=False)
    run = RunFolder.existing(folder)
    return digest(History.read(run).settings, read_result(run))


def use_corpus(folder: Path) -> str:
    corpus = Corpus.open(folder)
    corpus.verify()
    arrays = [a for split in corpus.splits.values() for s in split.shards for a in (s.tokens, s.sentence_ends)]
    return digest(corpus.tokenizer.fingerprint, *(np.asarray(array) for array in arrays))


def use_plan(folder: Path) -> str:
    corpus = Corpus.open(folder)
    plan = cached_plan(corpus, "train", 16, "sentences", corpus.tokenizer.continues_word)
    return digest(*(np.asarray(array) for array in (plan.starts, plan.lengths, plan.row_ends)))


def use_adapters(folder: Path) -> str:
    adapted = LowRank.load(load(folder / "base", engine="numpy"), folder / "adapters")
    return digest(*(np.asarray(array) for array in adapted.parameters.values()))


def make_subjects(folder: Path) -> list[Subject]:
    """Write every kind of folder below `folder`."""
    encoder = make_model(folder / "encoder")
    train, dev = write_reviews(folder, 32, 16)
    tune(folder / "reviews", encoder, train, dev, epochs=1)
    corpus = make_corpus(folder / "corpus")
    (folder / "runs").mkdir()
    make_trainer(corpus, folder / "runs" / "finished", steps=2).train()
    unfinished(corpus, folder / "unfinished")
    adapted = LowRank(load(encoder, engine="numpy", head="core"), rank=2)
    adapted.base.save(folder / "adapted" / "base")
    adapted.save(folder / "adapted" / "adapters")
    shutil.copytree(corpus, folder / "planned")
    use_plan(folder / "planned")
    plans = [f"plans/{path.name}" for path in sorted((folder / "planned" / "plans").iterdir())]
    tune(folder / "wide reviews", make_model(folder / "wide", **WIDE), train, dev, epochs=1)
    quantize(folder / "wide reviews", folder / "quantised", QuantizationSettings(bits=4), data=dev, sensitivity=False)
    others = []
    if importlib.util.find_spec("usearch"):
        index = VectorIndex.build(folder / "index", gather_vectors(train, str(encoder), text="review", engine="numpy"))
        others.append(Subject("index", folder / "index", ["index.json", *index.manifest["files"]], use_index))
    if importlib.util.find_spec("onnx") and importlib.util.find_spec("onnxruntime"):
        export_onnx(folder / "reviews", folder / "graph")
        graphs = ["config.json", "onnx/model.onnx", "tokenizer.json", "task.json", "checksums.json"]
        others.append(Subject("ONNX", folder / "graph", graphs, use_graph))
    tokenizer = ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"]
    weights = ["config.json", "model.safetensors", "checksums.json"]
    step = "checkpoints/step-00000004"
    shards = [f"{split}-00000.{a}.npy" for split in ("train", "validation") for a in ("tokens", "sentences")]
    return [
        Subject("model", encoder, [*weights, *tokenizer], use_model),
        Subject("fine-tuned model", folder / "reviews" / "model", [*weights, *tokenizer, "task.json"], use_predictor),
        Subject(
            "checkpoint", folder / "unfinished",
            ["settings.json", *(f"{step}/{n}" for n in (*weights, "training.safetensors", "state.json"))],
            use_checkpoint,
        ),
        Subject("run", folder / "runs" / "finished", ["settings.json", "result.json"], use_run),
        Subject("corpus", corpus, ["manifest.json", *shards, "tokenizer.json"], use_corpus),
        Subject("plan", folder / "planned", plans, use_plan),
        Subject(
            "adapters", folder / "adapted", ["adapters/adapter_config.json", "adapters/adapter_model.safetensors"],
            use_adapters,
        ),
        Subject("quantised model", folder / "quantised", [*weights, *tokenizer, "task.json"], use_predictor),
        *others,
    ]  # fmt: skip


def make_fuzzed(folder: Path) -> list[Subject]:
    """The same subjects without checksums, and the files of others: sentence-transformers, logs and task files."""
    subjects = make_subjects(folder)
    without_seals(folder)
    tiny(BERT, "embedding").save(folder / "sentences")
    without_seals(folder / "sentences")
    modules = ["modules.json", "1_Pooling/config.json", "config.json"]
    rows = [{"review": f"a {word} film", "verdict": word, "n": 3} for word in ("good", "bad")] * 4
    tables = folder / "tables"
    tables.mkdir()
    (tables / "rows.json").write_text(json.dumps(rows))
    (tables / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tables / "rows.csv").write_text("review,verdict\n" + "".join(f"{r['review']},{r['verdict']}\n" for r in rows))
    (tables / "rows.conll").write_text("the DET\ncat NOUN\n\na DET\nman NOUN\n")
    adapted = next(subject for subject in subjects if subject.name == "run")
    adapted.files.append("log.jsonl")
    return [
        *subjects,
        Subject("sentence-transformers", folder / "sentences", modules, use_sentences),
        *(Subject(f"task file .{kind}", tables, [f"rows.{kind}"], partial(use_table, kind=kind))
          for kind in ("json", "jsonl", "csv", "conll")),
        Subject("task file .parquet", tables, parquet.write_file(tables), parquet.use, "pyarrow"),
    ]  # fmt: skip


def use_sentences(folder: Path) -> str:
    return digest(load(folder, engine="numpy", head="embedding").predict([[1, 2, 3]]))


def use_table(folder: Path, kind: str) -> str:
    columns = {"words": "0", "target": "1"} if kind == "conll" else {"text": "review", "target": "verdict"}
    options = {"format": "conll"} if kind == "conll" else {}
    if kind == "conll":
        return digest(read_table(folder / "rows.conll", **options).columns)
    data = TaskData.of(folder / f"rows.{kind}", **columns, **options)
    return digest(data.texts, data.targets)


def unfinished(corpus: Path, folder: Path) -> Result | None:
    """A run that was killed after step 5, with checkpoints of the steps 2 and 4."""
    trainer = make_trainer(corpus, folder, checkpoint_every=2)
    with trainer.prepared():
        for _ in range(5):
            trainer.one_step()
    return None


def without_seals(folder: Path) -> None:
    """Remove all checksums, so that a changed file reaches its reader."""
    for path in folder.rglob("checksums.json"):
        path.unlink()
    for path in folder.rglob("*.json"):
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict) and content.pop("checksum", None):
            path.write_text(json.dumps(content), encoding="utf-8")
