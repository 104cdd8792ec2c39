# /// script
# [tool.marimo.display]
# theme = "system"
# ///

import marimo

app = marimo.App(app_title="3 · Layer norm", width="medium")


@app.cell(hide_code=True)
def _():
    import marimo as mo
    import numpy as np

    from glassbert import ops
    from glassbert.learn import check, show

    return check, mo, np, ops, show


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    # 3 · Layer norm, and one forward pass

    **One idea.** After every branch, each token's numbers are brought back to mean 0 and variance 1. So no token can
    become too large, and the next layer always gets numbers of the same size.

    $$\hat x = \frac{x - \mathrm{mean}(x)}{\sqrt{\mathrm{var}(x) + \varepsilon}}$$

    $$y = \gamma\,\hat x + \beta$$

    Mean and variance run along the H features of one token.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    choice = mo.ui.radio(
        ["all six numbers change", "only that number changes", "nothing changes"],
        label="**Predict.** A token has six features. You raise one of them. Which outputs of the layer norm change?",
    )
    choice
    return (choice,)


@app.cell(hide_code=True)
def _(choice, np, ops, show):
    _x = np.array([[1.0, -0.5, 0.3, 2.0, -1.2, 0.1]])
    _moved = _x + np.array([[0, 0, 0, 1.0, 0, 0]])
    _one, _zero = np.ones(6), np.zeros(6)
    _change = np.abs(ops.layer_norm(_moved, _one, _zero, 1e-5)[0] - ops.layer_norm(_x, _one, _zero, 1e-5)[0])
    _count = int((_change > 1e-9).sum())
    _right = {0: "nothing changes", 1: "only that number changes"}.get(_count, "all six numbers change")
    show.answer(
        choice,
        _right,
        f"{_count} of 6 outputs changed. Mean and variance belong to the whole row, so every feature influences every "
        "output. This is why its backward has three terms.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## Move: scale and shift a token

    Scale and shift a token's features. Watch the row before and after the norm.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    scale = mo.ui.slider(0.0, 10.0, 0.5, value=3.0, label="times", show_value=True)
    shift = mo.ui.slider(-10.0, 10.0, 0.5, value=2.0, label="plus", show_value=True)
    mo.hstack([scale, shift], justify="start", gap=3)
    return scale, shift


@app.cell(hide_code=True)
def _(mo, np, ops, scale, shift, show):
    _token = np.array([[1.0, -0.5, 0.3, 2.0, -1.2, 0.1]])
    _x = scale.value * _token + shift.value
    _y, _ = ops.layer_norm(_x, np.ones(6), np.zeros(6), 1e-5)
    mo.vstack(
        [
            show.side_by_side(
                show.heat(_x, title="x", limit=10.0), show.heat(_y, title="layer norm of x", limit=2.0, name="normed")
            ),
            mo.md(
                f"Mean {_x.mean():.2f} becomes {_y.mean():.2f}. Variance {_x.var():.3f} becomes {_y.var():.3f}. "
                f"{'With factor 0 the row is constant: eps keeps the division defined.' if scale.value == 0 else ''}"
            ),
        ]
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    The output does not depend on scale and shift (as long as eps is small beside the variance). What is left is the
    direction of the token. γ and β then let the model choose, per feature, how large it wants to be.

    ## One forward pass

    The feed-forward layer of every block is all you have so far: a linear map to a wider space, ReLU, and a linear map
    back. Here is one token on its way through a tiny one.
    """)
    return


@app.cell(hide_code=True)
def _(np, ops, show):
    _draw = np.random.default_rng(4)
    _x = _draw.standard_normal((1, 4))
    _up, _down = _draw.standard_normal((8, 4)), _draw.standard_normal((4, 8))
    _hidden, _ = ops.linear(_x, _up)
    _activated, _ = ops.relu(_hidden)
    _y, _ = ops.linear(_activated, _down)
    _normed, _ = ops.layer_norm(_x + _y, np.ones(4), np.zeros(4), 1e-5)
    (
        show.heat(_x, title="x [1, 4]")
        + show.heat(_hidden, title="up: hidden [1, 8]")
        + show.heat(_activated, title=f"relu: {(_activated == 0).sum()} of {_activated.size} are off")
        + show.heat(_y, title="down: y [1, 4]")
        + show.heat(_normed, title="norm(x + y)")
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("## Write them yourself")
    return


@app.cell(hide_code=True)
def _(show):
    show.task("layer_norm")
    return


@app.cell
def _():
    def layer_norm(x, gamma, beta, eps): ...

    return (layer_norm,)


@app.cell(hide_code=True)
def _(check, layer_norm):
    check(layer_norm=layer_norm)
    return


@app.cell(hide_code=True)
def _(show):
    show.task("feed_forward")
    return


@app.cell
def _():
    def feed_forward(x, up_weight, up_bias, down_weight, down_bias): ...

    return (feed_forward,)


@app.cell(hide_code=True)
def _(check, feed_forward):
    check(feed_forward=feed_forward)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## Find the fault

    Below is a layer norm with one thing wrong. Set `layer_norm_fault` to the number of the wrong line.
    """)
    return


@app.cell(hide_code=True)
def _(show):
    show.task("layer_norm_fault")
    return


@app.cell
def _():
    layer_norm_fault = 0
    return (layer_norm_fault,)


@app.cell(hide_code=True)
def _(check, layer_norm_fault):
    check(layer_norm_fault=layer_norm_fault)
    return


@app.cell(hide_code=True)
def _(mo, show):
    mo.accordion({"What they became in the package": show.became("layer_norm", "feed_forward")})
    return


@app.cell(hide_code=True)
def _(mo, np, ops):
    _x = np.array([[1000.0, 1000.1, 999.9, 1000.0]])
    _y, _ = ops.layer_norm(_x, np.ones(4), np.zeros(4), 1e-5)
    mo.md(f"""
    ## A surprise

    A token whose features are {", ".join(f"{v:g}" for v in _x[0])} looks nearly constant. Its norm is
    **{", ".join(f"{v:.2f}" for v in _y[0])}**. Layer norm does not keep the size of a difference, only its
    direction. Small and large differences come out with the same size.
    """)
    return


if __name__ == "__main__":
    app.run()
