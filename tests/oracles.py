"""The papers' equations as plain loops over numbers, without imports from the tested package."""

import itertools
import math
from collections.abc import Sequence

import torch

Vector = list[float]
Matrix = list[Vector]
Path = tuple[int, ...]


def dot(a: Vector, b: Vector) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def matvec(matrix: Matrix, x: Vector, bias: Vector | None = None) -> Vector:
    product = [dot(row, x) for row in matrix]
    return product if bias is None else [p + b for p, b in zip(product, bias, strict=True)]


def add(a: Vector, b: Vector) -> Vector:
    return [x + y for x, y in zip(a, b, strict=True)]


def softmax(scores: Vector) -> Vector:
    powers = [math.exp(score) for score in scores]
    return [power / sum(powers) for power in powers]


# Combiners: Winata 2021, section 2.3. `xs[j]` is the vector of source j.


def concat(xs: Matrix) -> Vector:
    """Compute equation 1."""
    return [value for x in xs for value in x]


def linear(xs: Matrix, weights: list[Matrix]) -> Vector:
    """Project each source, and add the projections."""
    projected = [matvec(weight, x) for weight, x in zip(weights, xs, strict=True)]
    return [sum(values) for values in zip(*projected, strict=True)]


def attention_by_dimension(xs: Matrix, weights: list[Matrix]) -> tuple[Vector, Matrix]:
    """Compute equations 2 to 4 with phi = tanh.

    Return the vector, and the weight of each dimension of each source.
    """
    projected = [matvec(weight, x) for weight, x in zip(weights, xs, strict=True)]
    combined, alphas = [], []
    for values in zip(*projected, strict=True):
        alpha = softmax([math.tanh(value) for value in values])
        alphas.append(alpha)
        combined.append(dot(alpha, list(values)))
    return combined, [list(alpha) for alpha in zip(*alphas, strict=True)]


def attention_by_source(xs: Matrix, weights: list[Matrix], scorer: Vector) -> tuple[Vector, Vector]:
    """Compute equations 2 to 4 with one weight per source: phi(x) = tanh(a . x)."""
    projected = [matvec(weight, x) for weight, x in zip(weights, xs, strict=True)]
    alpha = softmax([math.tanh(dot(scorer, x)) for x in projected])
    return [dot(alpha, list(values)) for values in zip(*projected, strict=True)], alpha


# Reductions over the valid vectors of a sequence.


def masked_mean(xs: Matrix, mask: Sequence[bool]) -> Vector:
    kept = [x for x, valid in zip(xs, mask, strict=True) if valid]
    return (
        [sum(values) / len(kept) for values in zip(*kept, strict=True)]
        if kept
        else [0.0] * len(xs[0])
    )


def masked_max(xs: Matrix, mask: Sequence[bool]) -> Vector:
    kept = [x for x, valid in zip(xs, mask, strict=True) if valid]
    return [max(values) for values in zip(*kept, strict=True)] if kept else [0.0] * len(xs[0])


# A linear-chain CRF by enumeration: `emissions[t][tag]`, `transitions[from][to]`.


def path_score(
    emissions: Matrix, path: Path, transitions: Matrix, start: Vector, end: Vector
) -> float:
    if not path:
        return 0.0
    score = start[path[0]] + end[path[-1]]
    for row, tag in zip(emissions, path, strict=True):
        score += row[tag]
    for tag, following in itertools.pairwise(path):
        score += transitions[tag][following]
    return score


def all_path_scores(
    emissions: Matrix, transitions: Matrix, start: Vector, end: Vector
) -> dict[Path, float]:
    paths = itertools.product(range(len(start)), repeat=len(emissions))
    return {path: path_score(emissions, path, transitions, start, end) for path in paths}


def log_partition(emissions: Matrix, transitions: Matrix, start: Vector, end: Vector) -> float:
    return math.log(
        sum(
            math.exp(score)
            for score in all_path_scores(emissions, transitions, start, end).values()
        )
    )


def viterbi(emissions: Matrix, transitions: Matrix, start: Vector, end: Vector) -> Path:
    scores = all_path_scores(emissions, transitions, start, end)
    return max(scores, key=lambda path: scores[path])


def path_probabilities(
    emissions: Matrix, transitions: Matrix, start: Vector, end: Vector
) -> dict[Path, float]:
    scores = all_path_scores(emissions, transitions, start, end)
    total = sum(math.exp(score) for score in scores.values())
    return {path: math.exp(score) / total for path, score in scores.items()}


def marginals(probabilities: dict[Path, float], num_tags: int) -> Matrix:
    """Return the probability of each tag at each position."""
    length = len(next(iter(probabilities)))
    return [
        [sum(p for path, p in probabilities.items() if path[t] == j) for j in range(num_tags)]
        for t in range(length)
    ]


def entropy(probabilities: dict[Path, float]) -> float:
    return -sum(p * math.log(p) for p in probabilities.values() if p > 0)


def valid(items: Sequence, mask: Sequence[bool]) -> list:
    """Return the items at the positions of the mask, without its holes."""
    return [item for item, kept in zip(items, mask, strict=True) if kept]


# A convolution over characters: Kim et al. 2016. `filters[k][i][j]` is filter k's weight of input
# dimension i at window position j, as `nn.Conv1d` keeps them.


def char_cnn(characters: Matrix, filters: list[Matrix], bias: Vector) -> Vector:
    if not characters:
        return [0.0] * len(bias)
    width, dim = len(filters[0][0]), len(characters[0])
    edge = [[0.0] * dim] * (width - 1)
    padded = edge + characters + edge
    windows = [padded[i : i + width] for i in range(len(characters) + width - 1)]
    features = []
    for kernel, shift in zip(filters, bias, strict=True):
        tops = [
            sum(kernel[i][j] * window[j][i] for i in range(dim) for j in range(width))
            for window in windows
        ]
        features.append(math.tanh(max(tops) + shift))
    return features


# The Transformer encoder: Vaswani et al. 2017, with one matrix for queries, keys and values.


def positions(position: int, dim: int) -> Vector:
    waves = []
    for i in range(dim):
        angle = position / 10_000 ** (2 * (i // 2) / dim)
        waves.append(math.sin(angle) if i % 2 == 0 else math.cos(angle))
    return waves


def layer_norm(x: Vector, weight: Vector, bias: Vector) -> Vector:
    mean = sum(x) / len(x)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in x) / len(x) + 1e-5)
    return [(value - mean) / deviation * w + b for value, w, b in zip(x, weight, bias, strict=True)]


def self_attention(xs: Matrix, weight: Matrix, bias: Vector, num_heads: int) -> Matrix:
    """Compute attention over all of `xs`.

    The rows of `weight` are for the queries, then for the keys, then for the values.
    """
    hidden = len(xs[0])
    size = hidden // num_heads
    projected = [matvec(weight, x, bias) for x in xs]
    mixed: Matrix = [[] for _ in xs]
    for head in range(num_heads):
        cut = slice(head * size, (head + 1) * size)
        queries = [p[:hidden][cut] for p in projected]
        keys = [p[hidden : 2 * hidden][cut] for p in projected]
        values = [p[2 * hidden :][cut] for p in projected]
        for query, row in zip(queries, mixed, strict=True):
            alpha = softmax([dot(query, key) / math.sqrt(size) for key in keys])
            row += [dot(alpha, list(column)) for column in zip(*values, strict=True)]
    return mixed


def feed_forward(
    x: Vector, inner: Matrix, inner_bias: Vector, outer: Matrix, outer_bias: Vector
) -> Vector:
    return matvec(outer, [max(0.0, value) for value in matvec(inner, x, inner_bias)], outer_bias)


# Alignment of two vector spaces: Lample et al. 2018.


def cosine(a: Vector, b: Vector) -> float:
    """Return the cosine of two vectors, which is 0 for a zero vector."""
    length = math.sqrt(dot(a, a)) * math.sqrt(dot(b, b))
    return dot(a, b) / length if length else 0.0


def neighbourhood(similarities: Vector, k: int) -> float:
    """Return the mean of the `k` largest similarities, the paper's r, or 0 without any."""
    best = sorted(similarities, reverse=True)[:k]
    return sum(best) / len(best) if best else 0.0


def csls(xs: Matrix, ys: Matrix, k: int) -> Matrix:
    """Compute equation 3."""
    near_xs = [neighbourhood([cosine(x, y) for y in ys], k) for x in xs]
    near_ys = [neighbourhood([cosine(x, y) for x in xs], k) for y in ys]
    return [
        [2 * cosine(x, y) - rx - ry for y, ry in zip(ys, near_ys, strict=True)]
        for x, rx in zip(xs, near_xs, strict=True)
    ]


def mutual_pairs(scores: Matrix) -> list[tuple[int, int]]:
    """Return pairs of a row and a column with each other's largest score, assuming no ties."""
    columns = [list(column) for column in zip(*scores, strict=True)]
    best = [row.index(max(row)) for row in scores]
    back = [column.index(max(column)) for column in columns]
    return [(i, j) for i, j in enumerate(best) if back[j] == i]


def squared_distance(xs: Matrix, ys: Matrix, weight: Matrix) -> float:
    """Return the distance that Procrustes minimises, |X W - Y|^2."""
    turned = [[dot(x, list(column)) for column in zip(*weight, strict=True)] for x in xs]
    return sum(
        (a - b) ** 2 for row, y in zip(turned, ys, strict=True) for a, b in zip(row, y, strict=True)
    )


def small_turn(dim: int, i: int, j: int, angle: float) -> Matrix:
    """Return a rotation in the plane of two axes."""
    turn = [[float(row == column) for column in range(dim)] for row in range(dim)]
    turn[i][i] = turn[j][j] = math.cos(angle)
    turn[i][j], turn[j][i] = -math.sin(angle), math.sin(angle)
    return turn


def precision_at(
    scores: dict[str, dict[str, float]], dictionary: Sequence[tuple[str, str]], k: int
) -> float:
    """Return the share of source words with one of their translations among the `k` best.

    Unknown words do not count.
    """
    answers: dict[str, set[str]] = {}
    for word, translation in dictionary:
        if word in scores and translation in scores[word]:
            answers.setdefault(word, set()).add(translation)
    hits = 0
    for word, right in answers.items():
        ranked = sorted(scores[word], key=lambda other, row=scores[word]: row[other], reverse=True)
        hits += bool(right & set(ranked[:k]))
    return hits / len(answers)


# Layer fusion: Chen & Guo 2022, equations 1-4. `sentences[b][t]` is a vector; every branch is a
# dict of its parameters.


def batch_norm(rows: Matrix, weight: Vector, bias: Vector, eps: float = 1e-5) -> Matrix:
    """Normalise each dimension over all rows of a batch, by their own mean and variance."""
    columns = list(zip(*rows, strict=True))
    means = [sum(column) / len(column) for column in columns]
    variances = [
        sum((x - m) ** 2 for x in column) / len(column)
        for column, m in zip(columns, means, strict=True)
    ]
    return [
        [
            (x - m) / math.sqrt(v + eps) * w + b
            for x, m, v, w, b in zip(row, means, variances, weight, bias, strict=True)
        ]
        for row in rows
    ]


def aif_branch(rows: Matrix, branch: dict[str, Matrix]) -> Matrix:
    """Compute B(C2(ReLU(B(C1(rows))))), equations 1 and 2."""
    narrow = [matvec(branch["down"], row, branch["down_bias"]) for row in rows]
    narrow = batch_norm(narrow, branch["down_norm"], branch["down_norm_bias"])
    wide = [matvec(branch["up"], [max(0.0, x) for x in row], branch["up_bias"]) for row in narrow]
    return batch_norm(wide, branch["up_norm"], branch["up_norm_bias"])


def aif_weight(
    sentences: list[Matrix], kinds: tuple[str, str], branches: list[dict[str, Matrix]]
) -> list[Matrix]:
    """Compute the sigmoid of equation 3.

    Global branches read the mean of each sentence, and local branches read each position.
    """
    total = [[[0.0] * len(x) for x in sentence] for sentence in sentences]
    for kind, branch in zip(kinds, branches, strict=True):
        if kind == "global":
            means = [[sum(column) / len(s) for column in zip(*s, strict=True)] for s in sentences]
            maps = [
                [found] * len(s)
                for found, s in zip(aif_branch(means, branch), sentences, strict=True)
            ]
        else:
            rows = iter(aif_branch([x for sentence in sentences for x in sentence], branch))
            maps = [[next(rows) for _ in sentence] for sentence in sentences]
        total = [
            [add(x, y) for x, y in zip(s, m, strict=True)] for s, m in zip(total, maps, strict=True)
        ]
    return [[[1 / (1 + math.exp(-x)) for x in row] for row in sentence] for sentence in total]


def dlfa(lower: Matrix, last: Matrix, weight: Matrix) -> Matrix:
    """Compute equation 4 for one sentence."""
    return [
        [a * w + b * (1 - w) for a, b, w in zip(x, y, ws, strict=True)]
        for x, y, ws in zip(lower, last, weight, strict=True)
    ]


def pool_words(pieces: Matrix, word_index: Sequence[int], num_words: int, pooling: str) -> Matrix:
    """Return one vector per word, by a loop over words."""
    found = []
    for word in range(num_words):
        own = [piece for piece, index in zip(pieces, word_index, strict=True) if index == word]
        columns = list(zip(*own, strict=True)) if own else [()] * len(pieces[0])
        reduce = {
            "first": lambda c: c[0],
            "last": lambda c: c[-1],
            "sum": sum,
            "max": max,
            "mean": lambda c: sum(c) / len(c),
        }[pooling]
        found.append([float(reduce(column)) if column else 0.0 for column in columns])
    return found


# Losses over labels. A label of `None` does not count.


def cross_entropy(
    logits: Matrix, labels: Sequence[int | None], weights: Vector, *, label_smoothing: float = 0.0
) -> float:
    """Return the mean loss by the labels' weights; smoothing gives every label an equal share."""
    total = weight = 0.0
    for scores, label in zip(logits, labels, strict=True):
        if label is None:
            continue
        logs = [math.log(p) for p in softmax(scores)]
        total -= (1 - label_smoothing) * weights[label] * logs[label]
        total -= (
            label_smoothing
            / len(scores)
            * sum(w * log for w, log in zip(weights, logs, strict=True))
        )
        weight += weights[label]
    return total / weight if weight else 0.0


def focal_loss(
    logits: Matrix, labels: Sequence[int | None], weights: Vector, *, gamma: float
) -> float:
    """Compute equation 5 of Lin et al. 2017, and return its mean by the labels' weights."""
    total = weight = 0.0
    for scores, label in zip(logits, labels, strict=True):
        if label is None:
            continue
        p = softmax(scores)[label]
        total += -weights[label] * (1 - p) ** gamma * math.log(p)
        weight += weights[label]
    return total / weight if weight else 0.0


# LASER: the recipe of the released encoder in plain PyTorch (Artetxe and Schwenk 2019), from a
# checkpoint's layout.


def laser_sentences(
    path: object, sentences: list[list[str]]
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the pooled vectors of sentences in pieces, and each sentence's last states.

    The last states are the states of the last layer, including the state of </s>.
    """
    data = torch.load(path, weights_only=True)
    sizes, weights, ids = data["params"], data["model"], data["dictionary"]
    embedding = torch.nn.Embedding.from_pretrained(weights["embed_tokens.weight"])
    lstm = torch.nn.LSTM(
        sizes["embed_dim"],
        sizes["hidden_size"],
        sizes["num_layers"],
        bidirectional=sizes["bidirectional"],
    )
    lstm.load_state_dict(
        {name.removeprefix("lstm."): w for name, w in weights.items() if name.startswith("lstm.")}
    )
    rows = [
        [*(ids.get(piece, ids["<unk>"]) for piece in pieces), ids["</s>"]] for pieces in sentences
    ]
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
    width = len(rows[order[0]])
    left = torch.tensor([[ids["<pad>"]] * (width - len(rows[i])) + rows[i] for i in order])
    lengths = [len(rows[i]) for i in order]
    right = torch.stack(
        [row.roll(length) for row, length in zip(left, lengths, strict=True)]
    )  # move the padding to the end
    packed = torch.nn.utils.rnn.pack_padded_sequence(embedding(right).transpose(0, 1), lengths)
    with torch.no_grad():
        states = torch.nn.utils.rnn.pad_packed_sequence(
            lstm(packed)[0], padding_value=sizes["padding_value"]
        )[0]
    states = states.masked_fill(right.eq(ids["<pad>"]).t()[..., None], -math.inf)
    back = [order.index(i) for i in range(len(rows))]
    return states.max(0).values[back], [
        states[: len(rows[i]), order.index(i)] for i in range(len(rows))
    ]


# LASER's states as word vectors: van der Heijden 2019. `forwards[l][t]` and `backwards[l][t]` are
# states of layer l.


def laser_layer(forwards: Matrix, backwards: Matrix, gamma: float) -> Matrix:
    """Compute equation 2."""
    return [
        [gamma * max(f, b) for f, b in zip(forward, backward, strict=True)]
        for forward, backward in zip(forwards, backwards, strict=True)
    ]


def laser_elmo(
    forwards: list[Matrix], backwards: list[Matrix], gamma: float, scores: Vector
) -> Matrix:
    """Compute equation 3."""
    weights = softmax(scores)
    layers = [laser_layer(f, b, gamma) for f, b in zip(forwards, backwards, strict=True)]
    return [
        [
            sum(w * layer[t][i] for w, layer in zip(weights, layers, strict=True))
            for i in range(len(layers[0][0]))
        ]
        for t in range(len(layers[0]))
    ]


def gru(
    xs: Matrix, weight_in: Matrix, weight_hidden: Matrix, bias_in: Vector, bias_hidden: Vector
) -> Matrix:
    """Return each state of a GRU (Cho et al. 2014, in PyTorch's form).

    The gates are in the order reset, update, new.
    """
    size = len(weight_hidden[0])
    h, states = [0.0] * size, []
    for x in xs:
        a, b = matvec(weight_in, x, bias_in), matvec(weight_hidden, h, bias_hidden)
        reset = [1 / (1 + math.exp(-(u + v))) for u, v in zip(a[:size], b[:size], strict=True)]
        update = [
            1 / (1 + math.exp(-(u + v))) for u, v in zip(a[size:-size], b[size:-size], strict=True)
        ]
        new = [math.tanh(u + r * v) for u, r, v in zip(a[-size:], reset, b[-size:], strict=True)]
        h = [(1 - z) * n + z * old for z, n, old in zip(update, new, h, strict=True)]
        states.append(h)
    return states


def fast_bpe(word: str, merges: list[tuple[str, str]], vocabulary: set[str]) -> list[str]:
    """Cut one word as fastBPE does: merge, and then split pieces that the vocabulary lacks."""
    pieces = [*word[:-1], word[-1] + "</w>"]
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    while True:
        pairs = [pair for pair in itertools.pairwise(pieces) if pair in ranks]
        if not pairs:
            break
        best, merged = min(pairs, key=ranks.__getitem__), []
        while pieces:
            count = 2 if tuple(pieces[:2]) == best else 1
            merged.append("".join(pieces[:count]))
            pieces = pieces[count:]
        pieces = merged
    origin = {a + b: (a, b) for a, b in merges}

    def name(piece):
        return piece[:-4] if piece.endswith("</w>") else piece + "@@"

    def apart(piece):
        if name(piece) in vocabulary or piece not in origin:
            return [name(piece)]
        return [part for half in origin[piece] for part in apart(half)]

    return [part for piece in pieces for part in apart(piece)]
