# /// script
# [tool.marimo.display]
# theme = "system"
# ///

import marimo

app = marimo.App(app_title="14 · Perplexity and probes", width="medium")


@app.cell(hide_code=True)
def _():
    import marimo as mo
    import numpy as np

    from glassbert.evaluation.probes.features import Features
    from glassbert.evaluation.probes.softmax_regression import fit_linear
    from glassbert.insight import hidden_states
    from glassbert.learn import check, show
    from glassbert.learn.models import TAGS, encode, masked_batch, sentences, trained
    from glassbert.training.evaluate import evaluate

    return (
        Features,
        TAGS,
        check,
        encode,
        evaluate,
        fit_linear,
        hidden_states,
        masked_batch,
        mo,
        np,
        sentences,
        show,
        trained,
    )


@app.cell(hide_code=True)
def _(mo, origin):
    mo.md(rf"""
    # 14 · Perplexity, probes and their controls

    **One idea.** A number about a model means nothing without the number that ignorance would get.

    $$\text{{perplexity}} = \exp(\text{{mean loss of a token}})$$

    A perplexity of 5 means: as unsure as between five equally likely words. The model is {origin}.
    """)
    return


@app.cell(hide_code=True)
def _(trained):
    model, tokenizer, origin = trained()
    new_model = model.untrained()
    return model, new_model, origin, tokenizer


@app.cell(hide_code=True)
def _(mo):
    choice = mo.ui.radio(
        ["about 20 %", "about 50 %", "above 90 %"],
        label="**Predict.** A linear probe reads parts of speech from the vectors of an *untrained* model. How often "
        "is it right?",
    )
    choice
    return (choice,)


@app.cell(hide_code=True)
def _(Features, TAGS, encode, fit_linear, hidden_states, np, sentences, tokenizer):
    _names = sorted(set(TAGS.values()))
    _texts = sentences(300, seed=11)
    _ids, _mask = encode(tokenizer, _texts)
    _words = [[tokenizer.id_to_token(int(i)) for i in row] for row in _ids]
    _kept = np.array([[word in TAGS for word in row] for row in _words])
    labels = np.array([_names.index(TAGS[word]) for row in _words for word in row if word in TAGS])
    word_ids = _ids[_kept]
    _row = np.nonzero(_kept)[0]
    train, test = np.flatnonzero(_row < 200), np.flatnonzero(_row >= 200)
    common = float((labels[test] == np.bincount(labels[train]).argmax()).mean())

    def probe(model, targets):
        """The accuracy of a linear probe on every layer."""
        found = {}
        for name, states in hidden_states(model, _ids, _mask).items():
            features = Features.of(states[_kept][None].astype(np.float64))
            fitted = fit_linear(features.select(train), targets[train], int(targets.max()) + 1, 1e-3)
            predicted = fitted.scores(features.select(test)).argmax(1)
            found[name] = float((predicted == targets[test]).mean())
        return found

    return common, labels, probe, word_ids


@app.cell(hide_code=True)
def _(choice, common, labels, new_model, probe, show):
    _untrained = max(probe(new_model, labels).values())
    _low, _middle, _high = choice.options
    show.answer(
        choice,
        _high if _untrained > 0.75 else _middle if _untrained > 0.35 else _low,
        f"{_untrained:.0%}, and the most frequent tag alone gives {common:.0%}. A random vector for every word is "
        "enough to recognise the word again, and in this text a word has one part of speech. The probe learned a "
        "dictionary. It says nothing about what training gave.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    _text = mo.md("""
    ## The control task

    Give every *word* a random tag, the same wherever it occurs, and fit the same probe. A probe that is good at this
    too has learned words by heart. What counts is the difference, called selectivity. Move the number of random tags.
    """)
    tags = mo.ui.slider(2, 12, 1, value=6, label="random tags", show_value=True)
    mo.vstack([_text, tags])
    return (tags,)


@app.cell(hide_code=True)
def _(labels, model, new_model, np, probe, show, tags, word_ids):
    _control = np.random.default_rng(0).integers(0, tags.value, int(word_ids.max()) + 1)[word_ids]
    _rows = {
        "trained: parts of speech": probe(model, labels),
        "untrained: parts of speech": probe(new_model, labels),
        "trained: random tags": probe(model, _control),
        "untrained: random tags": probe(new_model, _control),
    }
    show.heat(
        [list(row.values()) for row in _rows.values()],
        list(_rows),
        list(next(iter(_rows.values()))),
        title="accuracy of a linear probe",
        limit=1.0,
        digits=3,
        name="probes",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## A question that words alone cannot answer

    Is the *subject of the sentence* plural? Asked at the last noun, the object, whose own form says nothing about the
    subject. Only a model that carries information from word to word can answer.
    """)
    return


@app.cell(hide_code=True)
def _(Features, encode, fit_linear, hidden_states, model, new_model, np, sentences, show, tokenizer):
    from glassbert.learn.models import ANIMALS, PEOPLE

    _plural = {plural for plural, _ in PEOPLE.values()}
    _texts = [text for text in sentences(1500, seed=21) if text.split()[-2] in {*ANIMALS, *ANIMALS.values()}]
    _labels = np.array([int(any(word in _plural for word in text.split())) for text in _texts])
    _ids, _mask = encode(tokenizer, _texts)
    _last = _mask.sum(1) - 3  # the object's noun; the mark and [SEP] follow
    _rows = np.arange(len(_texts))
    _half = len(_texts) // 2
    _found = {}
    for _name, _one in (("trained", model), ("untrained", new_model)):
        _found[_name] = []
        for _states in hidden_states(_one, _ids, _mask).values():
            _features = Features.of(_states[_rows, _last][None].astype(np.float64))
            _probe = fit_linear(_features.select(_rows[:_half]), _labels[:_half], 2, 1e-2)
            _right = _probe.scores(_features.select(_rows[_half:])).argmax(1) == _labels[_half:]
            _found[_name].append(float(_right.mean()))
    _columns = ["embeddings", *(f"layers.{i}" for i in range(model.config.num_hidden_layers))]
    show.heat(
        list(_found.values()), list(_found), _columns, title="is the subject plural? asked at the object", limit=1.0
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    At the embeddings neither model knows. Deeper in, the trained one does. This difference is what training gave.

    ## Perplexity, and how not to average it
    """)
    return


@app.cell(hide_code=True)
def _(evaluate, masked_batch, mo, model, new_model, np, sentences, tokenizer):
    _batches = [
        {**masked_batch(tokenizer, sentences(size, seed=31 + size), seed=size)._asdict()} for size in (2, 20, 200)
    ]
    _results = [evaluate(model, [batch]) for batch in _batches]
    _together = evaluate(model, _batches).perplexity
    _mean = float(np.mean([one.perplexity for one in _results]))
    mo.md(f"""
    Three batches of 2, 20 and 200 sentences have the perplexities
    {", ".join(f"{one.perplexity:.2f}" for one in _results)}. Their mean is {_mean:.2f}. The perplexity of all tokens
    together is **{_together:.2f}**. The untrained model has {evaluate(new_model, _batches).perplexity:,.0f}.
    """)
    return


@app.cell(hide_code=True)
def _(show):
    show.task("perplexity")
    return


@app.cell
def _():
    def perplexity(losses, counts): ...

    return (perplexity,)


@app.cell(hide_code=True)
def _(check, perplexity):
    check(perplexity=perplexity)
    return


@app.cell(hide_code=True)
def _(fit_linear, mo, show):
    mo.accordion({"What it became in the package": show.became("perplexity") + show.source(fit_linear)})
    return


@app.cell(hide_code=True)
def _(mo, np):
    _losses = np.array([1.0, 1.0, 1.0, 8.0])
    mo.md(f"""
    ## A surprise

    Four texts with the losses 1, 1, 1 and 8. The mean of their perplexities is {np.exp(_losses).mean():,.0f}; the
    perplexity of their mean is **{np.exp(_losses.mean()):.1f}**. Say which one you report.
    """)
    return


if __name__ == "__main__":
    app.run()
