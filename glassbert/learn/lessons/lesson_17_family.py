# /// script
# [tool.marimo.display]
# theme = "system"
# ///

import marimo

app = marimo.App(app_title="17 · The family, and scaling laws", width="medium")


@app.cell(hide_code=True)
def _():
    import marimo as mo
    import numpy as np

    import glassbert
    from glassbert.learn import check, show
    from glassbert.learn.models import tiny_config, tiny_tokenizer, train_tiny
    from glassbert.models.flops import training_flops
    from glassbert.models.model import Model

    return Model, check, glassbert, mo, np, show, tiny_config, tiny_tokenizer, train_tiny, training_flops


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    # 17 · The family, and scaling laws

    *An open lesson: it ends where you stop asking.*

    **One idea.** Most members of the BERT family are one encoder with other settings. And how good a member can become
    is predictable: over many sizes the loss falls along a straight line, if both axes are logarithms.

    $$\text{loss} \approx \text{factor} \cdot \text{size}^{-\text{exponent}}$$
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    choice = mo.ui.radio(
        ["by half", "by less than a tenth", "by less than a hundredth"],
        label="**Predict.** A law with the exponent 0.1. You double the model. How much does the loss fall?",
    )
    choice
    return (choice,)


@app.cell(hide_code=True)
def _(choice, show):
    _fall = 1 - 2**-0.1
    _half, _tenth, _little = choice.options
    _right = min(((_half, 0.5), (_tenth, 0.1), (_little, 0.01)), key=lambda one: abs(one[1] - _fall))[0]
    show.answer(choice, _right, f"By {_fall:.1%}. To halve the loss the model would have to grow {2**10:,}-fold.")
    return


@app.cell(hide_code=True)
def _(Model, glassbert, mo, training_flops):
    _rows = ""
    for _name, _config in sorted(glassbert.PRESETS.items(), key=lambda entry: entry[1].hidden_size):
        try:
            _count = Model(_config, "mlm", engine="numpy", initialize=False).get_parameter_count()
        except glassbert.GlassBertError:  # a member that is not trained by masking
            continue
        _flops = training_flops(_config, 1, 128, scored_rows=19) / 128
        _rows += f"\n    | {_name} | {_config.num_hidden_layers} x {_config.hidden_size} | {_count:,} | {_flops:.2e} |"
    mo.md(f"""
    ## The family

    Every preset of the package, with what training one token costs (in a row of 128, 15 % of the words masked).

    | preset | layers | parameters | FLOPs a token |
    |---|---|---|---|{_rows}

    A useful rule: training costs about 6 operations for each parameter of the blocks and each token, 2 forward and 4
    backward.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## Move: change one field of a config

    What does sharing all layers save (ALBERT)? What do narrow embeddings save? What does tying cost?
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    shared = mo.ui.checkbox(label="all layers share their weights")
    narrow = mo.ui.checkbox(label="embeddings of 64")
    tied = mo.ui.checkbox(label="tied decoder")
    depth = mo.ui.slider(1, 12, 1, value=3, label="layers", show_value=True)
    mo.hstack([depth, shared, narrow, tied], justify="start", gap=2, wrap=True)
    return depth, narrow, shared, tied


@app.cell(hide_code=True)
def _(Model, depth, glassbert, mo, narrow, shared, show, tied):
    _changes = {"num_hidden_layers": depth.value, "tie_word_embeddings": tied.value}
    _changes |= {"layer_groups": 1} if shared.value else {}
    _changes |= {"embedding_size": 64} if narrow.value else {}
    _model = Model(glassbert.MINI_BERT_CONFIG.replace(**_changes), "mlm", engine="numpy", initialize=False)
    _mini = glassbert.MiniBERT(engine="numpy", initialize=False).get_parameter_count()
    mo.vstack(
        [
            show.bars({"Mini-BERT": _mini, "this one": _model.get_parameter_count()}, title="parameters", digits=0),
            show.heat([[_model.get_parameter_count() / _mini]], title="share of Mini-BERT", digits=3, name="share"),
        ]
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## A law of your own

    Five widths of the tiny model, each trained with the same sentences. Move the number of steps: with too few, large
    models are not better yet.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    steps = mo.ui.slider(steps=[20, 40, 80, 160], value=40, label="steps", show_value=True)
    steps
    return (steps,)


@app.cell(hide_code=True)
def _(np, steps, tiny_config, tiny_tokenizer, train_tiny):
    _tokenizer = tiny_tokenizer()
    sizes, losses = [], []
    for _width in (4, 8, 16, 32, 64):
        _config = tiny_config(
            _tokenizer, hidden_size=_width, intermediate_size=4 * _width, num_hidden_layers=1, num_attention_heads=2
        )
        _found = []
        for _model, _loss in train_tiny(_config, _tokenizer, steps=steps.value):
            _found.append(_loss)
        sizes.append(_model.get_parameter_count())
        losses.append(float(np.mean(_found[-8:])))
    sizes, losses = np.array(sizes, float), np.array(losses)
    return losses, sizes


@app.cell(hide_code=True)
def _(losses, mo, np, show, sizes):
    from glassbert.learn.solutions.training import power_law as law_of_the_course

    _exponent, _factor = law_of_the_course(sizes, losses)
    _line = _factor * sizes**-_exponent
    _next = 4 * sizes[-1]
    mo.vstack(
        [
            show.curves(
                {
                    "measured": (np.log10(sizes), np.log10(losses)),
                    f"law, exponent {_exponent:.3f}": (np.log10(sizes), np.log10(_line)),
                },
                title="log10 of the loss over log10 of the parameters",
            ),
            mo.md(
                f"The law predicts {_factor * _next**-_exponent:.2f} for a model of {_next:,.0f} parameters. Five "
                "points of short runs are a weak ground: `glassbert scale` also tells how unsure such a prediction is."
            ),
        ]
    )
    return


@app.cell(hide_code=True)
def _(mo, show):
    mo.vstack([mo.md("## Write it yourself"), show.task("power_law")])
    return


@app.cell
def _():
    def power_law(sizes, losses): ...

    return (power_law,)


@app.cell(hide_code=True)
def _(check, power_law):
    check(power_law=power_law)
    return


@app.cell(hide_code=True)
def _(mo, show):
    mo.accordion({"What it became in the package": show.became("power_law")})
    return


@app.cell(hide_code=True)
def _(mo, np):
    _sizes = np.array([1e5, 1e6, 1e7, 1e8])
    _losses = 1.5 + 40.0 * _sizes**-0.3
    _slope, _intercept = np.polyfit(np.log(_sizes[:3]), np.log(_losses[:3]), 1)
    _predicted, _true = np.exp(_intercept) * 1e12**_slope, 1.5 + 40.0 * 1e12**-0.3
    mo.md(f"""
    ## A surprise

    Language has a floor: some words cannot be guessed. Take losses that fall towards 1.5, fit a law without a floor to
    three sizes, and ask it for a model of 10¹² parameters. It says **{_predicted:.2f}**; the truth is {_true:.2f}.
    Three points always look straight. The package's own fit has a floor, and says how unsure it is.

    ## On your own

    `glassbert scale --sizes 1,1.5,2 --tokens 1M --corpus CORPUS -o study` fits a law on real text. Does its
    prediction for the next size hold when you train it?
    """)
    return


if __name__ == "__main__":
    app.run()
