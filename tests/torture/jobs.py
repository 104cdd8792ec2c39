"""`python -m tests.torture.jobs JOB FOLDER`: one small job, started or continued. Exit status 2 is a GlassBertError."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import glassbert
from glassbert.errors import GlassBertError


def pretraining(folder: Path) -> None:
    from glassbert.training import building, finishing
    from glassbert.training.display import NoDisplay
    from glassbert.training.trainer import Trainer
    from tests.training.toy import make_corpus, make_trainer

    finishing.write_report = lambda run, result=None: None  # drawing takes longer than the run
    building.measure_matmul_rate = lambda *rest, **options: 100.0
    corpus = folder.parent / "corpus-of-pretraining"
    if not (corpus / "manifest.json").exists():
        make_corpus(corpus)
    run = folder / "run"
    if (run / "result.json").exists():
        return
    if (run / "settings.json").exists():
        Trainer.resume(run, display=NoDisplay()).train()
    else:
        make_trainer(corpus, run, steps=60, checkpoint_every=5, evaluate_every=20, threads=1).train()


def fine_tuning(folder: Path) -> None:
    from glassbert.finetuning.run import resume_finetuning
    from glassbert.training.display import NoDisplay
    from tests.finetuning.toy import make_model, tune, write_reviews

    base = folder.parent / "base-of-fine-tuning"
    if not (base / "train.csv").exists():
        base.mkdir(parents=True, exist_ok=True)
        make_model(base / "encoder")
        write_reviews(base, 64, 24)
    run = folder / "run"
    if (run / "result.json").exists():
        return
    if (run / "settings.json").exists():
        resume_finetuning(run, display=NoDisplay())
    else:
        tune(run, base / "encoder", base / "train.csv", base / "dev.csv", epochs=4)


def corpus_build(folder: Path) -> None:
    from tests.text.corpus.sample_corpora import build, stories, write

    source = folder.parent / "stories.txt"
    if not source.exists():
        write(source, stories(400))
    build([source], folder / "out", shard_tokens=2_000)


def saving(folder: Path) -> None:
    from tests.finetuning.toy import make_model

    make_model(folder / "model", hidden_size=128, intermediate_size=512)
    for _ in range(10):
        glassbert.load(folder / "model", engine="numpy").save(folder / "model")


JOBS = {"pretraining": pretraining, "fine-tuning": fine_tuning, "corpus build": corpus_build, "saving a model": saving}


def main() -> None:
    warnings.simplefilter("ignore")
    try:
        JOBS[sys.argv[1]](Path(sys.argv[2]))
    except GlassBertError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
