"""`python -m tests.torture`: try to break the files and the processes of GlassBERT, and print a table of what happened.

python -m tests.torture                  about twenty minutes
python -m tests.torture --quick          about two minutes
python -m tests.torture --only flips     bit flips alone; also: fuzz, strings, masks, kills, disk, processes
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.torture.flips import flip_bits
from tests.torture.fuzz import fuzz_files
from tests.torture.kills import fill_disk, kill_jobs, share_folder
from tests.torture.strings import hostile_strings, random_masks
from tests.torture.subjects import make_fuzzed, make_subjects
from tests.torture.table import Line, as_markdown


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="names of attacks, separated by commas")
    options = parser.parse_args()
    os.environ.setdefault("RUST_BACKTRACE", "0")
    share = 0.1 if options.quick else 1.0
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(prefix="glassbert-torture-") as temporary:
        folder = Path(temporary)
        for name, attack in attacks(folder, share, options.seed).items():
            if options.only and name not in options.only.split(","):
                continue
            (folder / name).mkdir()
            begun = time.monotonic()
            lines += attack(folder / name)
            print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)
    print("\n" + as_markdown(lines))
    for line in lines:
        for example in line.examples:
            print(f"\n{line.attack}, {line.subject}: {example}")
    return 1 if any(line.failed for line in lines) else 0


def attacks(folder: Path, share: float, seed: int) -> dict[str, Callable[[Path], list[Line]]]:
    return {
        "flips": lambda place: flip_bits(make_subjects(place), int(4_000 * share), seed),
        "fuzz": lambda place: fuzz_files(make_fuzzed(place), 480 * share, seed),
        "strings": lambda place: hostile_strings(int(300_000 * share), seed),
        "masks": lambda place: random_masks(int(10_000 * share), seed),
        "kills": lambda place: kill_jobs(place, 400 * share, seed),
        "disk": lambda place: fill_disk(place, seed, max(1, int(6 * share))),
        "processes": lambda place: share_folder(place, max(1, int(8 * share))),
    }


if __name__ == "__main__":
    raise SystemExit(main())
