"""Saving: a crash at any moment leaves the old model, the new one, or a folder without config.json."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glassbert
from glassbert.checkpoints import save_model, saving
from glassbert.errors import CheckpointError
from tests.checkpoints.tiny import BERT, CONFIGS, MINI, assert_same, load, tiny

SAVED = {"checksums.json", "config.json", "model.safetensors"}
REPOSITORY = Path(__file__).parents[2]


def other(config: glassbert.EncoderConfig = BERT, head: str | None = "mlm") -> glassbert.Model:
    """A model whose weights are not those of `tiny`."""
    model = tiny(config, head)
    for value in model.parameters.values():
        value += 1
    return model


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_what_is_written(tmp_path: Path) -> None:
    tiny().save(tmp_path / "new" / "folder")
    assert names(tmp_path / "new" / "folder") == SAVED
    modes = {path.stat().st_mode for path in (tmp_path / "new" / "folder").iterdir()}
    assert len(modes) == 1


def test_saving_again_replaces_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("mine")
    save_model(tiny(), tmp_path, max_shard_size=2_000)
    shards = names(tmp_path)
    assert len(shards) > 4
    for model in (other(), tiny(CONFIGS["modernbert"]), tiny(MINI), tiny(BERT, None)):
        model.save(tmp_path)
        assert names(tmp_path) == {*SAVED, "tokenizer.json"}
        back = load(tmp_path)
        assert back.config == model.config
        assert np.array_equal(back.token_embeddings, model.token_embeddings)
    save_model(tiny(), tmp_path, max_shard_size=2_000)
    assert names(tmp_path) == shards
    assert (tmp_path / "tokenizer.json").read_text() == "mine"


def test_a_model_can_be_saved_where_it_came_from(tmp_path: Path) -> None:
    tiny().save(tmp_path)
    model = load(tmp_path)
    model.parameters["head.decoder.bias"] += 1
    model.save(tmp_path)
    assert_same(model, load(tmp_path))


@pytest.mark.parametrize("shard_size", [10**9, 2_000])
@pytest.mark.parametrize("failing_call", [1, 2])
def test_an_error_while_writing(
    failing_call: int, shard_size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny().save(tmp_path)
    calls = []

    def fail(function: Any) -> Any:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            calls.append(1)
            if len(calls) == failing_call:
                raise OSError("no space left on device")
            return function(*args, **kwargs)

        return wrapped

    monkeypatch.setattr(saving, "save_file", fail(saving.save_file))
    monkeypatch.setattr(saving, "_write_json", fail(saving._write_json))
    with pytest.raises(CheckpointError, match=r"could not be saved in .*no space left"):
        save_model(other(), tmp_path, max_shard_size=shard_size)
    assert names(tmp_path) == SAVED
    assert_same(tiny(), load(tmp_path))


SITUATIONS = {
    "nothing_there": (None, BERT, 10**9),
    "same_config": (BERT, BERT, 10**9),
    "another_config": (MINI, BERT, 10**9),
    "shards_over_one_file": (BERT, BERT, 6_000),
}


@pytest.mark.parametrize("moment", range(1, 11))
@pytest.mark.parametrize("situation", SITUATIONS)
def test_an_error_while_moving_is_undone(
    situation: str, moment: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after, shard_size = SITUATIONS[situation]
    if before is not None:
        tiny(before).save(tmp_path)
    found = names(tmp_path)
    calls = []
    replace = os.replace

    def fail(source: Any, target: Any) -> None:
        calls.extend([] if str(source).endswith(".part") else [1])  # only what is moved, not what is written
        if len(calls) == moment:
            raise OSError("the disk is gone")
        replace(source, target)

    monkeypatch.setattr(saving.os, "replace", fail)
    try:
        save_model(other(after), tmp_path, max_shard_size=shard_size)
    except CheckpointError:
        if (situation, moment) == ("same_config", 3):  # the new weights are in place, and only their checksums are not
            assert names(tmp_path) == found - {"checksums.json"}
            assert_same(other(after), load(tmp_path))
            return
        assert names(tmp_path) == found
        if before is not None:
            assert_same(tiny(before), load(tmp_path))
    else:
        assert len(calls) < moment
        assert_same(other(after), load(tmp_path))


KILLED = """
import os, sys
from pathlib import Path
from glassbert.checkpoints import save_model, saving
from tests.checkpoints.test_saving import SITUATIONS, other
folder, situation, moment = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
replace, calls = os.replace, []
def die(source, target):
    calls.extend([] if str(source).endswith(".part") else [1])
    if len(calls) == moment:
        os._exit(9)
    replace(source, target)
saving.os.replace = die
save_model(other(SITUATIONS[situation][1]), folder, max_shard_size=SITUATIONS[situation][2])
"""


@pytest.mark.parametrize(
    ("situation", "moment"),
    [("nothing_there", moment) for moment in range(1, 4)]
    + [("same_config", moment) for moment in range(1, 4)]
    + [("another_config", moment) for moment in range(1, 7)]
    + [("shards_over_one_file", moment) for moment in (1, 2, 3, 5)],
)
def test_a_process_that_is_killed(situation: str, moment: int, tmp_path: Path) -> None:
    """The folder has the old model, or the error names the interrupted save; saving again works."""
    before, after, _ = SITUATIONS[situation]
    if before is not None:
        tiny(before).save(tmp_path)
    command = [sys.executable, "-c", KILLED, str(tmp_path), situation, str(moment)]
    assert subprocess.run(command, cwd=REPOSITORY, check=False).returncode == 9
    if situation == "same_config" or (before is not None and moment == 1):
        assert_same(other(after) if moment == 3 else tiny(before), load(tmp_path))
    else:
        with pytest.raises(CheckpointError, match=r"no config\.json .* a save was interrupted here, and its files"):
            load(tmp_path)
    left = next(tmp_path.glob(".glassbert-saving-*"))
    configs = [path for path in tmp_path.rglob("config.json")]
    assert len(configs) == (1 if before is None else 2), "neither model's config may be lost"
    assert left.is_dir()
    other(after).save(tmp_path)
    assert names(tmp_path) == SAVED
    assert_same(other(after), load(tmp_path))


@pytest.mark.parametrize("size", ["5 GB", "0.5MB", 1, "200KiB", "7"])
def test_sizes_of_shards(size: int | str, tmp_path: Path) -> None:
    model = tiny()
    save_model(model, tmp_path, max_shard_size=size)
    assert_same(model, load(tmp_path))


@pytest.mark.parametrize("size", ["much", 0, -3, "5 parsecs", ""])
def test_invalid_sizes(size: int | str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="max_shard_size"):
        save_model(tiny(), tmp_path / "x", max_shard_size=size)
    assert not (tmp_path / "x").exists()


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(CheckpointError, match=r"could not be saved in .*taken"):
        tiny().save(tmp_path / "taken")


def test_the_config_is_readable_json_in_a_fixed_order(tmp_path: Path) -> None:
    tiny().save(tmp_path)
    text = (tmp_path / "config.json").read_text()
    fields = json.loads(text)
    assert list(fields) == sorted(fields) and text.endswith("}\n")
    assert fields["architectures"] == ["BertForMaskedLM"] and fields["torch_dtype"] == fields["dtype"] == "float32"
    assert "glassbert" not in fields and "problem_type" not in fields
