"""Benchmarks of speed and memory, compared with PyTorch, transformers and ONNX Runtime. Each prints one table.

    python -m benchmarks.train_step      a training step on the CPU
    python -m benchmarks.inference       sentence embeddings on the CPU
    python -m benchmarks.serve           vectors over HTTP, beside FastAPI and transformers; `--soak` for overload
    python -m benchmarks.long_context    ModernBERT at 8,192 tokens on the CPU
    python -m benchmarks.gpu             a training step in bfloat16 on a GPU
    python -m benchmarks.gpu_profile     the kernels of such a step, in a table that adds up
    python -m benchmarks.gpu_registers   our CUDA kernels compiled without a GPU: errors, registers, local memory
    python -m benchmarks.memory          memory of a training step, compared with `model.describe()`
    python -m benchmarks.tokenizer       encoding compared with `tokenizers`, in speed and results
    python -m benchmarks.vocabulary      vocabularies trained by GlassBERT and by `tokenizers`
    python -m benchmarks.corpus SOURCES  building a corpus compared with `tokenizers` alone, and its memory
    python -m benchmarks.data CORPUS     packing, masking and batch creation
    python -m benchmarks.optimizers      the loss of every optimizer after the same steps
    python -m benchmarks.trainer         the trainer compared with the bare training step
    python -m benchmarks.learning CORPUS the loss of a Mini-BERT after the same minutes, here and on PyTorch
    python -m benchmarks.scaling         threads and processes; `benchmarks.scaling_model` predicts networks
    python -m benchmarks.compare A B     two commits of this repository: is B slower?

Every contender runs in its own process, with its own threads, allocator and memory. Contenders take turns in every
round, and rounds in which the machine was disturbed are repeated (`benchmarks/harness.py`). The reported ratio is the
median over rounds of the ratio within a round, with its 95 % bootstrap interval. `--json` adds one line with a JSON
object at the end, `--json FILE` writes it into a file.
"""
