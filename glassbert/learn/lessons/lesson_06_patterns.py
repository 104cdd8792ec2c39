# /// script
# [tool.marimo.display]
# theme = "system"
# ///

import marimo

app = marimo.App(app_title="6 · What heads look at", width="medium")


@app.cell(hide_code=True)
def _():
    import marimo as mo
    import numpy as np

    from glassbert import fill_mask
    from glassbert.insight import attention_entropy, attention_maps
    from glassbert.learn import check, show
    from glassbert.learn.models import encode, sentences, trained

    return attention_entropy, attention_maps, check, encode, fill_mask, mo, np, sentences, show, trained


@app.cell(hide_code=True)
def _(mo, origin):
    mo.md(f"""
    # 6 · What the heads of a trained model look at

    **One idea.** Nobody tells a head what to do. Some heads become readable all the same: one looks at the word before,
    one at the word that decides the answer. We measure it, instead of looking at one nice picture.

    The model is {origin}.
    """)
    return


@app.cell(hide_code=True)
def _(trained):
    model, tokenizer, origin = trained()
    return model, origin, tokenizer


@app.cell(hide_code=True)
def _(mo):
    choice = mo.ui.radio(
        ["before training", "after training"],
        label="**Predict.** Entropy says how widely a head spreads its attention. When is the mean entropy of all "
        "heads larger?",
    )
    choice
    return (choice,)


@app.cell(hide_code=True)
def _(attention_entropy, attention_maps, encode, model, np, sentences, tokenizer):
    ids, mask = encode(tokenizer, sentences(100, seed=7))
    maps = attention_maps(model, ids, mask).astype(np.float64)  # [layers, B, heads, T, T]
    new_maps = attention_maps(model.untrained(), ids, mask).astype(np.float64)
    _real = mask[:, None, :].astype(bool)

    def entropy_of(given):
        each = attention_entropy(given)  # [layers, B, heads, T]
        return np.where(_real, each, 0.0).sum((1, 3)) / mask.sum()  # [layers, heads]

    return entropy_of, ids, maps, mask, new_maps


@app.cell(hide_code=True)
def _(choice, entropy_of, maps, new_maps, show):
    _before, _after = float(entropy_of(new_maps).mean()), float(entropy_of(maps).mean())
    show.answer(
        choice,
        "before training" if _before > _after else "after training",
        f"Before training {_before:.2f} nats, after training {_after:.2f}. New heads look everywhere alike; training "
        "makes some of them choose.",
    )
    return


@app.cell(hide_code=True)
def _(entropy_of, maps, new_maps, show):
    _rows = [f"layer {i}" for i in range(maps.shape[0])]
    _columns = [f"head {h}" for h in range(maps.shape[2])]
    show.side_by_side(
        show.heat(entropy_of(new_maps), _rows, _columns, title="entropy, untrained", limit=3.0),
        show.heat(entropy_of(maps), _rows, _columns, title="entropy, trained", limit=3.0),
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## Move: which word decides?

    In these sentences *his*, *her* and *their* depend on the subject. We mask that word and see which head looks from
    the mask to the subject. Choose the subject; watch the answers and the head.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    subject = mo.ui.dropdown(["queen", "king", "woman", "boy", "girl", "father"], value="queen", label="subject")
    subject
    return (subject,)


@app.cell(hide_code=True)
def _(attention_maps, encode, fill_mask, mo, model, np, show, subject, tokenizer):
    _text = f"the {subject.value} in the garden loves [MASK] horse ."
    _ids, _mask = encode(tokenizer, [_text])
    _tokens = [tokenizer.id_to_token(int(i)) for i in _ids[0]]
    _maps = attention_maps(model, _ids, _mask).astype(np.float64)[:, 0]  # [layers, heads, T, T]
    _query, _key = _tokens.index("[MASK]"), _tokens.index(subject.value)
    _layer, _head = np.unravel_index(_maps[:, :, _query, _key].argmax(), _maps.shape[:2])
    _answers = {answer.word: answer.chance for answer in fill_mask(model, tokenizer, _text)[0]}
    mo.vstack(
        [
            show.bars(_answers, title=_text),
            show.heat(
                _maps[_layer, _head, _query],
                columns=_tokens,
                title=f"layer {_layer}, head {_head}: what [MASK] looks at",
                limit=1.0,
                name="subject",
            ),
        ]
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## A picture is not a measurement

    One sentence proves nothing. Over 100 sentences, how much of each head's attention goes to the token before, to the
    token after, to itself? Choose.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    offset = mo.ui.slider(-3, 3, 1, value=-1, label="distance of the key", show_value=True)
    offset
    return (offset,)


@app.cell(hide_code=True)
def _(maps, mask, np, offset, show):
    _length = maps.shape[-1]
    _i = np.arange(max(0, -offset.value), min(_length, _length - offset.value))
    _share = maps[:, :, :, _i, _i + offset.value]  # [layers, B, heads, n]
    _real = (mask[:, _i] * mask[:, _i + offset.value])[None, :, None]
    _mean = (_share * _real).sum((1, 3)) / _real.sum()
    show.heat(
        _mean,
        [f"layer {i}" for i in range(maps.shape[0])],
        [f"head {h}" for h in range(maps.shape[2])],
        title=f"mean weight on the token at distance {offset.value:+d}",
        limit=1.0,
        digits=3,
        name="distance",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("## Write it yourself")
    return


@app.cell(hide_code=True)
def _(show):
    show.task("attention_entropy")
    return


@app.cell
def _():
    def attention_entropy_of_mine(weights): ...

    return (attention_entropy_of_mine,)


@app.cell(hide_code=True)
def _(attention_entropy_of_mine, check):
    check(attention_entropy=attention_entropy_of_mine)
    return


@app.cell(hide_code=True)
def _(mo, show):
    mo.vstack([mo.md("## Find the fault\n\nThis attention has one wrong line."), show.task("attention_fault")])
    return


@app.cell
def _():
    attention_fault = 0
    return (attention_fault,)


@app.cell(hide_code=True)
def _(attention_fault, check):
    check(attention_fault=attention_fault)
    return


@app.cell(hide_code=True)
def _(mo, show):
    mo.accordion({"What it became in the package": show.became("attention_entropy")})
    return


@app.cell(hide_code=True)
def _(ids, maps, mask, mo, np, tokenizer):
    _special = np.isin(ids, tokenizer.special_ids) & (mask == 1)
    _word = ~_special & (mask == 1)
    _weight = (maps * _special[None, :, None, None]).sum(-1)  # [layers, B, heads, T]
    _share = (_weight * _word[None, :, None]).sum((1, 3)) / _word.sum()
    _uniform = float((_special.sum(1) / mask.sum(1)).mean())
    _layer, _head = np.unravel_index(_share.argmax(), _share.shape)
    mo.md(f"""
    ## A surprise

    Weights must add up to 1, even when a head has nothing to say about a word. Where does the attention go
    then? In large models mostly to [CLS] and [SEP], which mean nothing. Here head {_head} of layer {_layer} puts most
    on them: **{_share.max():.0%}** of the words' attention, where equal weights would put {_uniform:.0%}.
    """)
    return


if __name__ == "__main__":
    app.run()
