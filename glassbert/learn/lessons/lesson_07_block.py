# /// script
# [tool.marimo.display]
# theme = "system"
# ///

import marimo

app = marimo.App(app_title="7 · Residuals and the block", width="medium")


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
    # 7 · Residuals and the block

    **One idea.** A branch does not replace its input, it is added to it. So there is a direct path from the first layer
    to the last, and the gradient takes the same path back.

    | post-norm (BERT) | pre-norm (ModernBERT) |
    |---|---|
    | $x \leftarrow \mathrm{norm}(x + \mathrm{att}(x))$ | $x \leftarrow x + \mathrm{att}(\mathrm{norm}(x))$ |
    | $x \leftarrow \mathrm{norm}(x + \mathrm{ffn}(x))$ | $x \leftarrow x + \mathrm{ffn}(\mathrm{norm}(x))$ |
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    choice = mo.ui.radio(
        ["about the same", "about half as large", "thousands of times smaller"],
        label="**Predict.** Twelve layers, each a random linear map (weights of size 0.5/√width) and ReLU, without "
        "residuals. How large is the gradient at the first layer, compared with the last?",
    )
    choice
    return (choice,)


@app.cell(hide_code=True)
def _(np, ops):
    def gradient_sizes(depth, residual, width=64, seed=0):
        """The size of the gradient at each layer of a stack of random layers, from the last to the first."""
        draw = np.random.default_rng(seed)
        x = draw.standard_normal((8, width))
        weights = [draw.standard_normal((width, width)) * 0.5 / np.sqrt(width) for _ in range(depth)]
        states = []
        for weight in weights:
            y, first = ops.linear(x, weight)
            y, second = ops.relu(y)
            states.append((first, second))
            x = x + y if residual else y
        dx = draw.standard_normal(x.shape)
        sizes = [float(np.abs(dx).mean())]
        for first, second in reversed(states):
            dbranch, *_ = ops.linear_backward(ops.relu_backward(dx, second), first)
            dx = dx + dbranch if residual else dbranch
            sizes.append(float(np.abs(dx).mean()))
        return np.array(sizes[::-1])

    return (gradient_sizes,)


@app.cell(hide_code=True)
def _(choice, gradient_sizes, show):
    _sizes = gradient_sizes(12, residual=False)
    _ratio = _sizes[-1] / _sizes[0]
    _same, _half, _tiny = choice.options
    _right = _tiny if _ratio > 1000 else _half if _ratio > 1.5 else _same
    _with = gradient_sizes(12, residual=True)
    show.answer(
        choice,
        _right,
        f"It is {_ratio:,.0f} times smaller. With residuals the gradient at the first layer is "
        f"{_with[0] / _with[-1]:.1f} times that of the last: the sum passes it on whole.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("## Move: the depth")
    return


@app.cell(hide_code=True)
def _(mo):
    depth = mo.ui.slider(1, 24, 1, value=12, label="layers", show_value=True)
    depth
    return (depth,)


@app.cell(hide_code=True)
def _(depth, gradient_sizes, mo, np, show):
    _with, _without = gradient_sizes(depth.value, True), gradient_sizes(depth.value, False)
    _layers = np.arange(depth.value + 1)
    mo.vstack(
        [
            show.curves(
                {"with residuals": (_layers, np.log10(_with)), "without": (_layers, np.log10(_without))},
                title="size of the gradient at each layer (log10)",
                x="layer",
            ),
            show.heat(
                [[_with[0] / _with[-1], _without[0] / _without[-1]]],
                columns=["with residuals", "without"],
                title="gradient at the first layer / at the last",
                digits=6,
                name="ratio",
            ),
        ]
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## Why the norm?

    With residuals alone x grows from layer to layer: every branch adds something. Post-norm brings the sum back to size
    1 after every branch. Pre-norm leaves the sum as it is and normalises only what a branch reads.
    """)
    return


@app.cell(hide_code=True)
def _(depth, np, ops, show):
    def _stack(kind, depth, width=64):
        draw = np.random.default_rng(1)
        one, zero = np.ones(width), np.zeros(width)
        x = draw.standard_normal((8, width))
        sizes = [x.std()]
        for _ in range(depth):
            weight = draw.standard_normal((width, width)) * 1.4 / np.sqrt(width)
            read = ops.layer_norm(x, one, zero, 1e-5)[0] if kind == "pre-norm" else x
            x = x + ops.relu(ops.linear(read, weight)[0])[0]
            if kind == "post-norm":
                x = ops.layer_norm(x, one, zero, 1e-5)[0]
            sizes.append(x.std())
        return np.log10(np.array(sizes))

    _layers = np.arange(depth.value + 1)
    show.curves(
        {kind: (_layers, _stack(kind, depth.value)) for kind in ("no norm", "pre-norm", "post-norm")},
        title="spread of x after each layer (log10)",
        x="layer",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("## Write it yourself")
    return


@app.cell(hide_code=True)
def _(show):
    show.task("block")
    return


@app.cell
def _():
    def block(x, attention, feed_forward, first_norm, second_norm): ...

    return (block,)


@app.cell(hide_code=True)
def _(block, check):
    check(block=block)
    return


@app.cell(hide_code=True)
def _(mo, show):
    mo.vstack([mo.md("## Find the fault"), show.task("block_fault")])
    return


@app.cell
def _():
    block_fault = 0
    return (block_fault,)


@app.cell(hide_code=True)
def _(block_fault, check):
    check(block_fault=block_fault)
    return


@app.cell(hide_code=True)
def _(mo, show):
    mo.accordion({"What it became in the package": show.became("block")})
    return


@app.cell(hide_code=True)
def _(gradient_sizes, mo):
    _sizes = gradient_sizes(24, residual=False)
    mo.md(f"""
    ## A surprise

    Without residuals, after 24 layers the gradient has shrunk by a factor of {_sizes[-1] / _sizes[0]:.0e}. Float32
    still holds such a number. The trouble is not that it is too small to be stored: AdamW divides by its size anyway.
    The trouble is that this gradient is a product of one factor for each layer, and every factor changes in the same
    step. The residual adds a term without any of these factors.
    """)
    return


if __name__ == "__main__":
    app.run()
