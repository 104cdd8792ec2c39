"""Measurements of speed and memory beside PyTorch, transformers and ONNX Runtime. Each prints one table.

    python -m benchmarks.train_step      a training step on the CPU
    python -m benchmarks.inference       sentence embeddings on the CPU
    python -m benchmarks.long_context    ModernBERT at 8,192 tokens on the CPU
    python -m benchmarks.gpu             a training step in bfloat16 on a GPU

Every contender lives in a process of its own, so that its threads, its allocator and its memory are its alone. They
take turns, round after round, and what is reported is the median over the rounds of the ratio within a round:
whatever slows the machine for a while slows everybody. `--json` adds one line with one object at the very end.
"""
