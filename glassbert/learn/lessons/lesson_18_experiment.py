# /// script
# [tool.marimo.display]
# theme = "system"
# ///

import marimo

app = marimo.App(app_title="18 · Fast kernels and an experiment", width="medium")


@app.cell(hide_code=True)
def _():
    import time

    import marimo as mo
    import numpy as np

    import glassbert
    from glassbert import ops
    from glassbert.learn import check, show
    from glassbert.learn.models import tiny_config, tiny_tokenizer, train_tiny
    from glassbert.ops.attention import AttentionPattern

    return AttentionPattern, check, glassbert, mo, np, ops, show, time, tiny_config, tiny_tokenizer, train_tiny


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    # 18 · The fast kernels, and an experiment of your own

    *An open lesson: it ends where you stop asking.*

    **One idea.** The fast code computes the same function as the readable code, and a test holds them together. So you
    can read one and run the other. And with a fast model you can ask a question of your own.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    choice = mo.ui.radio(
        ["4 times", "16 times", "the same"],
        label="**Predict.** Attention keeps its weights for the backward. The text becomes four times as long. How "
        "much more memory do the weights need?",
    )
    choice
    return (choice,)


@app.cell(hide_code=True)
def _(AttentionPattern, choice, np, ops, show):
    def _kept(length):
        q = np.zeros((1, 1, length, 8))
        return ops.attention(q, q, q, AttentionPattern())[1][3].nbytes

    _ratio = _kept(256) / _kept(64)
    _four, _sixteen, _same = choice.options
    _right = min(((_four, 4), (_sixteen, 16), (_same, 1)), key=lambda one: abs(one[1] - _ratio))[0]
    show.answer(
        choice,
        _right,
        f"{_ratio:g} times: a square. Tiled attention keeps one number a query instead, and computes again.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## Move: the tile

    A softmax needs the maximum and the sum of a whole row. Or does it? Look at the keys a tile at a time and keep three
    things: the largest score so far, the sum of exponentials, the weighted sum of values. When a larger score comes,
    the old sums are rescaled.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    tile = mo.ui.slider(1, 8, 1, value=2, label="keys in a tile", show_value=True)
    tile
    return (tile,)


@app.cell(hide_code=True)
def _(mo, np, ops, show, tile):
    _draw = np.random.default_rng(2)
    _scores, _values = 2.0 * _draw.standard_normal(8), _draw.standard_normal((8, 3))
    _top, _total, _out, _rows = -np.inf, 0.0, np.zeros(3), []
    for _start in range(0, 8, tile.value):
        _s, _v = _scores[_start : _start + tile.value], _values[_start : _start + tile.value]
        _new = max(_top, _s.max())
        _shrink = float(np.exp(_top - _new))
        _e = np.exp(_s - _new)
        _total, _out, _top = _total * _shrink + _e.sum(), _out * _shrink + _e @ _v, _new
        _rows.append([_top, _shrink, _total, *(_out / _total)])
    _whole = ops.softmax(_scores)[0] @ _values
    mo.vstack(
        [
            show.heat(_scores, title="scores"),
            show.heat(
                _rows,
                [f"after key {min(8, start + tile.value)}" for start in range(0, 8, tile.value)],
                ["maximum", "rescaled by", "sum", "context 0", "context 1", "context 2"],
                digits=3,
                name="tiles",
            ),
            show.heat(_whole, title="context by the whole softmax", digits=3),
        ]
    )
    return


@app.cell(hide_code=True)
def _(AttentionPattern, mo, np, ops):
    _draw = np.random.default_rng(3)
    _q, _k, _v = _draw.standard_normal((3, 1, 2, 700, 16))
    _pattern = AttentionPattern()
    _plain, _plain_state = ops.attention(_q, _k, _v, _pattern)
    _tiled, _tiled_state = ops.tiled_attention(_q, _k, _v, _pattern)
    _dplain, _dtiled = ops.attention_backward(_v, _plain_state), ops.tiled_attention_backward(_v, _tiled_state)
    _gap = max(float(np.abs(a - b).max()) for a, b in zip(_dplain[:3], _dtiled[:3], strict=True))
    mo.md(f"""
    The package's plain and tiled attention differ by {np.abs(_plain - _tiled).max():.0e}; gradients by {_gap:.0e}.

    ## Which code runs?
    """)
    return


@app.cell(hide_code=True)
def _(glassbert, mo):
    _names = ("linear", "layer_norm", "gelu", "attention", "cross_entropy")
    _found = [source for name in _names for source in glassbert.which(name, "numpy")]
    _rows = "\n    ".join(f"| {s.operation} | {s.kernels} | `{s.file}:{s.line}` |" for s in _found)
    mo.md(f"""
    | function | kind | where |
    |---|---|---|
    {_rows}
    """)
    return


@app.cell(hide_code=True)
def _(glassbert, mo, np, show, time):
    def _milliseconds(kernels):
        model = glassbert.MiniBERT(engine="numpy", kernels=kernels)
        ids = np.random.default_rng(0).integers(5, 8000, (8, 64))
        labels = np.where(np.arange(64) % 7 == 0, ids, -100)
        best = np.inf
        for _ in range(3):
            start = time.perf_counter()
            model.backward(model.loss(ids, labels)[1])
            best = min(best, 1000 * (time.perf_counter() - start))
        return best

    mo.vstack(
        [
            mo.md("Forward and backward of Mini-BERT on this machine, 8 rows of 64 tokens:"),
            show.bars({kind: _milliseconds(kind) for kind in ("plain", "fast")}, title="milliseconds", digits=1),
        ]
    )
    return


@app.cell(hide_code=True)
def _(mo, show):
    mo.vstack([mo.md("## Write it yourself"), show.task("online_softmax")])
    return


@app.cell
def _():
    def online_softmax(scores, values, tile): ...

    return (online_softmax,)


@app.cell(hide_code=True)
def _(check, online_softmax):
    check(online_softmax=online_softmax)
    return


@app.cell(hide_code=True)
def _(mo, show):
    mo.accordion({"What it became in the package": show.became("online_softmax")})
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## An experiment of your own

    Change **one** thing, keep all else, repeat with several seeds, and look at the differences seed by seed. Here:
    does pre-norm learn faster than post-norm? Replace the change by your own: another activation, another rate,
    rotary positions.
    """)
    return


@app.cell
def _():
    change = {"norm_position": "pre"}  # any fields of the config
    return (change,)


@app.cell(hide_code=True)
def _(change, mo, np, show, tiny_config, tiny_tokenizer, train_tiny):
    _tokenizer = tiny_tokenizer()
    _small = {"hidden_size": 32, "intermediate_size": 128}
    _ends = {"as it is": [], "changed": []}
    for _seed in range(4):
        for _name, _fields in (("as it is", {}), ("changed", change)):
            _config = tiny_config(_tokenizer, **{**_small, **_fields})
            _losses = [loss for _, loss in train_tiny(_config, _tokenizer, steps=40, seed=_seed)]
            _ends[_name].append(np.mean(_losses[-10:]))
    _difference = np.array(_ends["changed"]) - np.array(_ends["as it is"])
    _error = _difference.std(ddof=1) / np.sqrt(len(_difference))
    mo.vstack(
        [
            show.heat(
                [*_ends.values(), _difference],
                [*_ends, "difference"],
                [f"seed {s}" for s in range(4)],
                title=f"mean loss of the last ten of 40 steps; the change: {change}",
                digits=3,
            ),
            mo.md(f"Mean difference **{_difference.mean():+.3f}**, standard error {_error:.3f}."),
            mo.md("Both share a seed's sentences and masks, so their noise is common and drops out of the difference."),
        ]
    )
    return


if __name__ == "__main__":
    app.run()
