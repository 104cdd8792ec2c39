"""The race of the family: every member with the same text, vocabulary, size and minutes, then the same exam.

    python -m benchmarks.family CORPUS [--members bert,electra] [--minutes 15] -o FOLDER [--engine numpy] [--threads 1]
    python -m benchmarks.family --exam FOLDER --data DATA [--members ...] [--papers words,pos] [--texts 10000]
    python -m benchmarks.family --table FOLDER [--picture docs/pictures/family-race.svg] [--json [FILE]]

CORPUS is a folder made by `glassbert corpus build`; FOLDER gets one run for each member (`benchmarks.family_race` has
the list). A finished member is skipped and an interrupted one continued, so that members can be trained in processes
of their own: for a fair race start as many as there are cores, with --threads 1 each. A member trains with its recipe
(`glassbert pretrain --family`) on rows of 64 tokens. The minutes include evaluation and saving.

DATA is a folder with zorro/, sst2/ and a treebank (*.conllu). The exam (`benchmarks.family_exam`) has four papers:
words, zorro, pos and sst2. What does not apply to a member says why. The table and the picture need finished runs only;
what is missing of the exam stays empty.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.common import add_json_option, count, run_program, show_json
from glassbert.errors import GlassBertError


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?", type=Path, help="a folder made by `glassbert corpus build`")
    parser.add_argument("-o", "--output", type=Path, help="the folder of the runs")
    parser.add_argument("--members", help="some of them, with commas (default: all)")
    parser.add_argument("--minutes", type=float, default=15.0, help="for each member (default: 15)")
    parser.add_argument("--engine", default="numpy", choices=("numpy", "mlx"))
    parser.add_argument("--precision", choices=("float32", "bfloat16"), help="of the training (default: float32)")
    parser.add_argument("--threads", type=count, help="threads of the NumPy engine (default: all cores)")
    parser.add_argument("--batch", type=count, help="rows of a step (default: 32; a GPU wants more)")
    parser.add_argument("--seed", type=int, default=0, help="of the initial weights")
    parser.add_argument("--exam", type=Path, metavar="FOLDER", help="examine the finished runs of a folder")
    parser.add_argument("--data", type=Path, help="the folder with the data of the exam")
    parser.add_argument("--text", type=Path, help="the corpus with the held-out text, if it is not where it was")
    parser.add_argument("--papers", help="some of words, zorro, pos and sst2, with commas (default: all)")
    parser.add_argument("--texts", type=count, help="reviews of SST-2 to fine-tune on (default: all)")
    parser.add_argument("--table", type=Path, metavar="FOLDER", help="print the table of a folder, and draw its curves")
    parser.add_argument("--picture", type=Path, help="the file of the curves, .svg or .png")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    if [options.corpus, options.exam, options.table].count(None) != 2:
        parser.error("give one of CORPUS, --exam FOLDER and --table FOLDER")
    if options.corpus and not options.output:
        parser.error("name the folder of the runs by -o")
    if options.exam and not options.data:
        parser.error("name the folder with the data of the exam by --data")
    try:
        run(options)
    except (GlassBertError, ValueError) as error:
        parser.exit(1, f"{error}\n")
    except KeyboardInterrupt:
        parser.exit(130, "stopped; the same command continues\n")


def run(options: argparse.Namespace) -> None:
    from benchmarks.family_race import names_of

    names = names_of(options.members)
    if options.table:
        report(options.table, names, options.picture, options.json)
        return
    machine = {"engine": options.engine, **({"threads": options.threads} if options.threads else {})}
    if options.corpus:
        race(options, names, machine)
    else:
        examine(options, names, machine)


def race(options: argparse.Namespace, names: list[str], machine: dict[str, Any]) -> None:
    from benchmarks.family_race import train

    given = {"batch": options.batch, "precision": options.precision}
    more = {name: value for name, value in given.items() if value}
    for name in names:
        found = train(name, options.corpus, options.output, options.minutes, seed=options.seed, **machine, **more)
        print(f"{name}: {found['steps']:,} steps, {found['tokens'] / 1e6:.2f} M tokens, loss {found['loss']:.3f}")


def examine(options: argparse.Namespace, names: list[str], machine: dict[str, Any]) -> None:
    from benchmarks.family_exam import PAPERS, take
    from benchmarks.family_table import finished

    papers = options.papers.split(",") if options.papers else list(PAPERS)
    if unknown := [name for name in papers if name not in PAPERS]:
        raise ValueError(f"no paper of the exam is named {', '.join(unknown)}; there are {', '.join(PAPERS)}")
    if not options.data.is_dir():
        raise ValueError(f"there is no folder {options.data}")
    for run in finished(options.exam, names):
        take(run, options.data, text=options.text, texts=options.texts, papers=papers, say=print, **machine)
        print(f"{run.name}: done")


def report(folder: Path, names: list[str], picture: Path | None, as_json: str | None) -> None:
    from benchmarks.family_table import as_dict, draw, entries, table_of

    found = entries(folder, names)
    table_of(found).show()
    if picture:
        draw(found, picture)
        print(f"written: {picture}")
    if as_json:
        show_json({"members": {one.name: as_dict(one) for one in found}}, as_json)


if __name__ == "__main__":
    run_program(main)
