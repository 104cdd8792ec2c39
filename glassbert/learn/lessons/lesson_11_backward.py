# /// script
# [tool.marimo.display]
# theme = "system"
# ///

import marimo

app = marimo.App(app_title="11 · The hard backwards", width="medium")


@app.cell(hide_code=True)
def _():
    import marimo as mo
    import numpy as np

    from glassbert import gradient_check, ops
    from glassbert.learn import check, show
    from glassbert.ops.attention import AttentionPattern

    return AttentionPattern, check, gradient_check, mo, np, ops, show


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    # 11 · Softmax, layer norm and attention backwards; the gradient check

    **One idea.** Where all numbers of a row depend on each other, a gradient is not "slope times dy". The row answers
    as a whole. And because such formulas are easy to get wrong, we never trust one: we measure.

    $$dx_{\text{softmax}} = y \cdot \Big(dy - \sum_j dy_j\,y_j\Big)$$

    $$dx_{\text{norm}} = \mathrm{rstd} \big(g - \overline{g} - \hat x\,\overline{g \hat x}\big),\ g = dy \cdot \gamma$$
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    choice = mo.ui.radio(
        ["exactly 0", "1", "it depends on dy"],
        label="**Predict.** Raise all scores of a row by the same amount: the softmax does not change. So what do the "
        "entries of its gradient dx add up to?",
    )
    choice
    return (choice,)


@app.cell(hide_code=True)
def _(choice, np, ops, show):
    _draw = np.random.default_rng(0)
    _sums = []
    for _ in range(5):
        _y, _state = ops.softmax(_draw.standard_normal((1, 6)))
        _sums.append(float(ops.softmax_backward(_draw.standard_normal((1, 6)), _state).sum()))
    _right = "exactly 0" if max(map(abs, _sums)) < 1e-9 else "it depends on dy"
    show.answer(
        choice,
        _right,
        f"Five random rows add up to at most {max(map(abs, _sums)):.0e}. What cannot change the output has no "
        "gradient: the direction (1, 1, ..., 1) is free. Layer norm has two such directions.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Attention, from the last line to the first

    | forward | backward |
    |---|---|
    | `context = weights @ v` | `dv = weightsᵀ @ dcontext`, `dweights = dcontext @ vᵀ` |
    | `weights = softmax(scores)` | `dscores = weights · (dweights - Σ dweights · weights)` |
    | `scores = q @ kᵀ / √d` | `dq = dscores @ k / √d`, `dk = dscoresᵀ @ q / √d` |

    A masked pair has weight 0, and the softmax backward multiplies by the weight: the mask needs no line of its own.
    """)
    return


@app.cell(hide_code=True)
def _(AttentionPattern, np, ops, show):
    _draw = np.random.default_rng(2)
    _q, _k, _v, _dcontext = _draw.standard_normal((4, 1, 1, 4, 3))
    _, _state = ops.attention(_q, _k, _v, AttentionPattern(keys=np.array([[1, 1, 1, 0]])))
    _dq, _dk, _dv, _ = ops.attention_backward(_dcontext, _state)
    _tokens = ["token 0", "token 1", "token 2", "padding"]
    show.side_by_side(
        show.heat(_dq[0, 0], _tokens, title="dq"),
        show.heat(_dk[0, 0], _tokens, title="dk: padding has none"),
        show.heat(_dv[0, 0], _tokens, title="dv: padding has none"),
    )
    return


@app.cell(hide_code=True)
def _(mo):
    _text = mo.md(r"""
    ## The referee: finite differences

    $\frac{f(x + h) - f(x - h)}{2h}$ needs no formula, only the forward. With h too large the curve bends, with h too
    small rounding takes over. Move h and see both.
    """)
    power = mo.ui.slider(-13, -1, 1, value=-5, label="log10 of h", show_value=True)
    mo.vstack([_text, power])
    return (power,)


@app.cell(hide_code=True)
def _(mo, np, power, show):
    _x = 1.3

    def _error(h):
        return abs((np.exp(_x + h) - np.exp(_x - h)) / (2 * h) - np.exp(_x)) / np.exp(_x)

    _powers = np.arange(-13.0, 0.0, 0.25)
    mo.vstack(
        [
            show.curves(
                {"central difference of exp": (_powers, [np.log10(_error(10**p) + 1e-17) for p in _powers])},
                title="relative error (log10)",
                x="log10 of h",
                mark=power.value,
            ),
            show.heat([[_error(10.0**power.value)]], title="relative error", digits=14, name="error"),
        ]
    )
    return


@app.cell(hide_code=True)
def _(mo):
    gamma_spread = mo.ui.slider(0.0, 1.0, 0.1, value=0.0, label="spread of gamma around 1", show_value=True)
    mo.vstack([mo.md("## A surprise: a wrong gradient passes the check\n\nMove gamma away from 1."), gamma_spread])
    return (gamma_spread,)


@app.cell(hide_code=True)
def _(gamma_spread, gradient_check, mo, np, ops, show):
    _draw = np.random.default_rng(5)
    _gamma = 1.0 + gamma_spread.value * _draw.standard_normal(6)
    _x, _dy = _draw.standard_normal((3, 6)), _draw.standard_normal((3, 6))

    def _wrong(x):
        """gamma outside the means: dx = gamma · rstd · (dy - mean(dy) - x̂ · mean(dy · x̂))"""
        y, (x_hat, rstd, _, _) = ops.layer_norm(x, _gamma, np.zeros(6), 1e-5)
        dx = _dy - _dy.mean(-1, keepdims=True) - x_hat * (_dy * x_hat).mean(-1, keepdims=True)
        return float((y * _dy).sum()), {"x": _gamma * rstd * dx}

    def _right(x):
        y, state = ops.layer_norm(x, _gamma, np.zeros(6), 1e-5)
        return float((y * _dy).sum()), {"x": ops.layer_norm_backward(_dy, state)[0]}

    _verdicts = {name: gradient_check(f, {"x": _x}) for name, f in (("wrong", _wrong), ("right", _right))}
    mo.vstack(
        [
            show.heat(
                [[float(verdict.error)] for verdict in _verdicts.values()],
                ["gamma outside the means", "gamma inside"],
                ["error of the gradient check"],
                digits=9,
                name="gamma",
            ),
            mo.md(
                "With gamma = 1, its value in every new model, the wrong gradient is right. A test that only looks at "
                "new models never finds it. Test where nothing is 0, 1 or equal."
            ),
        ]
    )
    return


@app.cell(hide_code=True)
def _(mo, show):
    mo.vstack([mo.md("## Write them yourself"), show.task("numerical_gradient") + show.task("softmax_backward")])
    return


@app.cell
def _():
    def numerical_gradient(f, x, h): ...

    def softmax_backward(dy, y): ...

    return numerical_gradient, softmax_backward


@app.cell(hide_code=True)
def _(check, numerical_gradient, softmax_backward):
    check(numerical_gradient=numerical_gradient, softmax_backward=softmax_backward)
    return


@app.cell(hide_code=True)
def _(show):
    show.task("layer_norm_backward") + show.task("attention_backward")
    return


@app.cell
def _():
    def layer_norm_backward(dy, x, gamma, eps): ...

    def attention_backward(dcontext, q, k, v, mask): ...

    return attention_backward, layer_norm_backward


@app.cell(hide_code=True)
def _(attention_backward, check, layer_norm_backward):
    check(layer_norm_backward=layer_norm_backward, attention_backward=attention_backward)
    return


@app.cell(hide_code=True)
def _(mo, show):
    mo.vstack(
        [mo.md("## Find the faults"), show.task("layer_norm_backward_fault") + show.task("attention_backward_fault")]
    )
    return


@app.cell
def _():
    layer_norm_backward_fault = 0
    attention_backward_fault = 0
    return attention_backward_fault, layer_norm_backward_fault


@app.cell(hide_code=True)
def _(attention_backward_fault, check, layer_norm_backward_fault):
    check(layer_norm_backward_fault=layer_norm_backward_fault, attention_backward_fault=attention_backward_fault)
    return


@app.cell(hide_code=True)
def _(mo, show):
    mo.accordion({"What they became": show.became("layer_norm_backward", "attention_backward", "softmax_backward")})
    return


if __name__ == "__main__":
    app.run()
