"""Throughput of a job over Parquet files: in this process, and on a Ray cluster of this machine with 1 and 2 workers.

    python -m benchmarks.ray [--model mini] [--rows 20000] [--workers 1,2]

Every worker has one thread. The start of the cluster and of the workers is in the seconds, and in a column of its own:
the time until the first part. The outputs must have the same bytes.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from benchmarks.common import count, require, run_program
from glassbert.bulk.job import here, run_job
from glassbert.on_ray.pieces import on_cluster

WORDS = [
    "river",
    "hill",
    "king",
    "winter",
    "letter",
    "garden",
    "bird",
    "window",
    "old",
    "city",
    "song",
    "ship",
    "market",
    "house",
    "morning",
    "bread",
    "star",
    "road",
]


def write_texts(folder: Path, rows: int, files: int = 4) -> None:
    """Sentences of 4 to 40 words, as long as real ones are."""
    import pyarrow
    import pyarrow.parquet

    rng = random.Random(0)
    for number in range(files):
        texts = [" ".join(rng.choices(WORDS, k=rng.randint(4, 40))) for _ in range(rows // files)]
        pyarrow.parquet.write_table(pyarrow.table({"text": texts}), folder / f"{number}.parquet", row_group_size=2048)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--rows", type=count, default=20_000)
    parser.add_argument("--workers", default="1,2")
    options = parser.parse_args()
    require("pyarrow", "ray")
    places = {"one process": here}
    places |= {f"Ray, {n} workers": on_cluster("local", int(n)) for n in options.workers.split(",")}
    print(f"{options.model}, {options.rows:,} texts in 4 Parquet files, one thread per worker\n")
    print("| where | seconds | until the first part | rows/s | rows/s after it |")
    print("|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as place:
        folder, outputs = Path(place), []
        (folder / "texts").mkdir()
        write_texts(folder / "texts", options.rows)
        run_job("embed", options.model, folder / "texts" / "0.parquet", folder / "warm", threads=1, rows=512)
        for number, (name, executor) in enumerate(places.items()):
            moments: list[tuple[float, int]] = []
            start = time.perf_counter()
            done = run_job(
                "embed", options.model, folder / "texts", folder / str(number), executor=executor, threads=1, rows=512,
                progress=lambda rows, _, moments=moments: moments.append((time.perf_counter(), rows)),
            )  # fmt: skip
            seconds = time.perf_counter() - start
            (first, before), (last, after) = moments[0], moments[-1]
            steady = (after - before) / (last - first)
            print(
                f"| {name} | {seconds:.1f} | {first - start:.1f} | {done.rows / seconds:,.0f} | {steady:,.0f} |",
                flush=True,
            )
            outputs.append({path.name: path.read_bytes() for path in (folder / str(number)).glob("part-*")})
    same = all(one == outputs[0] for one in outputs)
    print(f"\nThe outputs {'have the same bytes' if same else 'DIFFER'}.")


if __name__ == "__main__":
    run_program(main)
