# /// script
# [tool.marimo.display]
# theme = "system"
# ///

import marimo

app = marimo.App(app_title="12 · AdamW and schedules", width="medium")


@app.cell(hide_code=True)
def _():
    import marimo as mo
    import numpy as np

    from glassbert.learn import check, show
    from glassbert.learn.solutions.training import adamw_step as adamw_of_the_course
    from glassbert.training.schedules import make_schedule

    return adamw_of_the_course, check, make_schedule, mo, np, show


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    # 12 · AdamW and schedules

    **One idea.** Divide each gradient by its own usual size. Then every weight takes steps of about the learning rate,
    whether its gradients are large or tiny.

    $$m = \beta_1 m + (1 - \beta_1)\,g$$

    $$v = \beta_2 v + (1 - \beta_2)\,g^2$$

    $$p \leftarrow p - \eta\left(\frac{\hat m}{\sqrt{\hat v} + \varepsilon} + \lambda p\right)$$

    $$\hat m = \frac{m}{1 - \beta_1^t},\quad \hat v = \frac{v}{1 - \beta_2^t}$$
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    choice = mo.ui.radio(
        ["a thousand times larger", "about the same", "a thousand times smaller"],
        label="**Predict.** Two weights: the gradient of one is a thousand times that of the other. How much larger is "
        "AdamW's first step for it?",
    )
    choice
    return (choice,)


@app.cell(hide_code=True)
def _(adamw_of_the_course, choice, np, show):
    _p, _zero = np.zeros(2), np.zeros(2)
    _moved, _, _ = adamw_of_the_course(_p, np.array([1.0, 0.001]), _zero, _zero, 1, 0.01, 0.9, 0.999, 1e-8, 0.0)
    _ratio = float(_moved[0] / _moved[1])
    _large, _same, _small = choice.options
    _right = _large if _ratio > 100 else _small if _ratio < 0.01 else _same
    show.answer(
        choice,
        _right,
        f"The steps are {_moved[0]:.6f} and {_moved[1]:.6f}, with a learning rate of 0.01. In the first step m̂ / √v̂ is "
        "the sign of the gradient.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## Move: down a narrow valley

    A loss that is steep in one direction and flat in the other. Gradient descent must go slowly, or it jumps out of the
    valley; then it hardly moves along it. Choose the learning rates.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    sgd_rate = mo.ui.slider(0.001, 0.021, 0.001, value=0.015, label="rate of SGD", show_value=True)
    adam_rate = mo.ui.slider(0.01, 0.5, 0.01, value=0.15, label="rate of AdamW", show_value=True)
    mo.hstack([sgd_rate, adam_rate], justify="start", gap=3, wrap=True)
    return adam_rate, sgd_rate


@app.cell(hide_code=True)
def _(adam_rate, adamw_of_the_course, mo, np, sgd_rate, show):
    _curvature = np.array([100.0, 1.0])

    def _loss(p):
        return float(0.5 * (_curvature * p * p).sum())

    _sgd, _adam = [np.array([1.0, 4.0])], [np.array([1.0, 4.0])]
    _m, _v = np.zeros(2), np.zeros(2)
    for _t in range(1, 61):
        _sgd.append(_sgd[-1] - sgd_rate.value * _curvature * _sgd[-1])
        _next, _m, _v = adamw_of_the_course(
            _adam[-1], _curvature * _adam[-1], _m, _v, _t, adam_rate.value, 0.9, 0.999, 1e-8, 0.0
        )
        _adam.append(_next)
    _steps = np.arange(61)
    _ends = [[_loss(_sgd[-1]), _loss(_adam[-1])]]
    _log = {name: np.log10([_loss(p) + 1e-12 for p in path]) for name, path in (("SGD", _sgd), ("AdamW", _adam))}
    mo.vstack(
        [
            show.curves({name: (_steps, y) for name, y in _log.items()}, title="loss (log10)", x="step"),
            show.heat(_ends, columns=["SGD", "AdamW"], title="loss after 60 steps", digits=4, name="ends"),
        ]
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## Bias correction

    m and v begin at 0. After one step v holds a thousandth of g² (with β₂ = 0.999). Without the correction the first
    steps divide by a root that is far too small.
    """)
    return


@app.cell(hide_code=True)
def _(adamw_of_the_course, np, show):
    def _sizes(corrected):
        p, m, v, found = np.zeros(1), np.zeros(1), np.zeros(1), []
        for t in range(1, 101):
            step = t if corrected else 10**9
            new, m, v = adamw_of_the_course(p, np.ones(1), m, v, step, 0.01, 0.9, 0.999, 1e-8, 0.0)
            found.append(float(np.abs(new - p)[0] / 0.01))
            p = new
        return found

    _steps = np.arange(1, 101)
    show.curves(
        {"with correction": (_steps, _sizes(True)), "without": (_steps, _sizes(False))},
        title="size of a step / learning rate, for a constant gradient",
        x="step",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## The schedule

    A warm-up, while v is still a bad estimate and the first gradients are wild. Then a fall, so that the last steps
    settle. Move the warm-up.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    warmup = mo.ui.slider(0.0, 0.5, 0.05, value=0.1, label="warm-up", show_value=True)
    warmup
    return (warmup,)


@app.cell(hide_code=True)
def _(make_schedule, np, show, warmup):
    _progress = np.linspace(0.0, 1.0, 101)
    _drawn = {}
    for _name in ("linear", "cosine", "wsd"):
        _schedule = make_schedule(_name, warmup=warmup.value)
        _drawn[_name] = (_progress, [_schedule(p) for p in _progress])
    show.curves(_drawn, title="factor on the learning rate", x="progress")
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("## Write them yourself")
    return


@app.cell(hide_code=True)
def _(show):
    show.task("adamw_step") + show.task("schedule")
    return


@app.cell
def _():
    def adamw_step(p, g, m, v, t, lr, beta1, beta2, eps, weight_decay): ...

    def schedule(progress, warmup): ...

    return adamw_step, schedule


@app.cell(hide_code=True)
def _(adamw_step, check, schedule):
    check(adamw_step=adamw_step, schedule=schedule)
    return


@app.cell(hide_code=True)
def _(mo, show):
    mo.vstack([mo.md("## Find the fault"), show.task("adamw_step_fault")])
    return


@app.cell
def _():
    adamw_step_fault = 0
    return (adamw_step_fault,)


@app.cell(hide_code=True)
def _(adamw_step_fault, check):
    check(adamw_step_fault=adamw_step_fault)
    return


@app.cell(hide_code=True)
def _(mo, show):
    from glassbert import AdamW

    mo.accordion({"What they became": show.source(AdamW.moved, AdamW.factors) + show.became("schedule")})
    return


@app.cell(hide_code=True)
def _(adamw_of_the_course, mo, np):
    _p, _m, _v = np.zeros(1), np.zeros(1), np.zeros(1)
    for _t in range(1, 1001):
        _p, _m, _v = adamw_of_the_course(_p, np.array([1e-6]), _m, _v, _t, 0.01, 0.9, 0.999, 1e-8, 0.0)
    mo.md(f"""
    ## A surprise

    A gradient of a millionth, a thousand steps of AdamW with a rate of 0.01: the weight has moved by
    **{abs(float(_p[0])):.2f}**. AdamW does not care how small a gradient is, only how steady. That is why a gradient
    that is wrong by a constant factor trains nearly as well, and nobody notices: check gradients, not curves.
    """)
    return


if __name__ == "__main__":
    app.run()
