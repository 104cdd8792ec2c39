"""Most of these tests edit the files of a saved folder, as a stranger's folder may have them: without checksums."""

import pytest

from glassbert.files import VERIFY


@pytest.fixture(autouse=True)
def without_checksums(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.path.name != "test_checksums.py":
        monkeypatch.setenv(VERIFY, "0")
