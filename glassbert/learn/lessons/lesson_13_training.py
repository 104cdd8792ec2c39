# /// script
# [tool.marimo.display]
# theme = "system"
# ///

import marimo

app = marimo.App(app_title="13 · The loop", width="medium")


@app.cell(hide_code=True)
def _():
    import marimo as mo
    import numpy as np

    from glassbert import AdamW, TrainingStep, fill_mask
    from glassbert.learn import check, show
    from glassbert.learn.models import masked_batch, sentences, tiny_config, tiny_tokenizer, train_tiny
    from glassbert.models.model import Model

    return (
        AdamW,
        Model,
        TrainingStep,
        check,
        fill_mask,
        masked_batch,
        mo,
        np,
        sentences,
        show,
        tiny_config,
        tiny_tokenizer,
        train_tiny,
    )


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    # 13 · The loop: overfit one batch, then train a Mini

    **One idea.** Training is five lines in a loop. Before you run it for hours, run it on one batch: a model that
    cannot learn sixteen sentences by heart has a bug.

    ```python
    for batch in batches:
        loss, cache = model.loss(batch.input_ids, batch.labels, batch.attention_mask)   # forward
        gradients = model.backward(cache)                                               # backward
        clip(gradients)                                                                 # no step too long
        optimizer.update(model.parameters, gradients)                                   # AdamW
    ```
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    choice = mo.ui.radio(
        ["near log V", "near 0", "near 1"],
        label="**Predict.** A tiny model sees the same 16 sentences with the same masks 120 times. Where does its "
        "loss end?",
    )
    choice
    return (choice,)


@app.cell(hide_code=True)
def _(AdamW, Model, TrainingStep, masked_batch, np, sentences, tiny_config, tiny_tokenizer):
    tokenizer = tiny_tokenizer()
    config = tiny_config(tokenizer)
    one_batch = masked_batch(tokenizer, sentences(16, seed=5), seed=1)

    def overfit(rate, steps=120, break_labels=False):
        """The losses of training on one batch again and again."""
        model = Model(config, "mlm", engine="numpy", threads=1)
        step = TrainingStep(model, AdamW(model, rate))
        losses = []
        for number in range(steps):
            labels = one_batch.labels
            if break_labels:  # a bug: labels of another row at every step
                labels = np.roll(labels, number, axis=0)
            losses.append(float(step(one_batch.input_ids, labels, one_batch.attention_mask).loss))
        return losses

    return config, one_batch, overfit, tokenizer


@app.cell(hide_code=True)
def _(choice, config, np, overfit, show):
    _losses = overfit(3e-3)
    _ends = {"near log V": np.log(config.vocab_size), "near 0": 0.0, "near 1": 1.0}
    _right = min(_ends, key=lambda name: abs(_ends[name] - _losses[-1]))
    show.answer(
        choice,
        _right,
        f"It begins at {_losses[0]:.2f}; log {config.vocab_size} is {np.log(config.vocab_size):.2f}. It ends at "
        f"{_losses[-1]:.4f}: learned by heart. That is no success, but it proves that forward, backward and "
        "optimizer fit.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("## Move: the learning rate\n\nToo small is slow, too large does not learn. And what does a bug look like?")
    return


@app.cell(hide_code=True)
def _(mo):
    rate = mo.ui.slider(
        steps=[0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1], value=0.001, label="learning rate", show_value=True
    )
    bug = mo.ui.checkbox(label="plant a bug: labels slip by one row")
    mo.hstack([rate, bug], justify="start", gap=3, wrap=True)
    return bug, rate


@app.cell(hide_code=True)
def _(bug, mo, np, overfit, rate, show):
    _losses = overfit(rate.value, steps=80, break_labels=bug.value)
    mo.vstack(
        [
            show.curves({"loss": (np.arange(len(_losses)), _losses)}, title="one batch, again and again", x="step"),
            show.heat([[_losses[0], _losses[-1]]], columns=["first", "last"], title="loss", digits=4, name="overfit"),
        ]
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## Train a Mini

    Now with new sentences at every step. The sentences follow a small grammar: the verb agrees with its subject, *his*
    and *her* depend on it. Watch what is learned first. Press the button; it takes some seconds.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    start = mo.ui.run_button(label="train 150 steps")
    start
    return (start,)


@app.cell(hide_code=True)
def _(config, fill_mask, mo, np, show, start, tokenizer, train_tiny):
    _steps = 150 if start.value else 30
    _losses, _answers = [], {}
    _sentence = "the kings near the river [MASK] a cat ."
    for _number, (_model, _loss) in enumerate(train_tiny(config, tokenizer, steps=_steps)):
        _losses.append(_loss)
        if (_number + 1) % (_steps // 3) == 0:
            _best = fill_mask(_model, tokenizer, _sentence, top=3)[0]
            _answers[_number + 1] = ", ".join(f"{a.word} {a.chance:.2f}" for a in _best)
    _table = "\n".join(f"| {step} | {best} |" for step, best in _answers.items())
    mo.vstack(
        [
            show.curves({"loss": (np.arange(_steps), _losses)}, title=f"{_steps} steps of new sentences", x="step"),
            mo.md(f"*{_sentence}*\n\n| step | best answers |\n|---|---|\n{_table}"),
            mo.md(f"First loss {_losses[0]:.2f}, last {_losses[-1]:.2f}."),
        ]
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    First the frequencies of words, then what can stand in which place, then agreement. The order is always the same:
    what explains most of the loss comes first.

    ## Write it yourself

    One line of the loop is missing so far.
    """)
    return


@app.cell(hide_code=True)
def _(show):
    show.task("clip_gradients")
    return


@app.cell
def _():
    def clip_gradients(gradients, limit): ...

    return (clip_gradients,)


@app.cell(hide_code=True)
def _(check, clip_gradients):
    check(clip_gradients=clip_gradients)
    return


@app.cell(hide_code=True)
def _(mo, show):
    mo.vstack([mo.md("## Find the fault"), show.task("clip_gradients_fault")])
    return


@app.cell
def _():
    clip_gradients_fault = 0
    return (clip_gradients_fault,)


@app.cell(hide_code=True)
def _(check, clip_gradients_fault):
    check(clip_gradients_fault=clip_gradients_fault)
    return


@app.cell(hide_code=True)
def _(TrainingStep, mo, show):
    mo.accordion({"What the loop became in the package": show.became("clip_gradients") + show.source(TrainingStep.run)})
    return


@app.cell(hide_code=True)
def _(Model, config, mo, np, one_batch):
    _model = Model(config, "mlm", engine="numpy", threads=1)
    _, _cache = _model.loss(one_batch.input_ids, one_batch.labels, one_batch.attention_mask)
    _gradients = _model.backward(_cache)
    _norms = {name: float(np.sqrt((np.asarray(g) ** 2).sum())) for name, g in _gradients.items()}
    _total = float(np.sqrt(sum(n**2 for n in _norms.values())))
    _largest = max(_norms, key=_norms.get)
    mo.md(f"""
    ## A surprise

    Of {len(_norms)} arrays one, `{_largest}`, has **{(_norms[_largest] / _total) ** 2:.0%}** of the squared norm of the
    first gradient. When its gradient is long, the steps of all the others become shorter too: one factor for all.
    """)
    return


if __name__ == "__main__":
    app.run()
