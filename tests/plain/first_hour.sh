#!/bin/sh
# The first hour with an installation without extras, away from the source tree: sh tests/plain/first_hour.sh BIN
# BIN is the folder with the python and the glassbert of the installation. Any command that fails ends the script.
set -eu
bin=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
PATH=$bin:$PATH

say() { printf '\n== %s\n' "$*"; }

say "The installation"
python - <<'END'
import importlib.util
import pathlib
import sys

import glassbert

installed = pathlib.Path(glassbert.__file__).resolve()
assert pathlib.Path(sys.prefix).resolve() in installed.parents, f"{installed} is not the installed package"
extras = [name for name in ("pyarrow", "zstandard", "mlx", "marimo", "torch", "datasketch") if importlib.util.find_spec(name)]
assert not extras, f"this is not a plain installation: it has {', '.join(extras)}"
END
glassbert --version
du -sh "$(dirname "$bin")" | cut -f1

say "The packaged model"
glassbert fill-mask "She opened the [MASK] and went out."
glassbert inspect "She opened the [MASK] and went out." -o inspect.html
glassbert glass --sentence "Paris is the [MASK] of France." -o glass.html

say "Quickstart"
glassbert quickstart --steps 40 --run runs/quickstart

say "A corpus and a pretraining"
python - <<'END'
import pydoc_data.topics

topics = sorted(pydoc_data.topics.topics.values(), key=len)[-60:]
open("topics.txt", "w", encoding="utf-8").write("\n\n".join(topics))
END
glassbert corpus build topics.txt -o corpus --vocab-size 2k
glassbert corpus report corpus -o corpus.html || test $? -eq 1  # 1: the report found something to repair
glassbert pretrain --corpus corpus --steps 10 --run runs/own

say "A fine-tuning beside its simple model"
python - <<'END'
import csv
import random

random.seed(0)
good, bad = ("lovely", "great", "warm", "clever"), ("dull", "awful", "cold", "weak")
with open("reviews.csv", "w", newline="", encoding="utf-8") as file:
    table = csv.writer(file)
    table.writerow(["review", "liked"])
    for number in range(200):
        words = random.choices(good if number % 2 else bad, k=2)
        table.writerow([f"A {words[0]} film with a {words[1]} end, number {number}.", "yes" if number % 2 else "no"])
END
glassbert finetune --train reviews.csv --target liked --epochs 2 --run runs/reviews | tee finetune.log
grep -q "logistic" finetune.log  # the simple model beside it
sh -ec "$(sed -n 's/^Try *//p' finetune.log)"  # the line as it would be pasted
glassbert predict runs/reviews --file reviews.csv -o answers.csv
glassbert embed reviews.csv --text review -o vectors.npy

say "An evaluation"
glassbert evaluate runs/quickstart --quick --dev topics.txt -o evaluation || test $? -eq 1  # 1: 40 steps are too few

say "The runs and their reports"
glassbert runs
for run in runs/quickstart runs/own runs/reviews; do glassbert report "$run"; done
for page in inspect.html corpus.html evaluation/evaluation.html runs/*/report.html; do
    grep -q "<svg" "$page" || { echo "$page has no pictures"; exit 1; }
    ! grep -q "pip install" "$page" || { echo "$page says that something is not installed"; exit 1; }
done
say "All of it works."
