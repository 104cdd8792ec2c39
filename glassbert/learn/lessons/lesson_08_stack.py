# /// script
# [tool.marimo.display]
# theme = "system"
# ///

import marimo

app = marimo.App(app_title="8 · The stack", width="medium")


@app.cell(hide_code=True)
def _():
    import marimo as mo
    import numpy as np

    import glassbert
    from glassbert import ops
    from glassbert.layers.attention import heads_first, merge_heads
    from glassbert.learn import check, show
    from glassbert.models.memory import activation_numbers
    from glassbert.ops.attention import AttentionPattern, split_heads

    return (
        AttentionPattern,
        activation_numbers,
        check,
        glassbert,
        heads_first,
        merge_heads,
        mo,
        np,
        ops,
        show,
        split_heads,
    )


@app.cell(hide_code=True)
def _(glassbert, mo):
    mini = glassbert.MINI_BERT_CONFIG
    mo.md(f"""
    # 8 · The stack: parameters, memory, a forward pass by hand

    **One idea.** BERT is: look up, add, then the same block again and again, then scores for every word of the
    vocabulary. You already know every part.

    `ids → embeddings → {mini.num_hidden_layers} blocks → norm → decoder → scores`
    """)
    return (mini,)


@app.cell(hide_code=True)
def _(mo):
    choice = mo.ui.radio(
        ["attention", "the feed-forward layers", "the two tables of words"],
        label="**Predict.** Where are most of Mini-BERT's parameters?",
    )
    choice
    return (choice,)


@app.cell(hide_code=True)
def _(glassbert, np):
    def parts_of(config):
        """The number of parameters by part, counted on a model."""
        model = glassbert.MiniBERT(config, engine="numpy", initialize=False)
        parts = {"attention": 0, "the feed-forward layers": 0, "the two tables of words": 0, "the rest": 0}
        for name, shape in model.layout.shapes.items():
            words = name.startswith(("embeddings.token", "head.decoder"))
            part = "the two tables of words" if words else "the rest"
            if ".attention." in name:
                part = "attention"
            if ".ffn." in name:
                part = "the feed-forward layers"
            parts[part] += int(np.prod(shape))
        return parts

    return (parts_of,)


@app.cell(hide_code=True)
def _(choice, mini, parts_of, show):
    _parts = parts_of(mini)
    _best = max(_parts, key=_parts.get)
    _total = sum(_parts.values())
    show.answer(
        choice,
        _best,
        f"{_parts[_best]:,} of {_total:,}, {_parts[_best] / _total:.0%}. A small model is mostly dictionary. That is "
        "why tying the two tables saves so much.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## Move: the size of a model

    Memory in training: the weights, their gradients and AdamW's two means are 4 numbers for each parameter. What a
    forward keeps for its backward comes on top, and grows with the batch.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    layers = mo.ui.slider(1, 24, 1, value=3, label="layers", show_value=True)
    hidden = mo.ui.slider(steps=[64, 128, 192, 256, 384, 512, 768], value=192, label="hidden size", show_value=True)
    batch = mo.ui.slider(steps=[1, 8, 32, 128], value=32, label="batch", show_value=True)
    mo.hstack([layers, hidden, batch], justify="start", gap=3, wrap=True)
    return batch, hidden, layers


@app.cell(hide_code=True)
def _(activation_numbers, batch, hidden, layers, mini, mo, parts_of, show):
    _config = mini.replace(num_hidden_layers=layers.value, hidden_size=hidden.value, intermediate_size=4 * hidden.value)
    _parts = parts_of(_config)
    _total = sum(_parts.values())
    _kept = sum(activation_numbers(_config, batch.value, 64).values())
    mo.vstack(
        [
            show.bars(_parts, title="parameters", digits=0),
            mo.md(
                f"<span class='parameters'>**{_total:,}** parameters.</span> Weights, gradients and two means in "
                f"float32: **{4 * 4 * _total / 2**20:,.0f} MiB**. Kept by the forward for {batch.value} rows of 64: "
                f"**{4 * _kept / 2**20:,.0f} MiB**."
            ),
        ]
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## A forward pass by hand

    A real Mini-BERT in float64, four tokens, and the operations of lessons 1 to 7, one after the other. At every
    step we compare with the value of the same name in the model's own cache.
    """)
    return


@app.cell(hide_code=True)
def _(AttentionPattern, glassbert, heads_first, merge_heads, mini, np, ops, show, split_heads):
    _model = glassbert.MiniBERT(mini, engine="numpy", dtype="float64", kernels="plain")
    _p = _model.parameters
    _ids, _mask = np.array([[2, 17, 99, 3]]), np.array([[1, 1, 1, 1]])
    _scores, _cache = _model.forward(_ids, _mask, trace=True)
    _steps = {}

    def _note(name, value):
        _steps[name] = float(np.abs(value - np.asarray(_cache[name])).max())
        return value

    _x = _note("embeddings.sum", ops.embedding(_p["embeddings.token"], _ids)[0] + _p["embeddings.position"][:4])
    for _i in range(mini.num_hidden_layers):
        _a, _f = f"layers.{_i}.attention.", f"layers.{_i}.ffn."
        _qkv = ops.linear(_x, _p[_a + "qkv.weight"], _p[_a + "qkv.bias"])[0]
        _q, _k, _v = (heads_first(part) for part in split_heads(_qkv, mini.num_attention_heads))
        _context = _note(_a + "context", ops.attention(_q, _k, _v, AttentionPattern(keys=_mask))[0])
        _branch = ops.linear(merge_heads(_context), _p[_a + "output.weight"], _p[_a + "output.bias"])[0]
        _x = ops.layer_norm(_x + _branch, _p[_a + "norm.weight"], _p[_a + "norm.bias"], mini.layer_norm_eps)[0]
        _wide = ops.relu(ops.linear(_x, _p[_f + "up.weight"], _p[_f + "up.bias"])[0])[0]
        _branch = ops.linear(_wide, _p[_f + "down.weight"], _p[_f + "down.bias"])[0]
        _x = ops.layer_norm(_x + _branch, _p[_f + "norm.weight"], _p[_f + "norm.bias"], mini.layer_norm_eps)[0]
        _note(f"layers.{_i}.output", _x)
    _x = ops.layer_norm(_x, _p["final_norm.weight"], _p["final_norm.bias"], mini.layer_norm_eps)[0]
    _note("head.logits", ops.linear(_x, _p["head.decoder.weight"], _p["head.decoder.bias"])[0])
    largest_gap = max(_steps.values())
    show.heat(
        np.array([list(_steps.values())]).T,
        list(_steps),
        ["largest difference"],
        digits=1,
        title="by hand against the model",
    )
    return (largest_gap,)


@app.cell(hide_code=True)
def _(largest_gap, mo):
    mo.md(f"""
    The largest difference is {largest_gap:.0e}: rounding. These few lines are the whole forward pass.

    ## Write it yourself
    """)
    return


@app.cell(hide_code=True)
def _(show):
    show.task("parameter_count")
    return


@app.cell
def _():
    def parameter_count(vocab_size, positions, hidden_size, layers, intermediate_size): ...

    return (parameter_count,)


@app.cell(hide_code=True)
def _(check, parameter_count):
    check(parameter_count=parameter_count)
    return


@app.cell(hide_code=True)
def _(mo, show):
    from glassbert.models.encoder import Encoder

    mo.accordion({"What it became in the package": show.became("parameter_count") + show.source(Encoder.forward)})
    return


@app.cell(hide_code=True)
def _(mini, mo, parts_of):
    _four, _twelve = (sum(parts_of(mini.replace(num_attention_heads=heads)).values()) for heads in (4, 12))
    mo.md(f"""
    ## A surprise

    Mini-BERT with 4 heads has {_four:,} parameters. With 12 heads it has {_twelve:,}: **{_twelve - _four:+,}**. Heads
    are not extra weights, they only cut the same features into smaller parts.
    """)
    return


if __name__ == "__main__":
    app.run()
