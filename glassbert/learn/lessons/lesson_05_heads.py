# /// script
# [tool.marimo.display]
# theme = "system"
# ///

import marimo

app = marimo.App(app_title="5 · Heads and masks", width="medium")


@app.cell(hide_code=True)
def _():
    import marimo as mo
    import numpy as np

    from glassbert import ops
    from glassbert.learn import check, show
    from glassbert.learn.models import encode, trained
    from glassbert.ops.attention import AttentionPattern, attention_weights

    return AttentionPattern, attention_weights, check, encode, mo, np, ops, show, trained


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    # 5 · Heads and masks

    **One idea.** The features of a token are cut into heads, and each head attends on its own. A mask says which keys
    are real.

    $$\text{context} = \mathrm{softmax}\!\left(\frac{q k^\top}{\sqrt d}\right) v$$

    $$q, k, v\ [B, \text{heads}, T, d]$$

    Texts of a batch have different lengths. The shorter ones are filled with padding, and padding must have no
    influence: not a small one, none.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    choice = mo.ui.radio(
        ["their weights still add up to 1", "their weights add up to less than 1", "their weights become NaN"],
        label="**Predict.** Somebody sets the weights of padding to 0 *after* the softmax. What happens to the weights "
        "of the real tokens?",
    )
    choice
    return (choice,)


@app.cell(hide_code=True)
def _(choice, np, ops, show):
    _weights, _ = ops.softmax(np.array([1.0, 0.5, -0.3, 0.2]))
    _kept = _weights * np.array([1, 1, 1, 0])
    _still, _less, _ = choice.options
    _right = _still if abs(_kept.sum() - 1) < 1e-9 else _less
    show.answer(
        choice,
        _right,
        f"In an example with one padded key they add up to {_kept.sum():.3f}. The more padding a batch has, the "
        "smaller the result: a text's output would depend on its neighbours in the batch. So scores are masked, before "
        "the softmax.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## Move: padding

    Six keys, of which the first n are real. Masked scores are set to -1e30; their weight is exactly 0.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    real = mo.ui.slider(1, 6, 1, value=4, label="real tokens", show_value=True)
    real
    return (real,)


@app.cell(hide_code=True)
def _(AttentionPattern, attention_weights, mo, np, real, show):
    _draw = np.random.default_rng(1)
    _q, _k = _draw.standard_normal((2, 1, 1, 6, 8))
    _mask = (np.arange(6) < real.value).astype(int)[None]
    _weights = attention_weights(_q, _k, AttentionPattern(keys=_mask))[0, 0]
    _names = [f"key {i}" if i < real.value else "padding" for i in range(6)]
    mo.vstack(
        [
            show.heat(_weights, [f"query {i}" for i in range(6)], _names, title="weights", limit=1.0, name="padded"),
            mo.md(
                f"Rows add up to {_weights.sum(-1).min():.6f}; weight on padding: {_weights[:, real.value :].sum():g}."
            ),
        ]
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## Heads of a trained model

    One head can make one distribution over the keys. A word may need several: what is its verb, what stands before it,
    whose is it? So there are several heads, each with its own part of the features. Choose layer, head and word.
    """)
    return


@app.cell(hide_code=True)
def _(encode, np, trained):
    from glassbert.insight import attention_maps

    model, tokenizer, _ = trained()
    ids, mask = encode(tokenizer, ["the queen in the garden loves her horse ."])
    tokens = [tokenizer.id_to_token(int(i)) for i in ids[0]]
    maps = attention_maps(model, ids, mask).astype(np.float64)  # [layers, 1, heads, T, T]
    return ids, maps, mask, model, tokens


@app.cell(hide_code=True)
def _(maps, mo, tokens):
    layer = mo.ui.slider(0, maps.shape[0] - 1, 1, value=maps.shape[0] - 1, label="layer", show_value=True)
    _names = {f"{i} {token}": i for i, token in enumerate(tokens)}
    word = mo.ui.dropdown(_names, value=f"{tokens.index('her')} her", label="query")
    mo.hstack([layer, word], justify="start", gap=3)
    return layer, word


@app.cell(hide_code=True)
def _(layer, maps, show, tokens, word):
    show.heat(
        maps[layer.value, 0, :, word.value],
        [f"head {h}" for h in range(maps.shape[2])],
        tokens,
        title=f"what '{tokens[word.value]}' looks at in layer {layer.value}",
        limit=1.0,
        name="heads",
    )
    return


@app.cell(hide_code=True)
def _(ids, mask, mo, model, np, show):
    _, _cache = model.forward(ids, mask, trace=True)
    _context = np.asarray(_cache["layers.0.attention.context"])  # [1, heads, T, d]
    _merged = np.asarray(_cache["layers.0.attention.merged"])  # [1, T, H]
    _heads, _size = _context.shape[1], _context.shape[3]
    mo.vstack(
        [
            mo.md(f"""
    After attention the heads are put side by side again: {_heads} heads of {_size} make {_merged.shape[-1]} features.
    The first four features of head 0 and of head 1 for the token *queen*, and where they are in the merged row:
    """),
            show.side_by_side(
                show.heat(_context[0, :2, 2, :4], ["head 0", "head 1"], title="context [heads, d]"),
                show.heat(_merged[0, 2, :4], title="merged, features 0 to 3"),
                show.heat(_merged[0, 2, _size : _size + 4], title=f"merged, features {_size} to {_size + 3}"),
            ),
        ]
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("## Write them yourself")
    return


@app.cell(hide_code=True)
def _(show):
    show.task("split_heads")
    return


@app.cell
def _():
    def split_heads(x, heads): ...

    return (split_heads,)


@app.cell(hide_code=True)
def _(check, split_heads):
    check(split_heads=split_heads)
    return


@app.cell(hide_code=True)
def _(show):
    show.task("attention")
    return


@app.cell
def _():
    def attention(q, k, v, mask): ...

    return (attention,)


@app.cell(hide_code=True)
def _(attention, check):
    check(attention=attention)
    return


@app.cell(hide_code=True)
def _(mo, show):
    mo.accordion({"What they became in the package": show.became("split_heads", "attention")})
    return


@app.cell(hide_code=True)
def _(mo, np):
    _x = np.arange(24).reshape(1, 3, 8)
    _wrong = _x.reshape(1, 4, 3, 2)
    _right = _x.reshape(1, 3, 4, 2).transpose(0, 2, 1, 3)
    mo.md(f"""
    ## A surprise

    Number the features of three tokens from 0 to 23: token 0 has 0 to 7. Head 0 must hold
    {_right[0, 0].tolist()}: two features of each token. A reshape to the right shape gives {_wrong[0, 0].tolist()}: six
    features of one token. Nothing complains: the shapes fit. Only the meaning of a head is lost.
    """)
    return


if __name__ == "__main__":
    app.run()
