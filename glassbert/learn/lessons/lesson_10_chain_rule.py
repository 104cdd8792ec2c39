# /// script
# [tool.marimo.display]
# theme = "system"
# ///

import marimo

app = marimo.App(app_title="10 · The chain rule", width="medium")


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
    # 10 · The chain rule, and the easy backwards

    **One idea.** A gradient answers one question: if this number were a little larger, how much would the loss change?
    The chain rule carries the answer from the loss back to every weight, one operation at a time.

    $$z = f(y),\ y = g(x) \quad\Rightarrow\quad \frac{\partial z}{\partial x} =
    \frac{\partial z}{\partial y}\,\frac{\partial y}{\partial x}$$

    Every operation has a backward: it takes `dy`, the gradient of its output, and returns the gradients of its inputs.
    It needs to know nothing about the rest of the model.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    choice = mo.ui.radio(
        ["the sum over all tokens", "the mean over all tokens", "that of the last token"],
        label="**Predict.** One weight W is used for every token of the batch. What is its gradient?",
    )
    choice
    return (choice,)


@app.cell(hide_code=True)
def _(choice, np, ops, show):
    _draw = np.random.default_rng(0)
    _x, _W, _dy = _draw.standard_normal((1, 3, 4)), _draw.standard_normal((2, 4)), _draw.standard_normal((1, 3, 2))
    _, _whole, _ = ops.linear_backward(_dy, (_x, _W, False))
    _each = np.stack([ops.linear_backward(_dy[:, [t]], (_x[:, [t]], _W, False))[1] for t in range(3)])
    _found = {"the sum over all tokens": _each.sum(0), "the mean over all tokens": _each.mean(0)}
    _right = next((name for name, value in _found.items() if np.allclose(value, _whole)), list(choice.options)[2])
    show.answer(
        choice,
        _right,
        "A value that went several ways collects the gradients of all of them, and they add up. This one rule "
        "gives the weight its sum over tokens, the residual its two terms, and a repeated word its two gradients.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    _text = mo.md("""
    ## Move: a weight, and see whether the gradient was right

    A tiny network: linear, ReLU, linear, squared error. The backward gives the gradient of one weight. Nudge the weight
    by ε: the gradient predicts the change of the loss, and the forward measures it.
    """)
    nudge = mo.ui.slider(-1.0, 1.0, 0.02, value=0.1, label="ε", show_value=True, full_width=True)
    mo.vstack([_text, nudge])
    return (nudge,)


@app.cell(hide_code=True)
def _(np, ops):
    _draw = np.random.default_rng(3)
    network = {
        "x": _draw.standard_normal((5, 3)),
        "up": _draw.standard_normal((4, 3)),
        "down": _draw.standard_normal((2, 4)),
        "goal": _draw.standard_normal((5, 2)),
    }

    def loss_and_gradient(up):
        """Forward, then the same lines from the last to the first."""
        hidden, first = ops.linear(network["x"], up)
        active, second = ops.relu(hidden)
        y, third = ops.linear(active, network["down"])
        loss, fourth = ops.mean_squared_error(y, network["goal"])
        dy = ops.mean_squared_error_backward(1.0, fourth)
        dactive, _, _ = ops.linear_backward(dy, third)
        dhidden = ops.relu_backward(dactive, second)
        _, dup, _ = ops.linear_backward(dhidden, first)
        return float(loss), dup

    return loss_and_gradient, network


@app.cell(hide_code=True)
def _(loss_and_gradient, mo, network, np, nudge, show):
    _loss, _gradient = loss_and_gradient(network["up"])
    _place = np.unravel_index(np.abs(_gradient).argmax(), _gradient.shape)

    def _at(step):
        moved = network["up"].copy()
        moved[_place] += step
        return loss_and_gradient(moved)[0]

    _grid = np.linspace(-1.0, 1.0, 81)
    _g = float(_gradient[_place])
    mo.vstack(
        [
            show.heat(
                [[_g * nudge.value, _at(nudge.value) - _loss]],
                columns=["predicted: g · ε", "measured"],
                title=f"change of the loss; gradient g = {_g:.4f}",
                digits=5,
                name="nudge",
            ),
            show.curves(
                {"loss": (_grid, [_at(e) for e in _grid]), "loss + g · ε": (_grid, _loss + _g * _grid)},
                title="the gradient is the tangent",
                x="ε",
                mark=nudge.value,
            ),
        ]
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    For small ε the two agree, for large ones they part: a gradient is a promise about the neighbourhood.

    ## The easy backwards

    | forward | backward |
    |---|---|
    | $y = x W^\top + b$ | $dx = dy\,W,\quad dW = dy^\top x,\quad db = \sum dy$ |
    | $y = \max(x, 0)$ | $dx = dy \cdot [x > 0]$ |
    | $y = x\,\Phi(x)$ | $dx = dy \cdot (\Phi + x\,\varphi)$ |
    | $y = \text{table}[ids]$ | rows of $dy$ are *added* at their ids |
    | $y = x + f(x)$ | $dx = dy + f\text{.backward}(dy)$ |
    | cross-entropy | $dz = (\mathrm{softmax}(z) - \text{onehot}) / n$ |

    Let the shapes lead: a gradient has the shape of what it belongs to, and often only one product fits.

    ## Write them yourself

    Six short ones. Replace `...` in each.
    """)
    return


@app.cell(hide_code=True)
def _(show):
    show.task("linear_backward") + show.task("relu_backward") + show.task("gelu_backward")
    return


@app.cell
def _():
    def linear_backward(dy, x, weight): ...

    def relu_backward(dy, x): ...

    def gelu_backward(dy, x): ...

    return gelu_backward, linear_backward, relu_backward


@app.cell(hide_code=True)
def _(check, gelu_backward, linear_backward, relu_backward):
    check(linear_backward=linear_backward, relu_backward=relu_backward, gelu_backward=gelu_backward)
    return


@app.cell(hide_code=True)
def _(show):
    show.task("embedding_backward") + show.task("residual_backward") + show.task("cross_entropy_backward")
    return


@app.cell
def _():
    def embedding_backward(dy, ids, vocab_size): ...

    def residual_backward(dy, branch_backward): ...

    def cross_entropy_backward(logits, targets): ...

    return cross_entropy_backward, embedding_backward, residual_backward


@app.cell(hide_code=True)
def _(check, cross_entropy_backward, embedding_backward, residual_backward):
    check(
        embedding_backward=embedding_backward,
        residual_backward=residual_backward,
        cross_entropy_backward=cross_entropy_backward,
    )
    return


@app.cell(hide_code=True)
def _(mo, show):
    mo.vstack([mo.md("## Find the fault"), show.task("embedding_backward_fault")])
    return


@app.cell
def _():
    embedding_backward_fault = 0
    return (embedding_backward_fault,)


@app.cell(hide_code=True)
def _(check, embedding_backward_fault):
    check(embedding_backward_fault=embedding_backward_fault)
    return


@app.cell(hide_code=True)
def _(mo, np, show):
    _table = np.zeros((3, 1))
    _table[[1, 1, 1]] += 1.0
    mo.vstack(
        [
            mo.accordion({"What they became": show.became("linear_backward", "embedding_backward")}),
            mo.md(f"""
    ## A surprise

    `table[[1, 1, 1]] += 1` looks like three additions. The row holds **{_table[1, 0]:g}** afterwards: NumPy reads once,
    adds once, and writes three times. Every frequent word would learn from its last occurrence only.
    """),
        ]
    )
    return


if __name__ == "__main__":
    app.run()
