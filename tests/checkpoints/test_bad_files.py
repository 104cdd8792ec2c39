"""Files that are missing, truncated, corrupt or of another model raise an error that names the problem."""

from __future__ import annotations

import builtins
import json
import struct
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import glassbert
from glassbert.checkpoints import load_weights, save_model
from glassbert.errors import CheckpointError
from tests.checkpoints.tiny import BERT, CONFIGS, MODERNBERT, edit_config, edit_tensors, load, tiny, weights


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    tiny().save(tmp_path / "model")
    return tmp_path / "model"


def refused(folder: Path, culprit: str, **options: Any) -> str:
    """Neither `load` nor `load_weights` accepts this folder."""
    model = tiny()
    before = weights(model)
    with pytest.raises(CheckpointError, match=culprit) as caught:
        load(folder, **options)
    with pytest.raises(CheckpointError):
        load_weights(model, folder)
    for name, value in weights(model).items():
        assert value.tobytes() == before[name].tobytes(), f"{name} was changed"
    return str(caught.value)


# ---- tensors ---------------------------------------------------------------------------------------------------------

ONE_KEY = "bert.encoder.layer.1.attention.self.key.weight"


def test_a_missing_tensor(saved: Path) -> None:
    edit_tensors(saved, lambda tensors: tensors.pop(ONE_KEY))
    assert refused(saved, "missing").endswith(f"missing from the file: {ONE_KEY}")


def test_many_missing_tensors(saved: Path) -> None:
    edit_config(saved, num_hidden_layers=5)
    message = refused(saved, r"missing.*encoder\.layer\.3\.")
    assert "and 27 more" in message  # 2 layers of 16 tensors, less the 5 named


@pytest.mark.parametrize("name", ["bert.encoder.layer.3.output.dense.weight", "extra", "classifier.weight", "cls.new"])
def test_an_extra_tensor(name: str, saved: Path) -> None:
    edit_tensors(saved, lambda tensors: tensors.update({name: np.zeros((12, 10), np.float32)}))
    assert refused(saved, "tensors that this model does not have").endswith(name)


def test_fewer_layers_than_the_file(saved: Path) -> None:
    edit_config(saved, num_hidden_layers=2)
    refused(saved, r"does not have: bert\.encoder\.layer\.2\.")


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        (ONE_KEY, [12, 13]),
        ("bert.embeddings.word_embeddings.weight", [24, 12]),
        ("cls.predictions.bias", [23, 1]),
        ("bert.embeddings.LayerNorm.weight", []),
    ],
)
def test_a_misshapen_tensor(name: str, shape: list[int], saved: Path) -> None:
    edit_tensors(saved, lambda tensors: tensors.update({name: np.zeros(shape, np.float32)}))
    assert f"{name!r} has the shape {shape}" in refused(saved, "shape")


def test_a_config_that_does_not_fit_the_tensors(saved: Path) -> None:
    edit_config(saved, hidden_size=14)
    refused(saved, r"has the shape \[23, 12\], but config.json makes it \[23, 14\]")


def test_integers_for_weights(saved: Path) -> None:
    edit_tensors(saved, lambda tensors: tensors.update({ONE_KEY: tensors[ONE_KEY].astype(np.int8)}))
    refused(saved, f"{ONE_KEY}.*stored as I8")


def test_one_tensor_twice(saved: Path) -> None:
    short = ONE_KEY.removeprefix("bert.")
    edit_tensors(saved, lambda tensors: tensors.update({short: tensors[ONE_KEY]}))
    refused(saved, "two tensors for .*self.key.weight")


def test_tensors_of_the_native_layout(tmp_path: Path) -> None:
    tiny(CONFIGS["mini"]).save(tmp_path)
    edit_tensors(tmp_path, lambda tensors: tensors.pop("final_norm.bias"))
    refused(tmp_path, r"missing from the file: final_norm\.bias")
    tiny(CONFIGS["mini"]).save(tmp_path)
    edit_tensors(tmp_path, lambda tensors: tensors.update(head=np.zeros(1, np.float32)))
    refused(tmp_path, "does not have: head")


def test_weights_for_another_model(tmp_path: Path) -> None:
    """All tensors fit, but the model would compute something else."""
    tiny(BERT.replace(layer_norm_eps=1e-3)).save(tmp_path)
    with pytest.raises(CheckpointError, match=r"layer_norm_eps is 0\.001 there and 1e-12 here"):
        load_weights(tiny(), tmp_path)
    tiny(MODERNBERT).save(tmp_path)
    with pytest.raises(CheckpointError, match="family is 'modernbert' there and 'bert' here"):
        load_weights(tiny(), tmp_path)
    tiny(BERT, None).save(tmp_path)
    with pytest.raises(CheckpointError, match="missing"):
        load_weights(tiny(BERT, "sequence"), tmp_path)
    tiny(BERT.replace(hidden_dropout=0.5, initializer="truncated")).save(tmp_path)
    load_weights(tiny(), tmp_path)  # only training depends on these fields


# ---- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0, 7, 8, 100, 0.3, 0.9, -1])
def test_a_truncated_file(keep: float, saved: Path) -> None:
    path = saved / "model.safetensors"
    whole = path.read_bytes()
    size = int(keep * len(whole)) if isinstance(keep, float) else keep
    path.write_bytes(whole[:size])
    assert str(path) in refused(saved, "truncated")


@pytest.mark.parametrize(
    "content",
    [
        b"PK\x03\x04" + b"\0" * 200,
        b"\0" * 200,
        struct.pack("<Q", 4) + b"null",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 9) + b'{"a": 12}',
        struct.pack("<Q", 4) + b"{{{{",
        struct.pack("<Q", 30) + b'{"a":{"data_offsets":[0,"x"]}}',
        struct.pack("<Q", 60) + b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,4]}}      ' + b"\0" * 4,
        struct.pack("<Q", 60) + b'{"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}}      ' + b"\0" * 4,
        struct.pack("<Q", 60) + b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}      ' + b"\0" * 8,
        struct.pack("<Q", 2**62) + b"{}",
    ],
)
def test_a_corrupt_file(content: bytes, saved: Path) -> None:
    path = saved / "model.safetensors"
    path.write_bytes(content)
    assert str(path) in refused(saved, "corrupt|truncated|not a valid")


def test_a_file_with_extra_bytes(saved: Path) -> None:
    path = saved / "model.safetensors"
    path.write_bytes(path.read_bytes() + b"more")
    refused(saved, "not a valid safetensors file")


@pytest.mark.parametrize("content", ["", "{", "[1, 2]", '"text"', "{'a': 1}", "[" * 100_000])
def test_bad_json(content: str, saved: Path) -> None:
    (saved / "config.json").write_text(content)
    assert "config.json" in refused(saved, "JSON")


def test_text_that_is_not_utf8(saved: Path) -> None:
    (saved / "config.json").write_bytes(b'{"a": "\xff\xfe"}')
    refused(saved, "config.json is not JSON")


def test_missing_files(saved: Path) -> None:
    (saved / "model.safetensors").rename(saved / "away")
    refused(saved, "there is no model.safetensors in")
    (saved / "config.json").unlink()
    refused(saved, "there is no config.json in")
    (saved / "settings.json").write_text("{}")  # as a run that was interrupted
    refused(saved, "has no model yet; it goes on with: glassbert resume")
    with pytest.raises(CheckpointError, match="there is no file or folder /nowhere/at/all"):
        glassbert.load("/nowhere/at/all")
    with pytest.raises(CheckpointError, match=r"neither a folder nor a \.safetensors file"):
        glassbert.load(saved / "away")


def test_several_weight_files(saved: Path) -> None:
    (saved / "model.safetensors").rename(saved / "a.safetensors")
    (saved / "b.safetensors").write_bytes((saved / "a.safetensors").read_bytes())
    with pytest.raises(CheckpointError, match=r"give the path of one file: a\.safetensors, b\.safetensors"):
        load(saved)
    load(saved / "b.safetensors")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pkl", "model.ckpt"])
def test_pickles_are_never_opened(name: str, saved: Path) -> None:
    (saved / "model.safetensors").unlink()
    (saved / name).write_bytes(f"cos\nsystem\n(S'touch {saved}/opened'\ntR.".encode())
    for path in (saved, saved / name):
        message = refused(path, f"{name} is a pickle")
        assert "from transformers import BertForMaskedLM" in message
        assert (
            f"BertForMaskedLM.from_pretrained({str(saved)!r}).save_pretrained({str(saved) + '-safetensors'!r})"
            in message
        )
    assert not (saved / "opened").exists()


def test_other_weights(saved: Path) -> None:
    (saved / "model.safetensors").unlink()
    (saved / "tf_model.h5").write_bytes(b"")
    refused(saved, r"tf_model\.h5 is not safetensors")


# ---- shards ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    save_model(tiny(), tmp_path, max_shard_size=2_000)
    return tmp_path


def edit_index(folder: Path, **changes: Any) -> None:
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_missing_shard(sharded: Path) -> None:
    shard = sorted(sharded.glob("model-*"))[1]
    shard.unlink()
    assert shard.name in refused(sharded, "no such file")


def test_a_truncated_shard(sharded: Path) -> None:
    shard = sorted(sharded.glob("model-*"))[1]
    shard.write_bytes(shard.read_bytes()[:-3])
    assert str(shard) in refused(sharded, "3 of its .* bytes are missing")


def test_an_index_that_does_not_fit(sharded: Path) -> None:
    places = json.loads((sharded / "model.safetensors.index.json").read_text())["weight_map"]
    shards = sorted(set(places.values()))
    edit_index(sharded, weight_map={**places, "ghost": shards[0]})
    refused(sharded, "tensor 'ghost' is missing from model-00001")
    edit_index(sharded, weight_map={name: shard for name, shard in places.items() if name != ONE_KEY})
    refused(sharded, f"{ONE_KEY}.*but not according to")
    edit_index(sharded, weight_map=[1])
    refused(sharded, "weight_map")


@pytest.mark.parametrize("place", ["../model.safetensors", "/etc/passwd", "a/b.safetensors", "model.bin"])
def test_an_index_that_points_elsewhere(place: str, sharded: Path) -> None:
    edit_index(sharded, weight_map={"x": place})
    refused(sharded, "not a .safetensors file in its folder")


# ---- half precision --------------------------------------------------------------------------------------------------


def as_bfloat16(values: np.ndarray) -> np.ndarray:
    """float32 truncated to bfloat16."""
    return (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def write_bfloat16(tensors: dict[str, np.ndarray], path: Path) -> None:
    """Write a file whose header has a length that leaves the values unaligned."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, values in tensors.items():
        raw = as_bfloat16(values).tobytes()
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    text += b" " * (1 - len(text) % 2)
    assert len(text) % 2 == 1
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


@pytest.mark.parametrize("family", CONFIGS)
def test_half_precision(family: str, tmp_path: Path) -> None:
    model = tiny(CONFIGS[family])
    model.save(tmp_path)
    path = tmp_path / "model.safetensors"

    def halve(tensors: dict[str, np.ndarray]) -> None:
        tensors.update({name: values.astype(np.float16) for name, values in tensors.items()})

    edit_tensors(tmp_path, halve)
    for name, value in weights(load(tmp_path)).items():
        assert np.array_equal(value, model.parameters[name].astype(np.float16).astype(np.float32)), name
    model.save(tmp_path)
    edit_tensors(tmp_path, lambda tensors: write_bfloat16(tensors, tmp_path / "half"))
    (tmp_path / "half").replace(path)
    for name, value in weights(load(tmp_path)).items():
        upper = as_bfloat16(model.parameters[name]).astype(np.uint32) << 16
        assert value.dtype == np.float32 and np.array_equal(value, upper.view(np.float32)), name


# ---- the hub ---------------------------------------------------------------------------------------------------------


def test_hub_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_hub(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("huggingface_hub"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_hub)
    with pytest.raises(CheckpointError, match=r"'answerdotai/ModernBERT-base'.*pip install huggingface_hub"):
        glassbert.load("answerdotai/ModernBERT-base")


def fake_hub(monkeypatch: pytest.MonkeyPatch, download: Any) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", types.SimpleNamespace(snapshot_download=download))


def test_hub_without_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> str:
        raise ConnectionError("no route to host")

    fake_hub(monkeypatch, fail)
    with pytest.raises(CheckpointError, match=r"'someone/model'.*ConnectionError: no route to host"):
        glassbert.load("someone/model")


def test_hub(monkeypatch: pytest.MonkeyPatch, saved: Path) -> None:
    asked = {}

    def download(name: str, revision: str | None, allow_patterns: list[str]) -> str:
        asked.update(name=name, revision=revision, patterns=allow_patterns)
        return str(saved)

    fake_hub(monkeypatch, download)
    assert load("someone/model", revision="v1").config == BERT  # type: ignore[arg-type]
    assert asked["name"] == "someone/model" and asked["revision"] == "v1"
    assert not any(pattern.endswith((".bin", "*")) for pattern in asked["patterns"])
    (saved / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"no safetensors(.|\n)*AutoModel\.from_pretrained\('someone/model'\)"):
        glassbert.load("someone/model")


def test_a_local_folder_comes_before_the_hub(monkeypatch: pytest.MonkeyPatch, saved: Path) -> None:
    fake_hub(monkeypatch, None)
    monkeypatch.chdir(saved.parent)
    assert load("model").config == BERT  # type: ignore[arg-type]


def test_the_safetensors_package_agrees_with_our_reader(tmp_path: Path) -> None:
    """Zero-sized and scalar tensors are valid in the format, even if no model has them."""
    from glassbert.checkpoints.stored import open_safetensors

    arrays = {"none": np.zeros((0, 3), np.float32), "scalar": np.array(2.5), "one": np.ones((2, 2), np.float16)}
    save_file(arrays, tmp_path / "x.safetensors")
    for name, tensor in open_safetensors(tmp_path / "x.safetensors").items():
        assert np.array_equal(tensor.read(), arrays[name]) and tensor.shape == arrays[name].shape
