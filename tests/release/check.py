"""Checks the files of a release: `python tests/release/check.py dist`, run by `make release`.

The wheel has every file of the package and nothing else; the sdist has what building, testing and documenting need.
Both carry version, license and README.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path

ROOT = Path(__file__).parents[2]
LARGEST_WHEEL = 20_000_000  # bytes; most of it is the packaged model
IN_THE_SDIST = (
    *("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "SECURITY.md"),
    *("Makefile", "mkdocs.yml", "minibert.py", "docs/index.md", "docs/site/hooks.py", "tests/conftest.py"),
)


def package_files() -> set[str]:
    """The files of the package that are under version control, or all of them where there is no repository."""
    listed = subprocess.run(
        ["git", "ls-files", "glassbert"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split("\n")
    found = {name for name in listed if name and (ROOT / name).exists()}
    return found or {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "glassbert").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def problems_of_the_wheel(names: set[str], metadata: str, size: int, expected: set[str], version: str) -> list[str]:
    """What is wrong with a wheel of these files."""
    content = {name for name in names if ".dist-info/" not in name}
    found = [f"the wheel has no {name}" for name in sorted(expected - content)]
    found += [f"the wheel has {name}, which is not a file of the package" for name in sorted(content - expected)]
    if size > LARGEST_WHEEL:
        found.append(f"the wheel has {size:,} bytes, more than {LARGEST_WHEEL:,}")
    headers = HeaderParser().parsestr(metadata)
    for name, wanted in (("Name", "glassbert"), ("Version", version), ("License-Expression", "Apache-2.0")):
        if headers[name] != wanted:
            found.append(f"{name} of the wheel is {headers[name]!r}, not {wanted!r}")
    if "# GlassBERT" not in metadata:
        found.append("the wheel does not carry the README")
    if not any(name.endswith("/licenses/LICENSE") for name in names):
        found.append("the wheel has no license file")
    return found


def check(dist: Path) -> list[str]:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    wheel = dist / f"glassbert-{version}-py3-none-any.whl"
    sdist = dist / f"glassbert-{version}.tar.gz"
    missing = [f"there is no {path}" for path in (wheel, sdist) if not path.exists()]
    if missing:
        return missing
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(f"glassbert-{version}.dist-info/METADATA").decode()
    found = problems_of_the_wheel(names, metadata, wheel.stat().st_size, package_files(), version)
    with tarfile.open(sdist) as archive:
        inside = {name.split("/", 1)[-1] for name in archive.getnames()}
    found += [f"the sdist has no {name}" for name in (*IN_THE_SDIST, *sorted(package_files())) if name not in inside]
    found += [f"the sdist has {name}" for name in sorted(inside) if "__pycache__" in name or name.startswith("runs/")]
    return found


if __name__ == "__main__":
    found = check(Path(sys.argv[1]))
    print("\n".join(found) or f"wheel and sdist in {sys.argv[1]} are complete")
    sys.exit(bool(found))
