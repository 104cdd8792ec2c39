"""One flipped bit in any file: it is noticed, or nothing that is computed changes."""

from __future__ import annotations

import random

from glassbert.errors import GlassBertError
from tests.torture.subjects import Subject
from tests.torture.table import Line, describe


def flip_bits(subjects: list[Subject], count: int, seed: int, number: int = 0) -> list[Line]:
    """`count` flips over all files of all subjects: the same number in every file, at random places."""
    rng = random.Random(f"flips {seed} {number}")
    whole = [(subject, name) for subject in subjects for name in subject.files]
    intact = {subject.name: subject.use(subject.folder) for subject in subjects}
    lines = {subject.name: Line("bit flips", subject.name) for subject in subjects}
    for number in range(count):
        subject, name = whole[number % len(whole)]
        line = lines[subject.name]
        path = subject.folder / name
        original = path.read_bytes()
        bit = rng.randrange(8 * len(original))
        changed = bytearray(original)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        line.tried += 1
        try:
            same = subject.use(subject.folder) == intact[subject.name]
            line.counts["without effect" if same else "silent"] += 1
            if not same:
                line.fail(f"bit {bit} of {name} was not noticed")
        except GlassBertError:
            line.counts["noticed"] += 1
        except BaseException as error:
            line.fail(f"bit {bit} of {name}: {describe(error)}")
        finally:
            path.write_bytes(original)
    return list(lines.values())
