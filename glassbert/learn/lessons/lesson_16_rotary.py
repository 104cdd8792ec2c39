# /// script
# [tool.marimo.display]
# theme = "system"
# ///

import marimo

app = marimo.App(app_title="16 · RoPE and ModernBERT", width="medium")


@app.cell(hide_code=True)
def _():
    import marimo as mo
    import numpy as np

    import glassbert
    from glassbert import ops
    from glassbert.learn import check, show
    from glassbert.ops.attention import AttentionPattern, attention_weights
    from glassbert.ops.rotary import rotary_angles

    return AttentionPattern, attention_weights, check, glassbert, mo, np, ops, rotary_angles, show


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    # 16 · RoPE and ModernBERT

    *An open lesson: it ends where you stop asking.*

    **One idea.** Instead of adding a vector for the place, turn queries and keys by an angle that grows with the place.
    A dot product sees only the difference of two angles: it knows how far apart two words are, wherever they stand.

    $$\begin{pmatrix} y_1 \\ y_2 \end{pmatrix} = \begin{pmatrix} \cos\theta & -\sin\theta \\ \sin\theta & \cos\theta
    \end{pmatrix} \begin{pmatrix} x_1 \\ x_2 \end{pmatrix}$$

    $$\theta = \text{position} \cdot \text{base}^{-2i/d}$$
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    choice = mo.ui.radio(
        ["it stays the same", "it grows", "it changes its sign"],
        label="**Predict.** A query stands at place 3, a key at place 5. Both move 100 places to the right. What "
        "happens to their score?",
    )
    choice
    return (choice,)


@app.cell(hide_code=True)
def _(np, ops, rotary_angles):
    _draw = np.random.default_rng(0)
    query, key = _draw.standard_normal((2, 1, 1, 1, 16))

    def score(query_place, key_place, base=10_000.0):
        """The dot product of the rotated query and key."""
        turned = []
        for vector, place in ((query, query_place), (key, key_place)):
            cos, sin = rotary_angles(np.array([[place]]), 16, base, np.dtype(np.float64))
            turned.append(ops.rotary(vector, cos, sin)[0])
        return float((turned[0] * turned[1]).sum())

    return key, query, score


@app.cell(hide_code=True)
def _(choice, score, show):
    _before, _after = score(3, 5), score(103, 105)
    _same, _grows, _sign = choice.options
    _right = _same if abs(_before - _after) < 1e-9 else _sign if _before * _after < 0 else _grows
    show.answer(choice, _right, f"{_before:.6f} before, {_after:.6f} after. Only the distance counts.")
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## Move: place and base

    Each pair of features is a point on a circle. The first pair turns by one radian a word, the last hardly at all.
    Move the place; then the base, and look how the score changes with the distance.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    place = mo.ui.slider(0, 64, 1, value=5, label="place", show_value=True)
    base = mo.ui.slider(steps=[10, 100, 1_000, 10_000, 160_000], value=10_000, label="base", show_value=True)
    mo.hstack([place, base], justify="start", gap=3, wrap=True)
    return base, place


@app.cell(hide_code=True)
def _(base, mo, np, place, rotary_angles, score, show):
    _cos, _sin = rotary_angles(np.array([[place.value]]), 16, float(base.value), np.dtype(np.float64))
    _hands = ""
    for _i, (_c, _s) in enumerate(zip(_cos.ravel(), _sin.ravel(), strict=True)):
        _x = 30 + 62 * _i
        _hands += (
            f'<circle cx="{_x}" cy="32" r="24" fill="none" stroke="currentColor" opacity="0.3"/>'
            f'<line x1="{_x}" y1="32" x2="{_x + 24 * _c:.1f}" y2="{32 - 24 * _s:.1f}" stroke="#3d7fe0"/>'
        )
    _distance = np.arange(0, 65)
    _scores = [score(0, d, float(base.value)) for d in _distance]
    mo.vstack(
        [
            show.Html(f'<svg viewBox="0 0 520 64" style="max-width:520px" stroke-width="3" role="img">{_hands}</svg>'),
            show.curves({"score": (_distance, _scores)}, title="score by distance", x="distance", mark=place.value),
            show.heat(
                [[score(0, place.value, float(base.value))]], title="score at this distance", digits=4, name="score"
            ),
        ]
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## Local and global sight

    ModernBERT's layers look at a window around each word; every third one looks at everything. Move the window.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    window = mo.ui.slider(1, 12, 1, value=2, label="window", show_value=True)
    window
    return (window,)


@app.cell(hide_code=True)
def _(AttentionPattern, attention_weights, mo, np, show, window):
    _draw = np.random.default_rng(1)
    _q, _k = _draw.standard_normal((2, 1, 1, 12, 8))
    _weights = attention_weights(_q, _k, AttentionPattern(window=window.value))[0, 0]
    _pairs = int((_weights > 0).sum())
    mo.vstack(
        [
            show.heat(_weights, limit=1.0, title=f"weights of 12 tokens, window {window.value}", name="window"),
            mo.md(f"{_pairs} of {_weights.size} pairs. Twice the length costs twice as much, not four times."),
        ]
    )
    return


@app.cell(hide_code=True)
def _(glassbert, mo):
    _bert = glassbert.BertConfig.get_base_config()
    _modern = glassbert.ModernBertConfig.get_base_config()
    _fields = (
        *("positions", "norm_position", "feed_forward", "attention_bias", "ffn_bias", "norm_bias"),
        *(
            "local_window",
            "global_attention_every",
            "num_hidden_layers",
            "intermediate_size",
            "max_position_embeddings",
        ),
    )
    _rows = "\n".join(f"| `{f}` | {getattr(_bert, f)} | {getattr(_modern, f)} |" for f in _fields)
    mo.md(f"""
    ## What else is new in ModernBERT

    The two configs, read from the package. One encoder runs both: nothing depends on a name.

    | field | BERT-base | ModernBERT-base |
    |---|---|---|
    {_rows.replace(chr(10), chr(10) + "    ")}
    """)
    return


@app.cell(hide_code=True)
def _(mo, show):
    mo.vstack([mo.md("## Write them yourself"), show.task("rotary") + show.task("rotary_backward")])
    return


@app.cell
def _():
    def rotary(x, cos, sin): ...

    def rotary_backward(dy, cos, sin): ...

    return rotary, rotary_backward


@app.cell(hide_code=True)
def _(check, rotary, rotary_backward):
    check(rotary=rotary, rotary_backward=rotary_backward)
    return


@app.cell(hide_code=True)
def _(mo, show):
    mo.accordion({"What they became in the package": show.became("rotary", "rotary_backward")})
    return


@app.cell(hide_code=True)
def _(key, mo, np, query, rotary_angles, score):
    _cos, _ = rotary_angles(np.array([[1]]), 16, 10_000.0, np.dtype(np.float64))
    _slowest = float(np.arccos(_cos.ravel()[-1]))
    _lengths = float(np.sqrt((query**2).sum())), float(np.sqrt((key**2).sum()))
    mo.md(f"""
    ## A surprise

    RoPE has no parameters, and no value is ever added: the lengths of query and key stay {_lengths[0]:.3f} and
    {_lengths[1]:.3f}. Their score alone swings between {min(score(0, d) for d in range(200)):.2f} and
    {max(score(0, d) for d in range(200)):.2f} as they move apart. The slowest pair of this head needs
    **{2 * np.pi / _slowest:,.0f} words** for one turn.

    ## On your own

    `create_model("bert_with_head", head="mlm", config=MINI_BERT_CONFIG.replace(positions="rotary"))` makes a Mini with
    RoPE. Train it beside the Mini of lesson 13 (`train_tiny` takes any config). Which one learns agreement first?
    """)
    return


if __name__ == "__main__":
    app.run()
