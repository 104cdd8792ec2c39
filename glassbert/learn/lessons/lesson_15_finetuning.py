# /// script
# [tool.marimo.display]
# theme = "system"
# ///

import marimo

app = marimo.App(app_title="15 · Fine-tuning and calibration", width="medium")


@app.cell(hide_code=True)
def _():
    import marimo as mo
    import numpy as np

    from glassbert import AdamW, TrainingStep
    from glassbert.insight import head_importance
    from glassbert.learn import check, show
    from glassbert.learn.models import PEOPLE, encode, masked_batch, sentences, trained
    from glassbert.metrics import apply_temperature, expected_calibration_error, fit_temperature
    from glassbert.models.model import Model

    return (
        AdamW,
        Model,
        PEOPLE,
        TrainingStep,
        apply_temperature,
        check,
        encode,
        expected_calibration_error,
        fit_temperature,
        head_importance,
        masked_batch,
        mo,
        np,
        sentences,
        show,
        trained,
    )


@app.cell(hide_code=True)
def _(mo, origin):
    mo.md(f"""
    # 15 · Fine-tuning, calibration, and what a head does

    **One idea.** A pretrained encoder needs few labels. But a model that is right 80 % of the time and says "99 % sure"
    is dangerous: its probabilities must be measured too.

    The encoder is {origin}. The task: does a sentence speak of one person or of several? We take sentences
    without *his*, *her* and *their*. A tenth of the labels is wrong, as in life.
    """)
    return


@app.cell(hide_code=True)
def _(PEOPLE, encode, np, sentences, trained):
    model, tokenizer, origin = trained()
    _several = {plural for plural, _ in PEOPLE.values()}
    _texts = [text for text in sentences(4000, seed=41) if not {"his", "her", "their"} & set(text.split())][:700]
    ids, mask = encode(tokenizer, _texts)
    truth = np.array([int(bool(_several & set(text.split()))) for text in _texts])
    noisy = np.where(np.random.default_rng(0).random(len(truth)) < 0.1, 1 - truth, truth)
    return ids, mask, model, noisy, origin, tokenizer


@app.cell(hide_code=True)
def _(mo):
    choice = mo.ui.radio(
        ["the pretrained encoder", "the new encoder", "both the same"],
        label="**Predict.** Both encoders are fine-tuned on the same 32 sentences. Which is better on new ones?",
    )
    choice
    return (choice,)


@app.cell(hide_code=True)
def _(AdamW, Model, TrainingStep, ids, mask, model, noisy, np):
    def finetune(pretrained, examples, epochs):
        """Fine-tune a binary head; returns the logits of the last 400 sentences."""
        new = Model(model.config.replace(classifier_pooling="mean"), "binary", engine="numpy", threads=1, seed=3)
        if pretrained:
            for name in new.parameters:
                if name in model.parameters and not name.startswith("head."):
                    new.parameters[name] = model.parameters[name]
        step = TrainingStep(new, AdamW(new, 1e-3))
        draw = np.random.default_rng(1)
        for _ in range(epochs):
            for rows in np.array_split(draw.permutation(examples), max(1, examples // 16)):
                step(ids[rows], noisy[rows], mask[rows])
        return np.asarray(new.predict(ids[300:], mask[300:])).reshape(-1)

    return (finetune,)


@app.cell(hide_code=True)
def _(choice, finetune, noisy, show):
    _scores = {
        name: float(((finetune(name == "the pretrained encoder", 32, 10) > 0) == noisy[300:]).mean())
        for name in ("the pretrained encoder", "the new encoder")
    }
    _best = (
        max(_scores, key=_scores.get) if abs(max(_scores.values()) - min(_scores.values())) > 0.02 else "both the same"
    )
    show.answer(
        choice,
        _best,
        f"Accuracy on 400 new sentences: pretrained {_scores['the pretrained encoder']:.0%}, new "
        f"{_scores['the new encoder']:.0%}. A tenth of the labels is wrong, so 90 % is the best that can be hoped for.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    examples = mo.ui.slider(steps=[16, 32, 64, 128, 256], value=128, label="examples", show_value=True)
    epochs = mo.ui.slider(1, 20, 1, value=8, label="epochs", show_value=True)
    _text = mo.md("## Move: examples and epochs\n\nMore epochs make a model surer. Do they make it better?")
    mo.vstack([_text, mo.hstack([examples, epochs], justify="start", gap=3, wrap=True)])
    return epochs, examples


@app.cell(hide_code=True)
def _(epochs, examples, finetune):
    logits = finetune(True, examples.value, epochs.value)
    return (logits,)


@app.cell(hide_code=True)
def _(mo):
    temperature = mo.ui.slider(0.25, 6.0, 0.25, value=1.0, label="temperature", show_value=True)
    temperature
    return (temperature,)


@app.cell(hide_code=True)
def _(
    apply_temperature,
    expected_calibration_error,
    fit_temperature,
    logits,
    mo,
    noisy,
    np,
    show,
    temperature,
):
    _truth = noisy[300:]
    _half = len(_truth) // 2
    _chances = apply_temperature(logits, temperature.value)
    _right = (_chances > 0.5) == _truth
    _sure = np.maximum(_chances, 1 - _chances)
    _best = fit_temperature(_truth[:_half], logits[:_half])
    _ece = [
        float(expected_calibration_error(_truth[_half:], apply_temperature(logits[_half:], t)))
        for t in (1.0, temperature.value, _best)
    ]
    mo.vstack(
        [
            show.heat(
                [[_right.mean(), _sure.mean()]],
                columns=["share right", "mean confidence"], limit=1.0, digits=3, name="sure",
            ),
            show.heat(
                [_ece], columns=["T = 1", f"T = {temperature.value:g}", f"fitted, T = {_best:.2f}"],
                title="calibration error on the other half", limit=0.3, digits=3,
            ),
        ]
    )  # fmt: skip
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    The temperature divides all logits. It changes no answer, only how sure the model says it is. It is fitted on one
    half of the held-out sentences and judged on the other: on the rows that it was fitted on it would look better
    than it is.

    ## What a head does

    Switch off one head at a time and see how much the masked-language loss rises.
    """)
    return


@app.cell(hide_code=True)
def _(head_importance, masked_batch, mo, model, sentences, show, tokenizer):
    _batch = masked_batch(tokenizer, sentences(200, seed=51), seed=2)._asdict()
    _found = head_importance(model, [_batch])
    _rows = [f"layer {i}" for i in range(_found.rise.shape[0])]
    _columns = [f"head {h}" for h in range(_found.rise.shape[1])]
    mo.vstack(
        [
            show.heat(
                _found.rise, _rows, _columns, title=f"rise of the loss ({_found.loss:.3f} with all heads)", digits=3
            ),
            mo.md(f"Least important head: **{_found.rise.min():+.3f}**. Most important: **{_found.rise.max():+.3f}**."),
        ]
    )
    return


@app.cell(hide_code=True)
def _(mo, show):
    mo.vstack([mo.md("## Write it yourself"), show.task("calibration_error")])
    return


@app.cell
def _():
    def calibration_error(confidence, correct, bins): ...

    return (calibration_error,)


@app.cell(hide_code=True)
def _(calibration_error, check):
    check(calibration_error=calibration_error)
    return


@app.cell(hide_code=True)
def _(head_importance, mo, show):
    mo.accordion({"What it became in the package": show.became("calibration_error") + show.source(head_importance)})
    return


@app.cell(hide_code=True)
def _(finetune, mo, noisy, np):
    _truth = noisy[300:]
    _rows = []
    for _epochs in (2, 20):
        _z = finetune(True, 64, _epochs)
        _loss = float(np.logaddexp(0.0, np.where(_truth == 1, -_z, _z)).mean())
        _rows.append((_epochs, float(((_z > 0) == _truth).mean()), _loss))
    mo.md(f"""
    ## A surprise

    With 64 examples, after {_rows[0][0]} epochs {_rows[0][1]:.0%} are right and the loss is {_rows[0][2]:.2f}. After
    {_rows[1][0]} epochs {_rows[1][1]:.0%} are right and the loss is **{_rows[1][2]:.2f}**. Accuracy and loss can go
    different ways: the model learns the wrong labels by heart and is sure of them.
    """)
    return


if __name__ == "__main__":
    app.run()
