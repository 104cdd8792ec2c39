"""Quantised models beside ONNX Runtime's own dynamic int8 and PyTorch's: size, memory, speed and quality.

    python -m benchmarks.quantize [--rounds N] [--data DIR] [--mini DIR] [--sst2-model DIR] [--only PARTS] [--json]

all-MiniLM-L6-v2: sentences/s on full rows (B 32, T 128) and on real sentences in batches of 32 in their order, and
STS-B (Spearman with human judgements). `--mini`, a masked language model: accuracy of masked words in SST-2's reviews.
`--sst2-model`, a folder that was fine-tuned on SST-2: its accuracy on the dev set. Every contender has its own process;
rounds are interleaved, and the numbers are medians. Size is that of the weights in their file, beside float32;
memory is the peak above that after the imports, while the sentences are embedded.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import (
    Contenders,
    Spread,
    Table,
    Worker,
    add_json_option,
    count,
    describe_machine,
    interleave,
    mib,
    progress,
    require,
    rounded,
    run_program,
    show_json,
)
from benchmarks.inference import (
    BATCH,
    DATA,
    Batches,
    Embedder,
    Ours,
    model_folder,
    pad,
    sentences,
    session_of,
    torch_embedder,
    workloads,
)

MINI = DATA.parent / "models" / "mini-4m"
OURS = {"float32": "GlassBERT float32", "int8": "GlassBERT int8", "int4": "GlassBERT int4"}
NAMES = {
    **OURS,
    "graph8": "GlassBERT int8 on ONNX Runtime",
    "onnx": "ONNX Runtime, its dynamic int8",
    "torch": "PyTorch, dynamic int8",
}
BITS = {"int8": 8, "int4": 4}
TEXTS = 400  # of the reviews


# ---- contenders of MiniLM --------------------------------------------------------------------------------------------


class Quantised(Ours):
    """A folder that `quantize` wrote, or the float model; pooled by the head."""

    def __init__(self, batches: dict[str, Batches], folder: str):
        from glassbert.checkpoints import load

        Embedder.__init__(self, batches)
        self.model = load(folder, engine="numpy", head="core")
        self.facts = {"bytes": sum(path.stat().st_size for path in Path(folder).glob("*.safetensors"))}


class Graph(Embedder):
    """An exported graph of ours."""

    @staticmethod
    def imports() -> None:
        import onnxruntime  # noqa: F401

    def __init__(self, batches: dict[str, Batches], path: str):
        super().__init__(batches)
        self.session = session_of(Path(path))
        self.inputs = {one.name for one in self.session.get_inputs()}
        self.facts = {"bytes": Path(path).stat().st_size}

    def embed(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        names = [one.name for one in self.session.get_outputs()]
        output = names.index("sentence_embedding")
        return self.session.run(None, {name: given[name] for name in self.inputs})[output]


class OnnxDynamic(Graph):
    """The faster of the graphs in the folder, each quantised by `onnxruntime.quantization.quantize_dynamic`."""

    def __init__(self, batches: dict[str, Batches], folder: str):
        found: dict[Path, float] = {}
        for path in sorted(Path(folder).glob("*.int8.onnx")):
            super().__init__(batches, str(path))
            self.run("full")
            found[path] = min(self.run("full") for _ in range(2))
        best = min(found, key=found.__getitem__)
        super().__init__(batches, str(best))
        self.facts["graph"] = best.name


class TorchDynamic(Embedder):
    @staticmethod
    def imports() -> None:
        import torch  # noqa: F401
        from transformers import BertModel  # noqa: F401

    def __init__(self, batches: dict[str, Batches]):
        import torch

        from glassbert.engines.machine import usable_cores

        super().__init__({name: [tuple(map(torch.from_numpy, b)) for b in some] for name, some in batches.items()})
        torch.set_num_threads(usable_cores())
        self.inference_mode = torch.inference_mode
        self.model = torch.ao.quantization.quantize_dynamic(torch_embedder(), {torch.nn.Linear}, dtype=torch.qint8)
        file = io.BytesIO()
        torch.save(self.model.state_dict(), file)
        self.facts = {"bytes": file.getbuffer().nbytes}

    def embed(self, ids: Any, mask: Any) -> Any:
        with self.inference_mode():
            return self.model(ids, mask).numpy()


class ExportDynamic:
    """Exports PyTorch's graph and quantises it with ONNX Runtime; runs in its own process."""

    def write(self, folder: str) -> None:
        import logging

        from onnx import TensorProto
        from onnxruntime.quantization import QuantType, quantize_dynamic

        from benchmarks.inference import Export

        Export().write(folder)
        logging.disable(logging.WARNING)
        for path in sorted(Path(folder).glob("*.onnx")):
            target = str(path.with_suffix(".int8.onnx"))
            options = {"DefaultTensorType": TensorProto.FLOAT}  # of the outputs of fused operators
            quantize_dynamic(str(path), target, weight_type=QuantType.QInt8, extra_options=options)


# ---- measurement -----------------------------------------------------------------------------------------------------


def stsb_batches(data: Path) -> tuple[Batches, np.ndarray, list[float]]:
    """Sentences by length in batches, their order, and the judgements of the pairs (first half, second half)."""
    from tokenizers import Tokenizer

    lines = [line.split("\t") for line in (data / "stsb" / "sts-dev.csv").read_text(encoding="utf-8").splitlines()]
    tokenizer = Tokenizer.from_file(str(model_folder() / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(128)
    texts = [line[5] for line in lines] + [line[6] for line in lines]
    ids = [one.ids for one in tokenizer.encode_batch(texts)]
    order = np.argsort([len(one) for one in ids], kind="stable")
    some = [pad([ids[i] for i in order[j : j + BATCH]]) for j in range(0, len(order), BATCH)]
    return some, order, [float(line[4]) for line in lines]


def stsb_score(found: list[np.ndarray], order: np.ndarray, gold: list[float]) -> float:
    from glassbert.metrics import spearman

    vectors = np.empty((len(order), found[0].shape[1]))
    vectors[order] = np.concatenate(found)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return float(spearman(gold, (vectors[: len(gold)] * vectors[len(gold) :]).sum(1)))


def quantised_folders(source: str | Path, folder: Path, **options: Any) -> dict[str, Any]:
    """The folders of 8 and 4 bits, and what `quantize` reports."""
    from glassbert.quantization import QuantizationSettings, quantize

    found = {}
    for name, bits in BITS.items():
        progress(f"quantising {source} to {bits} bits")
        found[name] = quantize(source, folder / name, QuantizationSettings(bits), sensitivity=False, **options)
    return found


def minilm(rounds: int, data: Path) -> dict[str, Any]:
    source, texts = sentences()
    batches: dict[str, Batches] = workloads(texts)
    judged, order, gold = stsb_batches(data)
    with tempfile.TemporaryDirectory() as temporary, Contenders() as contenders:
        folder = Path(temporary)
        quantised_folders(model_folder(), folder)
        from glassbert.export import export_onnx

        export_onnx(folder / "int8")
        progress("exporting to ONNX")
        (folder / "peers").mkdir()
        exporter = Worker("benchmarks.quantize:ExportDynamic")
        exporter.call("write", str(folder / "peers"))
        exporter.close()
        everything = {**batches, "stsb": judged}
        for name in OURS:
            where = str(model_folder()) if name == "float32" else str(folder / name)
            contenders.add(name, Worker("benchmarks.quantize:Quantised", batches=everything, folder=where))
        graph = str(folder / "int8" / "onnx" / "model.onnx")
        contenders.add("graph8", Worker("benchmarks.quantize:Graph", batches=everything, path=graph))
        peers = str(folder / "peers")
        contenders.add("onnx", Worker("benchmarks.quantize:OnnxDynamic", batches=everything, folder=peers))
        contenders.add("torch", Worker("benchmarks.quantize:TorchDynamic", batches=everything))
        for name in NAMES:
            contenders[name].ready()
        times: dict[str, dict[str, list[float]]] = {}
        for workload in batches:
            turns: dict[str, Callable[[], float]] = {
                name: lambda name=name, w=workload: contenders[name].call("run", w)  # type: ignore[misc]
                for name in NAMES
            }
            times[workload] = interleave(turns, rounds)
        memory = {name: contenders[name].call("memory") for name in NAMES}
        facts = {name: contenders[name].call("describe") for name in NAMES}
        scores = {name: stsb_score(contenders[name].call("embeddings", "stsb"), order, gold) for name in NAMES}
    size = facts["float32"]["bytes"]
    report: dict[str, Any] = {"sentences": source, "contenders": {}}
    for name in NAMES:
        report["contenders"][name] = {
            "bytes": facts[name]["bytes"],
            "smaller": rounded(size / facts[name]["bytes"]),
            "peak_memory": memory[name],
            "stsb": rounded(scores[name]),
            "sentences_per_second": {w: rounded(BATCH / Spread.of(times[w][name]).median) for w in batches},
        }
    for w in batches:
        best = min(("onnx", "torch"), key=lambda name: Spread.of(times[w][name]).median)
        ours = min(("int8", "graph8"), key=lambda name: Spread.of(times[w][name]).median)
        ratio = Spread.of_ratio(times[w][best], times[w][ours])
        report[f"ratio_{w}"] = {"ours": ours, "best_peer": best, "ratio": rounded(ratio.median), "range": ratio.range}
    return report


def mini(path: Path, data: Path) -> dict[str, Any]:
    """The masked language model: size, and accuracy and loss of masked words, of ours and of ONNX Runtime's int8."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    from glassbert.export import export_onnx

    reviews = [line.split("\t")[0] for line in (data / "sst2" / "dev.tsv").read_text(encoding="utf-8").splitlines()]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        texts = folder / "reviews.txt"
        texts.write_text("\n".join(reviews[1 : TEXTS + 1]) + "\n", encoding="utf-8")
        found = quantised_folders(path, folder, data=texts)
        size = found["int8"].bytes_before  # in float32, whatever the file has
        first = found["int8"].compared
        report = {"float32": {"bytes": size, "smaller": 1.0, "accuracy": first[0].before, "loss": first[1].before}}
        for name, one in found.items():
            report[name] = {"bytes": one.file_bytes, "smaller": size / one.file_bytes}
            report[name] |= {"accuracy": one.compared[0].after, "loss": one.compared[1].after}
        export_onnx(path, folder / "graph")
        graph = folder / "graph" / "onnx" / "model.onnx"
        with contextlib.redirect_stdout(io.StringIO()):
            quantize_dynamic(str(graph), str(graph.with_name("int8.onnx")), weight_type=QuantType.QInt8)
        report["onnx"] = {"bytes": graph.with_name("int8.onnx").stat().st_size}
        report["onnx"]["smaller"] = size / report["onnx"]["bytes"]
        report["onnx"] |= _graph_accuracy(path, graph.with_name("int8.onnx"), reviews[1 : TEXTS + 1])
    return {name: {key: rounded(value) for key, value in row.items()} for name, row in report.items()}


def _graph_accuracy(path: Path, graph: Path, texts: list[str]) -> dict[str, float]:
    from glassbert.quantization.task import Words
    from glassbert.text.loading import load_with_tokenizer

    model, tokenizer = load_with_tokenizer(path, engine="numpy")
    task = Words(model, tokenizer, texts, "reviews")
    session = session_of(graph)
    right, losses = 0, 0.0
    for ids, where, targets in task.blocks:
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        names = {one.name for one in session.get_inputs()}
        logits = session.run(["logits"], {name: given[name] for name in names})[0]
        rows = logits.reshape(-1, logits.shape[-1])[where].astype(np.float64)
        rows -= rows.max(1, keepdims=True)
        right += int((rows.argmax(1) == targets).sum())
        losses += float((np.log(np.exp(rows).sum(1)) - rows[np.arange(len(rows)), targets]).sum())
    return {"accuracy": right / task.count, "loss": losses / task.count}


def sst2(path: Path, data: Path) -> dict[str, Any]:
    """A model that was fine-tuned on SST-2: accuracy on the dev set."""
    with tempfile.TemporaryDirectory() as temporary:
        found = quantised_folders(path, Path(temporary), data=data / "sst2" / "dev.tsv")
        scores = {
            name: next(score for score in one.compared if score.name == "accuracy") for name, one in found.items()
        }
        report: dict[str, Any] = {"float32": {"accuracy": scores["int8"].before}}
        for name, one in found.items():
            lost = scores[name]
            report[name] = {"accuracy": lost.after, "lost": lost.loss, "interval": lost.loss_interval}
            report[name]["smaller"] = one.smaller
    return report


# ---- tables ----------------------------------------------------------------------------------------------------------


def show(report: dict[str, Any]) -> None:
    if "minilm" in report:
        found = report["minilm"]
        table = Table(
            "all-MiniLM-L6-v2",
            ["", "file", "smaller", "peak memory", "full rows/s", "sentences/s", "STS-B"],
        )
        for name, row in found["contenders"].items():
            speed = row["sentences_per_second"]
            table.rows.append(
                [NAMES[name], mib(row["bytes"]), f"{row['smaller']:.2f}x", mib(row["peak_memory"]),
                 f"{speed['full']:,.0f}", f"{speed['mixed']:,.0f}", f"{row['stsb']:.4f}"]
            )  # fmt: skip
        for w, what in (("full", "full rows"), ("mixed", "real sentences")):
            one = found[f"ratio_{w}"]
            ours, peer = NAMES[one["ours"]], NAMES[one["best_peer"]]
            table.notes.append(f"{what}: {ours} is {one['ratio']:.2f}x as fast as the best peer, {peer}")
        table.show()
    if "mini" in report:
        table = Table("Masked words", ["", "file", "smaller", "accuracy", "loss"])
        for name, row in report["mini"].items():
            table.rows.append([NAMES[name], mib(row["bytes"]), f"{row['smaller']:.2f}x", f"{row['accuracy']:.4f}",
                               f"{row['loss']:.4f}"])  # fmt: skip
        table.show()
    if "sst2" in report:
        table = Table("SST-2", ["", "accuracy", "lost", "smaller"])
        for name in OURS:
            row = report["sst2"][name]
            lost = f"{row['lost']:+.4f}" if "lost" in row else ""
            table.rows.append([NAMES[name], f"{row['accuracy']:.4f}", lost, f"{row.get('smaller', 1.0):.2f}x"])
        table.show()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=count, default=15)
    parser.add_argument("--data", type=Path, default=DATA, help="a folder with stsb/ and sst2/")
    parser.add_argument("--mini", type=Path, default=MINI, help="a masked language model")
    parser.add_argument("--sst2-model", type=Path, help="a folder or run that was fine-tuned on SST-2")
    parser.add_argument("--only", default="minilm,mini,sst2", help="parts, separated by commas")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    parts = options.only.split(",")
    if unknown := set(parts) - {"minilm", "mini", "sst2"}:
        parser.error(f"unknown part {', '.join(sorted(unknown))}; choose from minilm, mini, sst2")
    if "minilm" in parts:
        require("torch", "transformers", "onnx", "onnxruntime")
    machine, described = describe_machine("torch", "transformers", "onnxruntime")
    report: dict[str, Any] = {"machine": described}
    if "minilm" in parts:
        report["minilm"] = minilm(options.rounds, options.data)
    if "mini" in parts and options.mini.exists():
        report["mini"] = mini(options.mini, options.data)
    elif "mini" in parts:
        print(f"without masked words: there is no model {options.mini}; name one with --mini")
    if "sst2" in parts and options.sst2_model is not None:
        report["sst2"] = sst2(options.sst2_model, options.data)
    elif "sst2" in parts:
        print("without SST-2: name a model that was fine-tuned on it with --sst2-model")
    if options.json:
        show_json(report, options.json)
        return
    show(report)
    print(machine)


if __name__ == "__main__":
    run_program(main)
