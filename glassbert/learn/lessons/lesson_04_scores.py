# /// script
# [tool.marimo.display]
# theme = "system"
# ///

import marimo

app = marimo.App(app_title="4 · Scores, scaling and softmax", width="medium")


@app.cell(hide_code=True)
def _():
    import marimo as mo
    import numpy as np

    from glassbert import ops
    from glassbert.insight import attention_entropy
    from glassbert.learn import check, show

    return attention_entropy, check, mo, np, ops, show


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    # 4 · Scores, scaling and softmax

    **One idea.** A token asks a question (its *query*). Every token offers a *key*. The dot product of the two is the
    score, and the softmax turns scores into weights that add up to 1.

    $$s_{ij} = \frac{q_i \cdot k_j}{\sqrt d}$$

    $$a_{ij} = \frac{\exp(s_{ij} - \max_j s_{ij})}{\sum_{j'} \exp(s_{ij'} - \max_j s_{ij})}$$
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    choice = mo.ui.radio(
        ["they do not change", "they all grow", "the largest grows"],
        label="**Predict.** You add 100 to every score of a row. What happens to its weights?",
    )
    choice
    return (choice,)


@app.cell(hide_code=True)
def _(choice, np, ops, show):
    _scores = np.array([1.0, 2.0, -1.0, 0.5])
    _change = ops.softmax(_scores + 100.0)[0] - ops.softmax(_scores)[0]
    _right = "they do not change" if np.abs(_change).max() < 1e-9 else "the largest grows"
    show.answer(
        choice,
        _right,
        f"The largest change is {np.abs(_change).max():.0e}. exp(100) is a common factor and cancels. So we may "
        "subtract the maximum, and exp never overflows.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## Move: one score, and the temperature

    Raise the score of *sat*. Then change the temperature: all scores are divided by it.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    score = mo.ui.slider(-3.0, 6.0, 0.25, value=1.0, label="score of sat", show_value=True)
    temperature = mo.ui.slider(0.25, 8.0, 0.25, value=1.0, label="temperature", show_value=True)
    mo.hstack([score, temperature], justify="start", gap=3)
    return score, temperature


@app.cell(hide_code=True)
def _(attention_entropy, mo, np, ops, score, show, temperature):
    _words = ["the", "cat", "sat", "down"]
    _scores = np.array([0.5, 2.0, score.value, -1.0])
    _weights, _ = ops.softmax(_scores / temperature.value)
    mo.vstack(
        [
            show.side_by_side(
                show.heat(_scores, columns=_words, title="scores", limit=6.0),
                show.heat(_weights, columns=_words, title="weights", limit=1.0, digits=3, name="weights"),
            ),
            mo.md(
                f"They add up to {_weights.sum():.3f}. Entropy {attention_entropy(_weights):.3f} nats; "
                f"four equal weights have {np.log(4):.3f}."
            ),
        ]
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    One score rose, and all weights changed: the others had to give. That is the whole difficulty of the softmax's
    backward (lesson 11).

    ## Why $\sqrt d$?

    A dot product of $d$ random numbers adds $d$ terms. Terms of either sign partly cancel, so its size grows with
    $\sqrt d$. Move the size of the head and watch what happens with and without the division.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    size = mo.ui.slider(steps=[1, 4, 16, 48, 64, 256, 1024], value=48, label="d", show_value=True)
    size
    return (size,)


@app.cell(hide_code=True)
def _(mo, np, ops, show, size):
    _draw = np.random.default_rng(0)
    _q, _k = _draw.standard_normal((200, size.value)), _draw.standard_normal((12, size.value))
    _raw = _q @ _k.T  # [200, 12]
    _scaled = _raw / np.sqrt(size.value)
    _plain, _even = ops.softmax(_raw)[0], ops.softmax(_scaled)[0]
    mo.vstack(
        [
            show.heat(
                [[_raw.std(), _plain.max(-1).mean()], [_scaled.std(), _even.max(-1).mean()]],
                ["q·k", "q·k / √d"],
                ["spread of the scores", "largest of 12 weights, mean"],
                title=f"random queries and keys, d = {size.value}",
                name="scaling",
            ),
            show.heat(
                np.stack([np.sort(_plain[0])[::-1], np.sort(_even[0])[::-1]]),
                ["q·k", "q·k / √d"],
                title="the weights of one query, sorted",
                limit=1.0,
            ),
        ]
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    Without the division one key takes everything, before anything is learned. And where a weight is nearly 1 or nearly
    0 the softmax is flat: no gradient comes back. The division keeps the scores where learning is possible.

    ## Write it yourself
    """)
    return


@app.cell(hide_code=True)
def _(show):
    show.task("softmax")
    return


@app.cell
def _():
    def softmax(x): ...

    return (softmax,)


@app.cell(hide_code=True)
def _(check, softmax):
    check(softmax=softmax)
    return


@app.cell(hide_code=True)
def _(mo, show):
    mo.accordion({"What it became in the package": show.became("softmax")})
    return


@app.cell(hide_code=True)
def _(mo, np, ops):
    with np.errstate(over="ignore", invalid="ignore"):
        _naive = np.exp(np.array([710.0, 700.0]))
        _naive = _naive / _naive.sum()
    _good, _ = ops.softmax(np.array([710.0, 700.0]))
    _longest = np.log(np.finfo(np.float32).max)
    mo.md(f"""
    ## A surprise

    The weights of the scores 710 and 700 are {_good[0]:.5f} and {_good[1]:.5f}. Computed as exp(x) / Σ exp(x) they are
    **{_naive[0]} and {_naive[1]}**: exp(710) is beyond float64. In float32 the limit is already {_longest:.1f}. One
    subtraction that changes nothing in mathematics decides whether the program works.
    """)
    return


if __name__ == "__main__":
    app.run()
