"""The predefined tasks, and their files if the data folder exists."""

import os
from pathlib import Path

import pytest

from glassbert.errors import ConfigError, InputError
from glassbert.metrics import METRICS
from glassbert.tasks import check_data, find_period, ready_task, ready_tasks
from glassbert.tasks.reading import read_table
from glassbert.tasks.targets import KINDS

DATA = Path(os.environ.get("GLASSBERT_DATA", Path(__file__).parents[3] / "shared" / "data"))
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the data folder does not exist")


def test_all_entries_are_valid():
    for task in ready_tasks().values():
        assert task.metric in METRICS and task.head in KINDS and task.title
        assert task.head in ("tokens", "series") or task.read["kind"] == task.head
    with pytest.raises(ConfigError, match="no ready task 'sst3'; choose one of sst2"):
        ready_task("sst3")
    with pytest.raises(InputError, match="only train; hold out"):
        ready_task("titanic").open(DATA, "dev")
    with pytest.raises(InputError, match="open_series"):
        ready_task("airline").open(DATA)


SIZES = {
    "sst5": (8544, 1101),
    "stsb": (5749, 1500),
    "titanic": (891, None),
    "wine-red": (1599, None),
    "wnut17": (3394, 1009),
}


@needs_data
@pytest.mark.parametrize("name", SIZES)
def test_real_files(name):
    task = ready_task(name)
    train = task.open(DATA)
    dev = task.open(DATA, "dev") if task.dev else None
    assert (len(train), dev and len(dev)) == SIZES[name]
    labels = train.encoded().labels
    if dev:
        dev.encoded(labels)
    assert not [finding for finding in check_data(train, dev) if finding.severity == "problem"]
    if labels:
        assert len(task.names_of_labels(DATA, labels)) == len(labels)


@needs_data
def test_real_series_and_pairs():
    assert [
        find_period((s := ready_task(n).open_series(DATA)).values, s.periods) for n in ("airline", "temperatures")
    ] == [12, 365]
    assert len(read_table(DATA / "zorro" / "ellipsis-n_bar.txt", "minimal-pairs")) == 2000
    goemotions = ready_task("goemotions")
    dev = goemotions.open(DATA, "dev")
    assert goemotions.names_of_labels(DATA, dev.encoded().labels)[0] == "admiration"
