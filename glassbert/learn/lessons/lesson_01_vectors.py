# /// script
# [tool.marimo.display]
# theme = "system"
# ///

import marimo

app = marimo.App(app_title="1 · Words are vectors", width="medium")


@app.cell(hide_code=True)
def _():
    import marimo as mo
    import numpy as np

    from glassbert import ops
    from glassbert.learn import check, show
    from glassbert.learn.models import trained

    return check, mo, np, ops, show, trained


@app.cell(hide_code=True)
def _(mo, model, origin):
    mo.md(f"""
    # 1 · Words are vectors, and a linear map mixes them

    **One idea.** A model does not read letters. It looks up a row of numbers for every word, and then it only adds
    and multiplies.

    The model of this lesson is {origin}. Its table has {model.config.vocab_size:,} rows of {model.config.hidden_size}
    numbers. Nobody wrote these numbers: training found them.
    """)
    return


@app.cell(hide_code=True)
def _(trained):
    model, tokenizer, origin = trained()
    table = model.engine.to_numpy(model.token_embeddings)  # [V, H]
    return model, origin, table, tokenizer


@app.cell(hide_code=True)
def _(np, table, tokenizer):
    words = ["king", "queen", "man", "woman", "boy", "girl", "dog", "cat", "garden", "river", "sees", "see", "old"]

    def vector(word):
        return table[tokenizer.token_to_id(word)]

    def cosine(a, b):
        return float(a @ b / np.sqrt((a @ a) * (b @ b)))

    return cosine, vector, words


@app.cell(hide_code=True)
def _(mo):
    choice = mo.ui.radio(
        ["woman", "garden", "sees"],
        label="**Predict.** The model was never told what words mean. Whose vector points most nearly in the "
        "direction of *queen*?",
    )
    choice
    return (choice,)


@app.cell(hide_code=True)
def _(choice, cosine, show, vector):
    _near = {word: cosine(vector("queen"), vector(word)) for word in choice.options}
    _best = max(_near, key=_near.get)
    _told = ", ".join(f"{word} {value:.2f}" for word, value in _near.items())
    show.answer(choice, _best, f"The cosines are {_told}. Words that can stand in the same places get similar vectors.")
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## Move: from one word to another

    The cosine of two vectors is their dot product, divided by their lengths: $\cos(a, b) = \frac{a \cdot b}{|a|\,|b|}$.
    It is 1 for the same direction and 0 for a right angle. Between two words there is nothing but other vectors. Move
    the slider from *king* to *queen*.
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    mix = mo.ui.slider(0.0, 1.0, 0.05, value=0.0, label="share of queen", show_value=True, full_width=True)
    mix
    return (mix,)


@app.cell(hide_code=True)
def _(cosine, mix, show, vector, words):
    _point = (1.0 - mix.value) * vector("king") + mix.value * vector("queen")
    _near = sorted(words, key=lambda word: -cosine(_point, vector(word)))[:6]
    show.bars({word: cosine(_point, vector(word)) for word in _near}, title="cosine with the moved vector")
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    ## The linear map

    Nearly all of BERT's arithmetic is one operation:

    $$y = x\,W^\top + b$$

    $$x\ [.., I],\quad W\ [O, I],\quad b\ [O],\quad y\ [.., O]$$

    Output $o$ is the dot product of $x$ with row $o$ of $W$, plus $b_o$. Move one weight, $W_{0,1}$. Which numbers of
    $y$ change?
    """)
    return


@app.cell(hide_code=True)
def _(mo):
    weight_01 = mo.ui.slider(-2.0, 2.0, 0.25, value=0.5, label="W[0, 1]", show_value=True)
    weight_01
    return (weight_01,)


@app.cell(hide_code=True)
def _(np, ops, show, weight_01):
    _x = np.array([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]])
    _W = np.array([[1.0, weight_01.value, 0.0], [-1.0, 0.25, 2.0]])
    _b = np.array([0.1, -0.2])
    _y, _ = ops.linear(_x, _W, _b)
    show.side_by_side(
        show.heat(_x, ["token 0", "token 1"], title="x [2, 3]"),
        show.heat(_W, ["output 0", "output 1"], title="W [2, 3]"),
        show.heat(_b, title="b [2]"),
        show.heat(_y, ["token 0", "token 1"], ["output 0", "output 1"], title="y [2, 2]", name="y"),
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    Only column 0 of y moves, and only for tokens whose feature 1 is not 0. A weight belongs to one output; all
    tokens share it. Remember this sharing: in lesson 10 it becomes a sum over all tokens.

    ## Write it yourself

    Replace `...` by your code and run the cell (Ctrl-Enter). The referee answers below it.
    """)
    return


@app.cell(hide_code=True)
def _(show):
    show.task("embedding")
    return


@app.cell
def _():
    def embedding(table, ids): ...

    return (embedding,)


@app.cell(hide_code=True)
def _(check, embedding):
    check(embedding=embedding)
    return


@app.cell(hide_code=True)
def _(show):
    show.task("linear")
    return


@app.cell
def _():
    def linear(x, weight, bias): ...

    return (linear,)


@app.cell(hide_code=True)
def _(check, linear):
    check(linear=linear)
    return


@app.cell(hide_code=True)
def _(mo, show):
    mo.accordion({"What they became in the package": show.became("embedding", "linear")})
    return


@app.cell(hide_code=True)
def _(mo, np, ops, show):
    _draw = np.random.default_rng(0)
    _x, _A, _B = _draw.standard_normal((1, 4)), _draw.standard_normal((6, 4)), _draw.standard_normal((4, 6))
    _two = ops.linear(ops.linear(_x, _A)[0], _B)[0]
    _one = ops.linear(_x, _B @ _A)[0]
    mo.vstack(
        [
            mo.md("""
    ## A surprise

    Two linear maps in a row are one linear map: $(x A^\\top) B^\\top = x (B A)^\\top$. A model made of linear maps
    alone is one matrix, however deep it is. The next lesson adds what is missing.
    """),
            show.side_by_side(
                show.heat(_two, title="through A, then through B"), show.heat(_one, title="through the one matrix B A")
            ),
        ]
    )
    return


if __name__ == "__main__":
    app.run()
