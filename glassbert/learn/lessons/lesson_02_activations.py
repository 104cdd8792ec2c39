# /// script
# [tool.marimo.display]
# theme = "system"
# ///

import marimo

app = marimo.App(app_title="2 · ReLU and GELU", width="medium")


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
    # 2 · ReLU and GELU: why a curve is needed

    **One idea.** Linear maps alone are one linear map. A simple curve between them lets a network bend.

    $$\mathrm{relu}(x) = \max(x, 0)$$

    $$\mathrm{gelu}(x) = x\,\Phi(x), \quad
    \Phi(x) = \tfrac12\left(1 + \mathrm{erf}\left(x/\sqrt2\right)\right)$$

    $\Phi$ is the share of a normal distribution that lies below $x$. GELU keeps $x$ with that share.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    choice = mo.ui.radio(
        ["below 0", "exactly 0", "above 0"],
        label="**Predict.** ReLU of -0.5 is 0. Where is GELU of -0.5?",
    )
    choice
    return (choice,)


@app.cell(hide_code=True)
def _(choice, np, ops, show):
    _value = float(ops.gelu(np.array([-0.5]))[0][0])
    _where = "below 0" if _value < 0 else "above 0" if _value > 0 else "exactly 0"
    show.answer(
        choice, _where, f"gelu(-0.5) = {_value:.4f}. GELU dips below zero before it comes back: it is not monotone."
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## Move: one point on both curves

    Move x. Watch the value and the slope. The slope is what the backward pass multiplies by: where it is 0, nothing is
    learned.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    point = mo.ui.slider(-4.0, 4.0, 0.1, value=-0.7, label="x", show_value=True, full_width=True)
    point
    return (point,)


@app.cell(hide_code=True)
def _(mo, np, ops, point, show):
    _grid = np.linspace(-4.0, 4.0, 161)
    _x = np.array([point.value])
    _one = np.ones(1)
    _relu, _relu_state = ops.relu(_x)
    _gelu, _gelu_state = ops.gelu(_x)
    _slopes = ops.relu_backward(_one, _relu_state)[0], ops.gelu_backward(_one, _gelu_state)[0]
    mo.vstack(
        [
            show.curves(
                {"relu": (_grid, ops.relu(_grid)[0]), "gelu": (_grid, ops.gelu(_grid)[0])},
                title="value",
                x="x",
                mark=point.value,
            ),
            show.heat(
                [[_relu[0], _slopes[0]], [_gelu[0], _slopes[1]]],
                ["relu", "gelu"],
                ["value", "slope"],
                digits=4,
                name="point",
            ),
        ]
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## What the bend buys

    Each ReLU of a linear map is one hinge. Add hinges and you can draw any curve. Here `n` hinges are placed on the
    line, and the best weights for them are found by least squares. The goal is a sine.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    hinges = mo.ui.slider(0, 12, 1, value=2, label="hinges", show_value=True)
    hinges
    return (hinges,)


@app.cell(hide_code=True)
def _(hinges, mo, np, ops, show):
    _x = np.linspace(-3.0, 3.0, 121)
    _goal = np.sin(2.0 * _x)
    _places = np.linspace(-3.0, 3.0, hinges.value + 2)[1:-1]
    _hinges, _ = ops.relu(_x[:, None] - _places)  # [121, n]
    _features = np.concatenate([np.ones((len(_x), 1)), _x[:, None], _hinges], 1)
    _weights = np.linalg.lstsq(_features, _goal, rcond=None)[0]
    _fit = _features @ _weights
    mo.vstack(
        [
            show.curves({"sin 2x": (_x, _goal), "linear map and hinges": (_x, _fit)}, title="a sum of hinges", x="x"),
            mo.md(f"Mean squared error: **{((_fit - _goal) ** 2).mean():.4f}** with {hinges.value} hinges."),
        ]
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## Write them yourself

    Mini-BERT uses ReLU, BERT and ModernBERT use GELU.
    """)
    return


@app.cell(hide_code=True)
def _(show):
    show.task("relu")
    return


@app.cell
def _():
    def relu(x): ...

    return (relu,)


@app.cell(hide_code=True)
def _(check, relu):
    check(relu=relu)
    return


@app.cell(hide_code=True)
def _(show):
    show.task("gelu")
    return


@app.cell
def _():
    def gelu(x): ...

    return (gelu,)


@app.cell(hide_code=True)
def _(check, gelu):
    check(gelu=gelu)
    return


@app.cell(hide_code=True)
def _(mo, show):
    mo.accordion({"What they became in the package": show.became("relu", "gelu")})
    return


@app.cell(hide_code=True)
def _(mo, np, ops):
    _x = np.linspace(-6.0, 6.0, 20001)
    _gap = np.abs(ops.gelu(_x)[0] - ops.gelu_tanh(_x)[0])
    _times = _gap.max() / np.finfo(np.float32).eps
    _dead = float((np.random.default_rng(0).standard_normal(100_000) <= 0).mean())
    mo.md(f"""
    ## A surprise

    Many programs compute GELU with tanh and call it GELU. The two differ by up to **{_gap.max():.1e}**, at
    x = {_x[_gap.argmax()]:+.2f}. That is small, and it is {_times:,.0f} times the rounding of float32: weights that
    were trained with one must be run with the same one. The referee tells them apart.

    And ReLU throws away about {_dead:.0%} of all values of a normal distribution. Networks do well without them.
    """)
    return


if __name__ == "__main__":
    app.run()
