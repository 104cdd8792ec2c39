"""Measurements of speed and memory beside PyTorch, transformers and ONNX Runtime. Each prints one table.

    python -m benchmarks.train_step      a training step on the CPU
    python -m benchmarks.inference       sentence embeddings on the CPU
    python -m benchmarks.long_context    ModernBERT at 8,192 tokens on the CPU
    python -m benchmarks.gpu             a training step in bfloat16 on a GPU
    python -m benchmarks.memory          memory of a training step beside what `model.describe()` predicts
    python -m benchmarks.tokenizer       encoding beside `tokenizers`, and whether both agree
    python -m benchmarks.vocabulary      vocabularies learned by us and by `tokenizers`
    python -m benchmarks.corpus SOURCES  building a corpus beside `tokenizers` alone, and its memory
    python -m benchmarks.data CORPUS     packing, masking and the making of batches
    python -m benchmarks.optimizers      what every optimizer learns in the same steps
    python -m benchmarks.trainer         the trainer beside the bare step
    python -m benchmarks.learning CORPUS what a Mini-BERT learns in the same minutes, here and on PyTorch
    python -m benchmarks.scaling         threads and processes; `benchmarks.scaling_model` predicts networks

Every contender lives in a process of its own, so that its threads, its allocator and its memory are its alone. They
take turns, round after round, and what is reported is the median over the rounds of the ratio within a round:
whatever slows the machine for a while slows everybody. `--json` adds one line with one object at the very end.
"""
