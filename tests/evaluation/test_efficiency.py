"""What models cost: counted by hand, and the memory by a list of what each operation keeps."""

import gc
import math
import weakref

import pytest
import torch
from tiny_models import tiny_model, word_piece_tokenizer
from torch import nn
from toys import TAGS, toy_lexicon

import polyembed as pe
from polyembed.evaluation import MeasuredModel, efficiency_report
from polyembed.evaluation.efficiency import PredictionSpeed


def static_tagger(dim: int = 5, **options) -> pe.SequenceTagger:
    lexicon = toy_lexicon()
    words = pe.SourceEmbedding.from_embedding(nn.Embedding(len(lexicon), dim), lexicon)
    return pe.SequenceTagger(words, TAGS, **options)


def contextual_tagger(tokenizer=None, **options) -> pe.SequenceTagger:
    encoder = pe.PretrainedWordEncoder(
        tiny_model("bert", **{"max_position_embeddings": 16, **options}), tokenizer
    )
    return pe.SequenceTagger(encoder, TAGS, decoder=pe.SoftmaxDecoder(8, len(TAGS)))


def measured(predict=torch.sin, forward=torch.sin, module=None) -> MeasuredModel:
    return MeasuredModel(
        module or nn.Linear(2, 2), lambda rows, length: torch.ones(length, 2), predict, forward
    )


def test_parameters_are_counted_once_and_by_kind(tmp_path) -> None:
    shared = nn.Embedding(11, 3)
    tied = nn.Linear(3, 11, bias=False)
    tied.weight = shared.weight
    module = nn.ModuleList([shared, tied, nn.Linear(2, 2).requires_grad_(False), nn.BatchNorm1d(2)])
    empty = nn.Module()
    empty.register_buffer("table", torch.ones(2))
    tagger = static_tagger()
    models = {
        "m": measured(module=module),
        "none": measured(module=nn.Module()),
        "buffer": measured(module=empty),
    }
    sizes = efficiency_report({**models, "tagger": tagger}, lengths=[1], runs=1).sizes
    assert [sizes[name][:2] for name in models] == [(33 + 4, 6), (0, 0), (0, 0)]
    memory = 4 * (33 + 4 + 6 + 4) + 8  # the norm counts its batches in int64
    assert sizes["m"].memory_mb == pytest.approx(memory / 2**20)
    assert sizes["m"].disk_mb is None  # it cannot save itself
    tagger.save_pretrained(tmp_path / "tagger")
    expected = sum(path.stat().st_size for path in (tmp_path / "tagger").iterdir()) / 2**20
    assert sizes["tagger"].disk_mb == pytest.approx(expected, rel=1e-3)
    assert (
        efficiency_report({"m": tagger}, lengths=[1], runs=1, disk=False).sizes["m"].disk_mb is None
    )


def test_activation_memory_is_what_autograd_keeps() -> None:
    """Of ``relu(x W).sin().sum()`` the input of sin and the output of relu are kept; x and W are not activations."""
    linear = nn.Linear(16, 1024, bias=False)

    def forward(x):
        hidden = linear(x).relu()
        return (
            hidden.sin().sum()
            if not linear.training
            else torch.dropout(hidden, 0.5, True).sin().sum()
        )

    subject = MeasuredModel(
        linear, lambda rows, length: torch.randn(rows, length, 16), forward, forward, loss=forward
    )
    report = efficiency_report({"m": subject}, lengths=[1, 64], batch_size=2, runs=1)
    for length in (1, 64):
        numbers = 2 * length * 1024
        memory = report.memories["m"][length]
        assert memory.forward == pytest.approx(
            4 * numbers / 2**20
        )  # one tensor, kept twice, counts once
        assert memory.training == pytest.approx(
            (4 + 4 + 1) * numbers / 2**20, rel=0.35
        )  # and dropout's output, its mask
        assert memory.training > memory.forward


def test_activations_are_let_go() -> None:
    """A tensor that is kept as an output, as that of exp, does not keep itself alive."""
    linear, kept = nn.Linear(2, 3), []

    def forward(x):
        y = linear(x).exp()
        kept.append(weakref.ref(y))
        return y.exp().sum()

    gc.disable()
    try:
        subject = MeasuredModel(
            linear, lambda rows, length: torch.randn(rows, 2), forward, forward, loss=forward
        )
        efficiency_report({"m": subject}, lengths=[4], runs=1)
        assert kept
        assert not any(reference() is not None for reference in kept)
    finally:
        gc.enable()


def test_each_model_is_timed_as_often_as_asked_and_left_as_it_was() -> None:
    calls: list[tuple[str, bool, bool]] = []
    modules = {name: nn.Sequential(nn.Linear(2, 2), nn.Dropout()) for name in ("a", "b")}
    modules["b"][1].eval()

    def subject(name: str) -> MeasuredModel:
        def predict(x):
            calls.append((name, modules[name].training, torch.is_grad_enabled()))

        return MeasuredModel(
            modules[name], lambda rows, length: torch.randn(rows, 2), predict, modules[name]
        )

    report = efficiency_report(
        {name: subject(name) for name in modules}, lengths=[7], batch_size=3, runs=5
    )
    assert [name for name, *_ in calls] == ["a", "b"] * (3 + 5)  # in turns, the warm-up too
    assert {flags for _, *flags in calls for flags in [tuple(flags)]} == {(False, False)}
    speed = report.speeds["a"][7]
    assert speed.runs == 5
    assert speed.low <= speed.sentences <= speed.high
    assert speed.tokens == pytest.approx(7 * speed.sentences)
    assert [part.training for part in (modules["a"], modules["a"][1], modules["b"][1])] == [
        True,
        True,
        False,
    ]


def test_time_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(10_000))
    monkeypatch.setattr(
        "polyembed.evaluation._measure.time.perf_counter", lambda: float(next(clock))
    )
    linear = nn.Linear(2, 2)
    subject = MeasuredModel(linear, lambda rows, length: torch.randn(rows, 2), linear, linear)
    report = efficiency_report({"m": subject}, lengths=[4], batch_size=6, runs=100, max_seconds=7.0)
    assert report.speeds["m"][4] == PredictionSpeed(
        6.0, 6.0, 6.0, 24.0, 8, None
    )  # each run takes one second


def test_taggers_of_every_kind_at_lengths_that_they_can_read() -> None:
    """A contextual embedder without windows reads 16 pieces; piece ids are of its vocabulary."""
    members = [static_tagger().embedder, contextual_tagger().embedder]
    nothing = pe.SourceEmbedding.from_embedding(nn.Embedding(2, 3), pe.Lexicon([]))
    models = {
        "static": static_tagger(),
        "bert": contextual_tagger(),
        "few pieces": contextual_tagger(vocab_size=7, max_position_embeddings=64),
        "windows": contextual_tagger(word_piece_tokenizer()),
        "mixed": pe.SequenceTagger(pe.MetaEmbedding.concat(members), TAGS),
        "no words": pe.SequenceTagger(nothing, TAGS),
        "large": static_tagger(5000),
    }
    report = efficiency_report(models, lengths=[8, 32], runs=1, device=torch.device("cpu"))
    read = {name: list(part) for name, part in report.speeds.items()}
    assert read == {name: [8] if name in ("bert", "mixed") else [8, 32] for name in models}
    assert report.speed_table().rows[1][2] is None
    assert [row[1] > 0 for row in report.memory_table("training").rows] == [True] * len(models)
    timed = [row[1] is not None for row in report.preprocessing_table().rows]
    assert timed == [True, False, False, False, False, True, True]
    assert report.size_table().columns[0] == "model"
    assert report.device == "cpu"
    small, large = (report.memories[name][8].forward for name in ("static", "large"))
    assert (
        small < large < small + 2 * 4 * 8 * 5000 / 2**20
    )  # the rows that were looked up, not the table


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA"), RuntimeError("can't allocate memory")]
)
def test_where_memory_ends_the_rest_goes_on(error) -> None:
    """One model has no memory to predict at 32, and none to train at 8; the other is not disturbed."""
    linear = nn.Linear(2, 2)

    def limited(limit: int):
        def call(x):
            if len(x) >= limit:
                raise error
            return linear(x)

        return call

    def inputs(rows: int, length: int):
        return torch.ones(length, 2)

    small = MeasuredModel(linear, inputs, predict=limited(32), forward=limited(64), loss=limited(8))
    models = {"small": small, "large": MeasuredModel(linear, inputs, linear, linear, linear)}
    report = efficiency_report(models, lengths=[4, 8, 32, 64], runs=2)
    ended = {
        "training": [False, True, True, True],
        "predict": [False, False, True, True],
        "forward": [False] * 3 + [True],
    }
    expected = {
        (n, step)
        for step, row in ended.items()
        for n, end in zip((4, 8, 32, 64), row, strict=True)
        if end
    }
    assert report.out_of_memory["small"] == expected
    tables = {
        "predict": report.speed_table(),
        "forward": report.memory_table(),
        "training": report.memory_table("training"),
    }
    for step, table in tables.items():
        assert [cell == "out of memory" for cell in table.rows[0][1:]] == ended[step]
        assert all(isinstance(cell, float) for cell in table.rows[1][1:])


def test_memory_may_end_before_the_model_or_late() -> None:
    """One's inputs do not fit at 8; another's runs at 4 end after its warm-up, as where memory is in pieces."""
    linear, calls = nn.Linear(2, 2), []

    def inputs(rows: int, length: int):
        if length == 8:
            raise torch.OutOfMemoryError("CUDA")
        return torch.ones(length, 2)

    def late(x):
        calls.append(len(x))
        if len(x) == 4 and calls.count(4) == 6:
            raise torch.OutOfMemoryError("CUDA")
        return linear(x)

    models = {
        "inputs": MeasuredModel(linear, inputs, linear, linear),
        "late": MeasuredModel(
            linear, lambda rows, length: torch.ones(length, 2), late, linear, linear
        ),
    }
    report = efficiency_report(models, lengths=iter([4, 8, 16]), runs=5)
    assert report.out_of_memory == {
        "inputs": {(8, "predict"), (8, "forward")},
        "late": {(4, "predict")},
    }
    assert report.lengths == (4, 8, 16)
    assert {name: list(part) for name, part in report.speeds.items()} == {
        "inputs": [4, 16],
        "late": [8, 16],
    }
    assert {name: list(part) for name, part in report.memories.items()} == {
        "inputs": [4, 16],
        "late": [4, 8, 16],
    }
    assert [cell == "out of memory" for cell in report.memory_table("training").rows[0]] == [
        False
    ] * 4
    assert calls.count(4) == 6  # not tried again


@pytest.mark.parametrize(
    "message",
    [
        "DefaultCPUAllocator: not enough memory: you tried to allocate 4 bytes.",
        "CUDA error: out of memory",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "shapes do not fit",
        MemoryError(),
    ],
)
def test_every_library_says_it_in_its_words(message) -> None:
    def fail(x):
        raise message if isinstance(message, MemoryError) else RuntimeError(message)

    models = {"m": measured(fail, fail)}
    if message == "shapes do not fit":
        with pytest.raises(RuntimeError, match=message):
            efficiency_report(models, lengths=[1])
    else:
        report = efficiency_report(models, lengths=[1], runs=1)
        assert report.out_of_memory == {"m": {(1, "predict"), (1, "forward")}}


def test_more_pieces_a_word_reach_the_encoder() -> None:
    seen = []
    tagger = contextual_tagger()
    tagger.embedder.register_forward_hook(
        lambda module, inputs, output: seen.append((inputs[0], output.shape))
    )
    efficiency_report({"m": tagger}, lengths=[6], runs=1, pieces_per_word=2.5)
    pieces, shape = seen[0]
    assert pieces.piece_ids.shape == (1, 15)
    assert shape == (1, 6, 8)
    pieces.check()


def refused(**options) -> None:
    efficiency_report({"m": static_tagger()}, **options)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: efficiency_report({}),
            ValueError,
            "models must hold at least one model, got none",
        ),
        (
            lambda: efficiency_report({"m": nn.ReLU()}),
            TypeError,
            r"models\['m'\] must be a SequenceTagger or a .*",
        ),
        (
            lambda: refused(lengths=[0]),
            ValueError,
            r"lengths\[0\] must be a positive integer, got 0",
        ),
        (
            lambda: refused(lengths=[]),
            ValueError,
            "lengths must hold at least one length, got none",
        ),
        (lambda: refused(runs=0), ValueError, "runs must be a positive integer, got 0"),
        (
            lambda: refused(pieces_per_word=0.5),
            ValueError,
            "pieces_per_word must be at least 1, and finite, got 0.5",
        ),
        (
            lambda: refused(pieces_per_word=math.inf),
            ValueError,
            "pieces_per_word must be at least 1, .*, got inf",
        ),
        (
            lambda: refused(max_seconds=math.nan),
            ValueError,
            "max_seconds must be positive, got nan",
        ),
        (
            lambda: refused(device="hpu"),
            ValueError,
            "device must be a device that is there, got hpu",
        ),
        (
            lambda: refused(device="cuda:99"),
            ValueError,
            r"device must be .* there \(cuda: [0-9]+\), got cuda:99",
        ),
        (lambda: refused(device="abacus"), ValueError, "device must name a device, got 'abacus'"),
    ],
)
def test_bad_input(call, error, message) -> None:
    with pytest.raises(error, match=f"^{message}$"):
        call()
