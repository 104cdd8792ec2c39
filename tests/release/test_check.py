"""The check of a release notices what is missing, what does not belong, and wrong metadata."""

from tests.release.check import package_files, problems_of_the_wheel

METADATA = "Name: glassbert\nVersion: 1.0\nLicense-Expression: Apache-2.0\n\n# GlassBERT\n"
FILES = {"glassbert/__init__.py", "glassbert/py.typed"}
LICENSE = "glassbert-1.0.dist-info/licenses/LICENSE"


def problems(names=FILES | {LICENSE}, metadata=METADATA, size=10):
    return problems_of_the_wheel(set(names), metadata, size, FILES, "1.0")


def test_a_complete_wheel_has_no_problem():
    assert problems() == []


def test_problems_are_named():
    assert problems({LICENSE, "glassbert/__init__.py"}) == ["the wheel has no glassbert/py.typed"]
    assert "tests/x.py" in problems(FILES | {LICENSE, "tests/x.py"})[0]
    assert "more than" in problems(size=10**9)[0]
    assert "Version" in problems(metadata=METADATA.replace("1.0", "0.9"))[0]
    assert "README" in problems(metadata=METADATA.replace("# GlassBERT", ""))[0]
    assert problems(FILES) == ["the wheel has no license file"]


def test_the_package_has_its_data():
    files = package_files()
    assert {"glassbert/py.typed", "glassbert/pretrained/mini/model.safetensors", "glassbert/cli/__init__.py"} <= files
