"""Mini-BERT in one file: NumPy, no autograd, every backward pass written by hand.

    python minibert.py                                              train on the documentation in Python, fill a mask
    python minibert.py mytext.txt                                   train on a text file (UTF-8)
    python minibert.py mytext.txt --fill "the [MASK] sat down"      and fill this mask

Read the file from top to bottom: text to ids, operations, model, training. Every forward has its backward below it,
with the same lines in reverse order. `dx` is the derivative of the loss with respect to x, and has the shape of x.

    B sequences of T tokens, N = B · T tokens in all, M of them masked; hidden size H, FFN size I, vocabulary V

Parameters have the names of the package glassbert, and all numbers agree with it (tests/test_minibert.py).
"""

import argparse
import heapq
import re
import sys
import time
import unicodedata
from collections import Counter, defaultdict
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np

# ---- text to ids: normalise, split into words, split words into pieces of a vocabulary -------------------------------

PAD, UNK, CLS, SEP, MASK = range(5)
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SPECIAL_PATTERN = re.compile("(" + "|".join(map(re.escape, SPECIAL)) + ")")
CJK = r"([㐀-䶿一-鿿\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b81f\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f])"
IGNORED = -100  # the label of a token that is no target


@cache
def clean(c):
    """Control characters vanish; white space becomes a space."""
    control = unicodedata.category(c) in ("Cc", "Cf", "Co") and c not in "\t\n\r"
    return "" if control or c == "\ufffd" else " " if c.isspace() else c


@cache
def separate(c):
    """Accents (Mn) vanish, letters become small, and a punctuation mark is a word of its own."""
    kind = unicodedata.category(c)
    if kind[0] == "P" or (c.isascii() and c.isprintable() and not c.isalnum() and c != " "):
        return f" {c} "
    return "" if kind == "Mn" else c.lower()


def split_words(text):
    """ "Café, 中文" -> cafe , 中 文          NFD takes é apart into e and its accent"""
    text = re.sub(CJK, r" \1 ", "".join(map(clean, text)))
    return "".join(map(separate, unicodedata.normalize("NFD", text))).split(" ")


def split_pieces(word, vocabulary):
    """unaffable -> un ##aff ##able: from the left, always the longest piece that the vocabulary has."""
    if len(word) > 100:
        return [UNK]
    pieces, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = "##" * (start > 0) + word[start:end]
            if piece in vocabulary:
                break
        else:  # not even one character is known
            return [UNK]
        pieces.append(vocabulary[piece])
        start = end
    return pieces


def encode(text, vocabulary):
    """The ids of a text, without [CLS] and [SEP]. Special tokens may stand in the text."""
    ids, known = [], {"": []}
    for part in SPECIAL_PATTERN.split(text):  # plain, special, plain, ...
        for word in [part] if part in SPECIAL else split_words(part):
            if word not in known:
                known[word] = [vocabulary[part]] if part in SPECIAL else split_pieces(word, vocabulary)
            ids += known[word]
    return ids


def train_vocabulary(text, size):
    """Begin with single characters; then, again and again, the most frequent pair of neighbours becomes a piece."""
    counts = Counter(word for part in SPECIAL_PATTERN.split(text)[::2] for word in split_words(part) if word)
    letters = Counter(c for word, count in counts.items() for c in word * count)
    ranked = sorted(letters, key=lambda c: (-letters[c], c))[: min(1000, (size - len(SPECIAL)) // 2)]
    rest = letters.total() - np.cumsum([0, *(letters[c] for c in ranked)])  # letters not covered by those before
    kept = sorted(c for i, c in enumerate(ranked) if rest[i] > (1 - 0.99999) * letters.total())
    inside = {c for word in counts for c in word[1:]}
    tokens = [*SPECIAL, *kept, *("##" + c for c in kept if c in inside)]
    ids = {token: i for i, token in enumerate(tokens)}
    words, amounts = [], list(counts.values())  # each word as ids, and how often it occurs
    pairs, places = Counter(), defaultdict(set)  # how often a pair occurs, and in which words
    for i, (word, count) in enumerate(counts.items()):
        words.append([ids[name] for name in (word[0], *("##" + c for c in word[1:])) if name in ids])
        for pair in pairwise(words[i]):
            pairs[pair] += count
            places[pair].add(i)
    heap = sorted((-count, pair) for pair, count in pairs.items())  # the most frequent pair is first
    while heap and len(tokens) < size:
        negative, pair = heapq.heappop(heap)
        if -negative != pairs[pair] or -negative < 2:  # an old count (there is a newer entry), or a rare pair
            continue
        name = tokens[pair[0]] + tokens[pair[1]].removeprefix("##")
        if name not in ids:
            ids[name] = len(tokens)
            tokens.append(name)
        changed = set()
        for i in places.pop(pair):
            old, words[i] = words[i], []
            for piece in old:
                if words[i] and (words[i][-1], piece) == pair:
                    words[i][-1] = ids[name]
                else:
                    words[i].append(piece)
            for p in pairwise(old):
                pairs[p] -= amounts[i]
            for p in pairwise(words[i]):
                pairs[p] += amounts[i]
                places[p].add(i)
            changed |= {*pairwise(old), *pairwise(words[i])}
        for p in changed:
            heapq.heappush(heap, (-pairs[p], p))
    return ids


# ---- operations: y, state = name(inputs), d_inputs = name_backward(dy, state) ----------------------------------------


def linear(x, weight, bias):
    """y = x Wᵀ + b               x [N, I]; W [O, I]; b [O]; y [N, O]"""
    return x @ weight.T + bias, (x, weight)


def linear_backward(dy, state):
    """dx = dy W        dW = dyᵀ x        db = Σ dy over the rows"""
    x, weight = state
    return dy @ weight, dy.T @ x, dy.sum(0)  # [N, I], [O, I], [O]


def embedding(table, ids):
    """y[n] = table[ids[n]]       table [V, H]; ids [N]; y [N, H]"""
    return table[ids], (ids, table.shape)


def embedding_backward(dy, state):
    """A row of the table collects the gradients of all its occurrences."""
    ids, shape = state
    dtable = np.zeros(shape, dy.dtype)
    np.add.at(dtable, ids, dy)
    return dtable


def relu(x):
    """y = max(x, 0)"""
    y = np.maximum(x, 0)
    return y, y


def relu_backward(dy, y):
    """The slope is 1 where x > 0, else 0."""
    return dy * (y > 0)


def layer_norm(x, gamma, beta, eps=1e-5):
    """y = γ x̂ + β, where x̂ = (x - mean) · rstd and rstd = 1 / √(variance + ε)"""
    x_hat = x - x.mean(-1, keepdims=True)  # [N, H]
    rstd = ((x_hat * x_hat).mean(-1, keepdims=True) + eps) ** -0.5  # [N, 1]
    x_hat = x_hat * rstd
    return gamma * x_hat + beta, (x_hat, rstd, gamma)


def layer_norm_backward(dy, state):
    """dx = rstd · (g - mean(g) - x̂ · mean(g x̂)) with g = dy · γ: the mean and the variance depend on x as well."""
    x_hat, rstd, gamma = state
    g = dy * gamma
    dx = rstd * (g - g.mean(-1, keepdims=True) - x_hat * (g * x_hat).mean(-1, keepdims=True))
    return dx, (dy * x_hat).sum(0), dy.sum(0)  # [N, H], [H], [H]


def softmax(x):
    """y_i = exp(x_i) / Σ_j exp(x_j). Subtracting the maximum changes nothing and prevents overflow."""
    y = np.exp(x - x.max(-1, keepdims=True))
    y /= y.sum(-1, keepdims=True)
    return y, y


def softmax_backward(dy, y):
    """∂y_i/∂x_j = y_i (δ_ij - y_j), so dx = y · (dy - Σ_j dy_j y_j)"""
    return y * (dy - (dy * y).sum(-1, keepdims=True))


def attention(q, k, v, mask):
    """context = softmax(q kᵀ / √d) v, over keys that are no padding          q, k, v [B, heads, T, d]; mask [B, T]"""
    seen = (mask != 0)[:, None, None, :]  # [B, 1, 1, T]
    scores = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5  # [B, heads, T, T]
    weights, _ = softmax(np.where(seen, scores, np.asarray(-1e30, scores.dtype)))
    weights *= seen  # zeros where a sequence is nothing but padding
    return weights @ v, (q, k, v, weights)  # [B, heads, T, d]


def attention_backward(dcontext, state):
    """Hidden keys have weight 0, and softmax_backward multiplies by the weight: no mask is needed here."""
    q, k, v, weights = state
    dweights = dcontext @ v.swapaxes(-1, -2)  # [B, heads, T, T]
    dv = weights.swapaxes(-1, -2) @ dcontext
    dscores = softmax_backward(dweights, weights) * q.shape[-1] ** -0.5
    return dscores @ k, dscores.swapaxes(-1, -2) @ q, dv


def cross_entropy(logits, targets):
    """loss = mean of log Σ_j exp(z_j) - z_target          logits z [M, V]; targets [M]"""
    shifted = logits - logits.max(-1, keepdims=True)
    total = np.exp(shifted).sum(-1, keepdims=True)  # [M, 1]
    each = np.log(total[:, 0]) - shifted[np.arange(len(targets)), targets]  # [M]
    return each.sum() / max(1, len(targets)), (np.exp(shifted) / total, targets)


def cross_entropy_backward(dloss, state):
    """dz = (softmax(z) - onehot(target)) / M: what the model believes, less what is true"""
    dlogits, targets = state[0].copy(), state[1]
    dlogits[np.arange(len(targets)), targets] -= 1
    return dlogits * (dloss / max(1, len(targets)))


# ---- the model: embeddings, blocks, a last norm, scores for the masked tokens ----------------------------------------


class MiniBERT:
    """`p` holds the parameters by name, `g` their gradients, `state` what the last forward keeps for its backward."""

    def __init__(self, vocab=8192, size=192, layers=3, heads=4, wide=768, length=64, seed=0, dtype=np.float32):
        self.vocab, self.size, self.layers, self.heads, self.length = vocab, size, layers, heads, length
        parts = {"attention.qkv": (3 * size, size), "attention.output": (size, size), "attention.norm": (size,)}
        parts |= {"ffn.up": (wide, size), "ffn.down": (size, wide), "ffn.norm": (size,)}
        maps = {f"layers.{i}.{part}": shape for i in range(layers) for part, shape in parts.items()}
        maps |= {"final_norm": (size,), "head.decoder": (vocab, size)}
        shapes = {"embeddings.token": (vocab, size), "embeddings.position": (length, size)}
        for name, shape in maps.items():
            shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
        self.p, self.g, self.state, rng = {}, {}, {}, np.random.default_rng(seed)
        for name, shape in shapes.items():  # matrices: small random numbers; gammas of norms: 1; biases: 0
            value = np.float32(0.02) * rng.standard_normal(shape, np.float32) if len(shape) == 2 else np.zeros(shape)
            self.p[name] = (value + name.endswith("norm.weight")).astype(dtype)

    def run(self, operation, name, x):
        """A forward with the parameters `name`.weight and `name`.bias."""
        y, self.state[name] = operation(x, self.p[f"{name}.weight"], self.p[f"{name}.bias"])
        return y

    def run_backward(self, backward, name, dy):
        """Its backward: the gradients of the parameters are kept by name, that of x goes on."""
        dx, self.g[f"{name}.weight"], self.g[f"{name}.bias"] = backward(dy, self.state[name])
        return dx

    def block(self, i, x, mask):
        """x [N, H] -> x [N, H]: attention and a feed-forward layer, each added to its input and normalised"""
        attend, ffn = f"layers.{i}.attention", f"layers.{i}.ffn"
        qkv = self.run(linear, f"{attend}.qkv", x)  # [N, 3H]
        q, k, v = qkv.reshape(*mask.shape, 3, self.heads, -1).transpose(2, 0, 3, 1, 4)  # 3 times [B, heads, T, d]
        context, self.state[attend] = attention(q, k, v, mask)
        merged = context.swapaxes(1, 2).reshape(x.shape)  # [N, H]
        x = self.run(layer_norm, f"{attend}.norm", x + self.run(linear, f"{attend}.output", merged))
        hidden = self.run(linear, f"{ffn}.up", x)  # [N, I]
        activated, self.state[ffn] = relu(hidden)
        return self.run(layer_norm, f"{ffn}.norm", x + self.run(linear, f"{ffn}.down", activated))

    def block_backward(self, i, dx, mask):
        """Where x went two ways, past the branch and through it, two gradients add up."""
        attend, ffn = f"layers.{i}.attention", f"layers.{i}.ffn"
        dsum = self.run_backward(layer_norm_backward, f"{ffn}.norm", dx)
        dactivated = self.run_backward(linear_backward, f"{ffn}.down", dsum)
        dhidden = relu_backward(dactivated, self.state[ffn])
        dx = dsum + self.run_backward(linear_backward, f"{ffn}.up", dhidden)
        dsum = self.run_backward(layer_norm_backward, f"{attend}.norm", dx)
        dmerged = self.run_backward(linear_backward, f"{attend}.output", dsum)
        dcontext = dmerged.reshape(*mask.shape, self.heads, -1).swapaxes(1, 2)  # [B, heads, T, d]
        dqkv = np.stack(attention_backward(dcontext, self.state[attend]))  # [3, B, heads, T, d]
        dqkv = dqkv.transpose(1, 3, 0, 2, 4).reshape(len(dx), -1)  # [N, 3H]
        return dsum + self.run_backward(linear_backward, f"{attend}.qkv", dqkv)

    def forward(self, ids, mask, rows):
        """ids [B, T] -> scores [M, V] of the chosen rows of the N tokens: only masked tokens are scored."""
        places = np.tile(np.arange(ids.shape[1]), len(ids))  # [N]: 0 ... T - 1, again for every sequence
        token, self.state["embeddings.token"] = embedding(self.p["embeddings.token"], ids.reshape(-1))
        place, self.state["embeddings.position"] = embedding(self.p["embeddings.position"], places)
        x = token + place  # [N, H]
        for i in range(self.layers):
            x = self.block(i, x, mask)
        x = self.run(layer_norm, "final_norm", x)
        return self.run(linear, "head.decoder", x[rows])  # [M, V]

    def backward(self, dlogits, mask, rows):
        """`forward` from its last line to its first."""
        dx = np.zeros((mask.size, self.size), dlogits.dtype)  # [N, H]; rows that were not chosen stay 0
        dx[rows] = self.run_backward(linear_backward, "head.decoder", dlogits)
        dx = self.run_backward(layer_norm_backward, "final_norm", dx)
        for i in reversed(range(self.layers)):
            dx = self.block_backward(i, dx, mask)
        self.g["embeddings.position"] = embedding_backward(dx, self.state["embeddings.position"])
        self.g["embeddings.token"] = embedding_backward(dx, self.state["embeddings.token"])
        self.g["embeddings.token"][PAD] = 0  # the vector of padding is a constant

    def loss(self, ids, labels, mask=None):
        """The mean cross-entropy of the labels that are not -100. Leaves the gradients in `g`."""
        mask = np.ones_like(ids) if mask is None else mask  # [B, T], 0 for padding
        rows = np.flatnonzero(labels.reshape(-1) != IGNORED)  # [M]
        loss, state = cross_entropy(self.forward(ids, mask, rows), labels.reshape(-1)[rows])
        self.backward(cross_entropy_backward(1.0, state), mask, rows)
        return float(loss)


# ---- training --------------------------------------------------------------------------------------------------------


class AdamW:
    """A step along the mean gradient m, divided by the root of its mean square v; matrices also decay towards 0."""

    def __init__(self, p, betas=(0.9, 0.999), eps=1e-8, decay=0.01, clip=1.0):
        self.betas, self.eps, self.decay, self.clip, self.steps = betas, eps, decay, clip, 0
        self.m, self.v = ({name: np.zeros_like(x) for name, x in p.items()} for _ in range(2))

    def step(self, p, g, rate):
        """p = p - rate · (m̂ / (√v̂ + ε) + λ p)          m̂, v̂: corrected for their start at 0"""
        norm = sum(float((x * x).sum()) for x in g.values()) ** 0.5
        scale = min(1.0, self.clip / max(norm, 1e-30))  # clipping: the norm is at most `clip`
        self.steps += 1
        (beta1, beta2), t = self.betas, self.steps
        for name in p:
            grad = g[name] * scale
            self.m[name] = beta1 * self.m[name] + (1 - beta1) * grad
            self.v[name] = beta2 * self.v[name] + (1 - beta2) * grad * grad
            m_hat, v_hat = self.m[name] / (1 - beta1**t), self.v[name] / (1 - beta2**t)
            decay = self.decay * p[name] if p[name].ndim > 1 else 0.0
            p[name] -= rate * (m_hat / (np.sqrt(v_hat) + self.eps) + decay)


def mask_tokens(ids, vocab, rng):
    """15 % of the tokens are targets; of these 80 % become [MASK], 10 % a random token, and 10 % stay."""
    target = (rng.random(ids.shape) < 0.15) & (ids > MASK)
    kind = rng.random(ids.shape)
    inputs = np.where(target & (kind < 0.8), MASK, ids)
    inputs = np.where(target & (kind >= 0.8) & (kind < 0.9), rng.integers(len(SPECIAL), vocab, ids.shape), inputs)
    return inputs, np.where(target, ids, IGNORED)


def train(model, rows, steps, batch=32, rate=1e-3, seed=0):
    """Yield the loss of every step. The rate rises during the first tenth of the steps and then falls to 0."""
    optimizer, rng = AdamW(model.p), np.random.default_rng(seed)
    for step in range(1, steps + 1):
        ids, labels = mask_tokens(rows[rng.integers(0, len(rows), batch)], model.vocab, rng)  # [B, T]
        loss = model.loss(ids, labels)
        optimizer.step(model.p, model.g, rate * min(10 * step / steps, (steps + 1 - step) / steps))
        yield loss


def fill(model, ids, vocabulary, best=5):
    """Print a row of ids as text, and below it the most probable tokens for each [MASK]."""
    tokens, rows = list(vocabulary), np.flatnonzero(ids == MASK)
    print(" ".join(tokens[i] for i in ids[1:-1]).replace(" ##", ""))
    for scores in softmax(model.forward(ids[None], np.ones((1, len(ids))), rows))[0]:
        print("  [MASK]:", ", ".join(f"{tokens[i]} {scores[i]:.0%}" for i in np.argsort(-scores)[:best]))


def read_text(path):
    """The text of a file; without a file, the documentation strings of Python's standard library."""
    try:
        if path is None:
            files = sorted(Path(heapq.__file__).parent.glob("*.py"))
            strings = (text for file in files for text in file.read_text("utf-8", "ignore").split('"""')[1::2])
            parts = (" ".join(part.split()) for text in strings for part in text.split("\n\n"))
            return "\n".join(dict.fromkeys(part for part in parts if part[:1].isupper() and part.endswith(".")))
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        sys.exit(f"minibert.py: cannot read {path or error.filename}: {error.strerror}")
    except UnicodeDecodeError:
        text = "\0"
    return sys.exit(f"minibert.py: {path} is not a text file in UTF-8") if "\0" in text else text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", help="a text file; without it, the documentation in Python's library")
    parser.add_argument("--fill", metavar="TEXT", help="a text with [MASK] to fill after training")
    parser.add_argument("--steps", type=int, default=300, help="training steps (default %(default)s)")
    parser.add_argument("--vocab", type=int, default=8192, help="the most tokens to learn (default %(default)s)")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32", help="of all numbers")
    options = parser.parse_args()
    sys.stdout.reconfigure(errors="replace")  # a terminal may not have every character
    if options.steps < 1 or options.vocab < 32:
        sys.exit("minibert.py: --steps must be at least 1, and --vocab at least 32")
    text = read_text(options.file)
    vocabulary = train_vocabulary(text, options.vocab)
    model = MiniBERT(len(vocabulary), dtype=options.dtype)
    ids, inner = encode(text, vocabulary), model.length - 2
    if len(ids) < 8 * inner:
        sys.exit(f"minibert.py: the text has {len(ids)} tokens; at least {8 * inner} are needed to learn from")
    question = encode(options.fill or "[MASK]", vocabulary)[:inner]
    if MASK not in question:
        sys.exit(f"minibert.py: the text to fill needs a [MASK] among its first {inner} tokens")
    rows = np.array([[CLS, *ids[i : i + inner], SEP] for i in range(0, len(ids) - inner + 1, inner)])
    numbers = sum(x.size for x in model.p.values())
    print(f"{len(ids):,} tokens, a vocabulary of {len(vocabulary):,}, {numbers:,} parameters", flush=True)
    start, mean = time.time(), None
    for step, loss in enumerate(train(model, rows[:-1], options.steps), 1):
        mean = loss if mean is None else 0.9 * mean + 0.1 * loss
        if step % 10 == 0 or step in (1, options.steps):
            print(f"step {step:4} of {options.steps}   loss {mean:.3f}   {time.time() - start:.0f} s", flush=True)
    rows[-1, inner // 2] = MASK  # the last row was not trained on
    fill(model, np.array([CLS, *question, SEP]) if options.fill else rows[-1], vocabulary)


if __name__ == "__main__":
    main()
