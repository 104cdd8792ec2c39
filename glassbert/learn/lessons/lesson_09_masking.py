# /// script
# [tool.marimo.display]
# theme = "system"
# ///

import marimo

app = marimo.App(app_title="9 · Masking and cross-entropy", width="medium")


@app.cell(hide_code=True)
def _():
    import marimo as mo
    import numpy as np

    from glassbert import mask_tokens as mask_tokens_of_the_package
    from glassbert import ops
    from glassbert.learn import check, show
    from glassbert.learn.models import encode, trained

    return check, encode, mask_tokens_of_the_package, mo, np, ops, show, trained


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    # 9 · Masking and cross-entropy

    **One idea.** Hide some words, let the model guess, and punish it by the logarithm of the chance that it gave to the
    right word. Text is its own teacher: no labels are needed.

    $$\text{loss} = \frac{1}{n}\sum_{\text{targets}} \left(\log\sum_j e^{z_j} - z_{\text{target}}\right)
    = -\text{mean of } \log P(\text{target})$$
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    from glassbert import MINI_BERT_CONFIG

    vocab_size = MINI_BERT_CONFIG.vocab_size
    choice = mo.ui.radio(
        ["about 1", "about 9", f"about {vocab_size}"],
        label=f"**Predict.** A new model knows nothing: all {vocab_size:,} words are equally likely. How large is its "
        "loss?",
    )
    choice
    return choice, vocab_size


@app.cell(hide_code=True)
def _(choice, np, ops, show, vocab_size):
    _loss, _ = ops.cross_entropy(np.zeros((1, vocab_size)), np.array([7]))
    _right = min(choice.options, key=lambda option: abs(float(option.split()[-1]) - float(_loss)))
    show.answer(
        choice,
        _right,
        f"log {vocab_size} = {float(_loss):.3f}. If a new model begins with another loss, something is wrong before "
        "training has started. This is the first check of every run.",
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## Move: the logit of the right word

    Five words, and the third one is right. Move its logit and watch the loss. Then make the model sure of a wrong word.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    right_logit = mo.ui.slider(-8.0, 8.0, 0.5, value=0.0, label="logit of the right word", show_value=True)
    wrong_logit = mo.ui.slider(-8.0, 8.0, 0.5, value=1.0, label="logit of a wrong word", show_value=True)
    mo.hstack([right_logit, wrong_logit], justify="start", gap=3, wrap=True)
    return right_logit, wrong_logit


@app.cell(hide_code=True)
def _(np, ops, right_logit, show, wrong_logit):
    _words = ["king", "dog", "queen", "river", "sees"]
    _logits = np.array([[wrong_logit.value, 0.0, right_logit.value, 0.0, 0.0]])
    _loss, _state = ops.cross_entropy(_logits, np.array([2]))
    _gradient = ops.cross_entropy_backward(1.0, _state)
    (
        show.heat(ops.softmax(_logits)[0], columns=_words, title="chances", limit=1.0, digits=3)
        + show.heat([[float(_loss)]], title="loss", digits=3, name="loss")
        + show.heat(_gradient, columns=_words, title="gradient of the logits: chance less truth", limit=1.0, digits=3)
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    The loss has no upper end: to be sure and wrong is expensive. And the gradient is simply *predicted less true*. You
    will prove it in the next lesson.

    ## Masking: 80, 10, 10

    Of the words some are chosen as targets, 15 % in the classic BERT. Of these 80 % become [MASK], 10 % a random
    word, 10 % stay. Move the rate. Run it a few times in your head: which words could you guess?
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    rate = mo.ui.slider(0.05, 0.9, 0.05, value=0.15, label="share of targets", show_value=True)
    seed = mo.ui.slider(0, 20, 1, value=3, label="seed", show_value=True)
    mo.hstack([rate, seed], justify="start", gap=3, wrap=True)
    return rate, seed


@app.cell(hide_code=True)
def _(encode, mask_tokens_of_the_package, mo, rate, seed, show, trained):
    _model, _tokenizer, _ = trained()
    _ids, _ = encode(_tokenizer, ["the old queen in the garden loves her horse and the king follows the black dog ."])
    _masked = mask_tokens_of_the_package(
        _ids, _tokenizer.mask_id, _tokenizer.vocab_size, rate.value, seed=seed.value, special_ids=_tokenizer.special_ids
    )
    _words = [
        f"<b>{_tokenizer.id_to_token(int(new))}</b><sub>{_tokenizer.id_to_token(int(old))}</sub>"
        if label >= 0
        else _tokenizer.id_to_token(int(new))
        for new, old, label in zip(_masked.input_ids[0], _ids[0], _masked.targets[0], strict=True)
    ]
    _share = (_masked.targets >= 0).mean()
    mo.vstack(
        [
            show.Html(f"<p>{' '.join(_words)}</p>"),
            mo.md(f"Bold: what the model sees; below it: the target. {_share:.0%}"),
        ]
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    Why not always [MASK]? Because later, in fine-tuning, there is no [MASK]: a model that only works where it sees one
    would have learned nothing about ordinary words.

    ## Write them yourself
    """)
    return


@app.cell(hide_code=True)
def _(show):
    show.task("mask_tokens")
    return


@app.cell
def _():
    def mask_tokens(ids, chosen, draws, random_ids, mask_id): ...

    return (mask_tokens,)


@app.cell(hide_code=True)
def _(check, mask_tokens):
    check(mask_tokens=mask_tokens)
    return


@app.cell(hide_code=True)
def _(show):
    show.task("cross_entropy")
    return


@app.cell
def _():
    def cross_entropy(logits, targets): ...

    return (cross_entropy,)


@app.cell(hide_code=True)
def _(check, cross_entropy):
    check(cross_entropy=cross_entropy)
    return


@app.cell(hide_code=True)
def _(mo, show):
    mo.vstack([mo.md("## Find the fault"), show.task("cross_entropy_fault")])
    return


@app.cell
def _():
    cross_entropy_fault = 0
    return (cross_entropy_fault,)


@app.cell(hide_code=True)
def _(check, cross_entropy_fault):
    check(cross_entropy_fault=cross_entropy_fault)
    return


@app.cell(hide_code=True)
def _(mo, show):
    mo.accordion({"What they became in the package": show.became("mask_tokens", "cross_entropy")})
    return


@app.cell(hide_code=True)
def _(mo, np):
    _p = np.array([0.5, 0.5, 0.5, 0.0001])
    _loss = -np.log(_p)
    mo.md(f"""
    ## A surprise

    A model gives three words a chance of a half, and one word a ten-thousandth. The mean loss is
    {_loss.mean():.2f}, and **{_loss[3] / _loss.sum():.0%}** of it comes from the one bad guess. Cross-entropy does not
    count how often a model is right. It asks that it never be sure and wrong.
    """)
    return


if __name__ == "__main__":
    app.run()
