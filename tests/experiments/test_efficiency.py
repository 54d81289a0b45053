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
from polyembed.experiments import MeasuredModel, efficiency_report
from polyembed.experiments.efficiency import PredictionSpeed


def static_tagger(dim: int = 5, **options) -> pe.SequenceTagger:
    lexicon = toy_lexicon()
    words = pe.SourceEmbedding.from_embedding(nn.Embedding(len(lexicon), dim), lexicon)
    return pe.SequenceTagger(words, TAGS, **options)


def contextual_tagger(tokenizer=None) -> pe.SequenceTagger:
    encoder = pe.PretrainedWordEncoder(tiny_model("bert", max_position_embeddings=16), tokenizer)
    return pe.SequenceTagger(encoder, TAGS, decoder=pe.SoftmaxDecoder(8, len(TAGS)))


def test_parameters_are_counted_once_and_by_kind() -> None:
    shared = nn.Embedding(11, 3)
    tied = nn.Linear(3, 11, bias=False)
    tied.weight = shared.weight
    frozen = nn.Linear(2, 2).requires_grad_(False)
    module = nn.ModuleList([shared, tied, frozen, nn.BatchNorm1d(2)])
    subject = MeasuredModel(module, lambda rows, length: torch.ones(rows, 2), lambda x: frozen(x), lambda x: frozen(x))
    size = efficiency_report({"m": subject}, lengths=[1], runs=1).sizes["m"]
    assert size[:2] == (33 + 4, 6)
    assert size.memory_mb == pytest.approx((4 * (33 + 4 + 6 + 4) + 8) / 2**20)  # the norm counts its batches in int64
    assert size.disk_mb is None  # it cannot save itself


def test_a_saved_tagger_is_weighed(tmp_path) -> None:
    tagger = static_tagger()
    tagger.save_pretrained(tmp_path / "tagger")
    expected = sum(path.stat().st_size for path in (tmp_path / "tagger").iterdir()) / 2**20
    report = efficiency_report({"with": tagger}, lengths=[2], runs=1)
    assert report.sizes["with"].disk_mb == pytest.approx(expected, rel=1e-3)
    assert efficiency_report({"without": tagger}, lengths=[2], runs=1, disk=False).sizes["without"].disk_mb is None


def test_activation_memory_is_what_autograd_keeps() -> None:
    """Of ``relu(x W).sin().sum()`` the input of sin and the output of relu are kept; x and W are not activations."""
    linear = nn.Linear(16, 1024, bias=False)

    def forward(x):
        hidden = linear(x).relu()
        return hidden.sin().sum() if not linear.training else torch.dropout(hidden, 0.5, True).sin().sum()

    subject = MeasuredModel(linear, lambda rows, length: torch.randn(rows, length, 16), forward, forward, loss=forward)
    report = efficiency_report({"m": subject}, lengths=[1, 64], batch_size=2, runs=1)
    for length in (1, 64):
        numbers = 2 * length * 1024
        memory = report.memories["m"][length]
        assert memory.forward == pytest.approx(4 * numbers / 2**20)  # one tensor, kept twice, counts once
        assert memory.training == pytest.approx(
            (4 + 4 + 1) * numbers / 2**20, rel=0.35
        )  # and dropout's output, its mask
        assert memory.training > memory.forward


def test_memory_of_a_tagger_does_not_count_its_tables() -> None:
    report = efficiency_report({"small": static_tagger(5), "large": static_tagger(5000)}, lengths=[3], runs=1)
    small, large = (report.memories[name][3].forward for name in ("small", "large"))
    assert small < large < small + 2 * 4 * 3 * 5000 / 2**20  # the rows that were looked up, not the table


def test_activations_are_let_go() -> None:
    """A tensor that is kept as an output, as that of exp, does not keep itself alive."""
    linear, kept = nn.Linear(2, 3), []

    def forward(x):
        y = linear(x).exp()
        kept.append(weakref.ref(y))
        return y.exp().sum()

    gc.disable()
    try:
        subject = MeasuredModel(linear, lambda rows, length: torch.randn(rows, 2), forward, forward, loss=forward)
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

        return MeasuredModel(modules[name], lambda rows, length: torch.randn(rows, 2), predict, modules[name])

    report = efficiency_report({name: subject(name) for name in modules}, lengths=[7], batch_size=3, runs=5)
    assert [name for name, *_ in calls] == ["a", "b"] * (3 + 5)  # in turns, the warm-up too
    assert {flags for _, *flags in calls for flags in [tuple(flags)]} == {(False, False)}
    speed = report.speeds["a"][7]
    assert speed.runs == 5
    assert speed.low <= speed.sentences <= speed.high
    assert speed.tokens == pytest.approx(7 * speed.sentences)
    assert [part.training for part in (modules["a"], modules["a"][1], modules["b"][1])] == [True, True, False]


def test_time_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(10_000))
    monkeypatch.setattr("polyembed.experiments._measure.time.perf_counter", lambda: float(next(clock)))
    linear = nn.Linear(2, 2)
    subject = MeasuredModel(linear, lambda rows, length: torch.randn(rows, 2), linear, linear)
    report = efficiency_report({"m": subject}, lengths=[4], batch_size=6, runs=100, max_seconds=7.0)
    assert report.speeds["m"][4] == PredictionSpeed(6.0, 6.0, 6.0, 24.0, 8, None)  # each run takes one second


def test_lengths_beyond_the_encoder_are_missing() -> None:
    models = {
        "static": static_tagger(),
        "bert": contextual_tagger(),
        "windows": contextual_tagger(word_piece_tokenizer()),
    }
    report = efficiency_report(models, lengths=[8, 32], runs=2)
    assert {name: list(part) for name, part in report.speeds.items()} == {
        "static": [8, 32],
        "bert": [8],
        "windows": [8, 32],
    }
    assert report.speed_table().rows[1][2] is None
    assert report.memory_table("training").rows[1][1] > 0
    assert report.preprocessing_table().rows[0][1] > 0
    assert report.preprocessing_table().rows[1][1] is None
    assert report.size_table().columns[0] == "model"


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA"), RuntimeError("can't allocate memory"), MemoryError()]
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
    ends = "out of memory"
    assert report.out_of_memory["small"] == {
        *((length, "training") for length in (8, 32, 64)),
        *((length, "predict") for length in (32, 64)),
        (64, "forward"),
    }
    assert [cell == ends for cell in report.speed_table().rows[0]] == [False, False, False, True, True]
    assert [cell == ends for cell in report.memory_table().rows[0]] == [False, False, False, False, True]
    assert [cell == ends for cell in report.memory_table("training").rows[0]] == [False, False, True, True, True]
    for table in (report.speed_table(), report.memory_table(), report.memory_table("training")):
        assert all(isinstance(cell, float) for cell in table.rows[1][1:])
    assert "| out of memory |" in report.speed_table().to_markdown()


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
        "late": MeasuredModel(linear, lambda rows, length: torch.ones(length, 2), late, linear, linear),
    }
    report = efficiency_report(models, lengths=iter([4, 8, 16]), runs=5)
    assert report.out_of_memory == {"inputs": {(8, "predict"), (8, "forward")}, "late": {(4, "predict")}}
    assert report.lengths == (4, 8, 16)
    assert {name: list(part) for name, part in report.speeds.items()} == {"inputs": [4, 16], "late": [8, 16]}
    assert {name: list(part) for name, part in report.memories.items()} == {"inputs": [4, 16], "late": [4, 8, 16]}
    assert [cell == "out of memory" for cell in report.memory_table("training").rows[0]] == [False] * 4
    assert calls.count(4) == 6  # not tried again


@pytest.mark.parametrize(
    "message",
    [
        "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to",
        "DefaultCPUAllocator: not enough memory: you tried to allocate 4 bytes.",
        "CUDA error: out of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "MPS backend out of memory (MPS allocated: 1 GB)",
    ],
)
def test_every_library_says_it_in_its_words(message: str) -> None:
    def fail(x):
        raise RuntimeError(message)

    subject = MeasuredModel(nn.Linear(2, 2), lambda *sizes: torch.ones(1, 2), fail, fail)
    report = efficiency_report({"m": subject}, lengths=[1], runs=1)
    assert report.out_of_memory == {"m": {(1, "predict"), (1, "forward")}}


def test_a_module_without_parameters() -> None:
    module = nn.Module()
    for _ in range(2):
        subject = MeasuredModel(module, lambda rows, length: torch.ones(length, 2), torch.sin, torch.sin)
        report = efficiency_report({"m": subject, "tagger": static_tagger()}, lengths=[3], runs=1)
        assert report.sizes["m"][:2] == (0, 0)
        assert report.speeds["m"][3].sentences > 0
        module.register_buffer("weight", torch.ones(2))
    assert efficiency_report({"m": subject}, lengths=[3], runs=1).device == "cpu"


def test_a_lexicon_without_words() -> None:
    words = pe.SourceEmbedding.from_embedding(nn.Embedding(2, 3), pe.Lexicon([]))
    report = efficiency_report({"empty": pe.SequenceTagger(words, TAGS)}, lengths=[50], runs=1)
    assert report.speeds["empty"][50].sentences > 0
    assert report.speeds["empty"][50].preprocessing_ms > 0


def test_a_mixed_meta_embedding_reads_ids_and_pieces() -> None:
    members = [static_tagger().embedder, contextual_tagger().embedder]
    tagger = pe.SequenceTagger(pe.MetaEmbedding.concat(members), TAGS)
    report = efficiency_report({"mixed": tagger}, lengths=[4, 32], runs=1)
    assert list(report.speeds["mixed"]) == [4]  # the contextual member reads 16 pieces
    assert report.memories["mixed"][4].training > 0
    assert report.speeds["mixed"][4].preprocessing_ms is None


def test_piece_ids_are_of_the_vocabulary() -> None:
    """It may be smaller than the number of positions."""
    encoder = pe.PretrainedWordEncoder(tiny_model("bert", vocab_size=7, max_position_embeddings=64))
    tagger = pe.SequenceTagger(encoder, TAGS, decoder=pe.SoftmaxDecoder(8, len(TAGS)))
    assert list(efficiency_report({"m": tagger}, lengths=[50], runs=1).speeds["m"]) == [50]


def test_other_errors_are_not_taken_for_it() -> None:
    def fail(x):
        raise RuntimeError("shapes do not fit")

    linear = nn.Linear(2, 2)
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        efficiency_report({"m": MeasuredModel(linear, lambda *sizes: torch.ones(1, 2), fail, linear)}, lengths=[1])


def test_models_move_to_the_device() -> None:
    tagger = static_tagger()
    report = efficiency_report({"m": tagger}, lengths=[3], runs=1, device="cpu")
    assert report.device == "cpu"
    moved = []
    tagger.to = lambda device: moved.append(device)
    efficiency_report({"m": tagger}, lengths=[3], runs=1, device=torch.device("cpu"))
    assert moved == [torch.device("cpu")]


def test_more_pieces_a_word_reach_the_encoder() -> None:
    seen = []
    tagger = contextual_tagger()
    tagger.embedder.register_forward_hook(lambda module, inputs, output: seen.append((inputs[0], output.shape)))
    efficiency_report({"m": tagger}, lengths=[6], runs=1, pieces_per_word=2.5)
    pieces, shape = seen[0]
    assert pieces.piece_ids.shape == (1, 15)
    assert shape == (1, 6, 8)
    pieces.check()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: efficiency_report({}), ValueError, r"^models must hold at least one model, got none$"),
        (lambda: efficiency_report({"m": nn.Linear(2, 2)}), TypeError, r"^models\['m'\] must be a SequenceTagger or a"),
        (
            lambda: efficiency_report({"m": static_tagger()}, lengths=[0]),
            ValueError,
            r"^lengths\[0\] must be a positive",
        ),
        (
            lambda: efficiency_report({"m": static_tagger()}, lengths=[]),
            ValueError,
            r"^lengths must hold at least one length, got none$",
        ),
        (
            lambda: efficiency_report({"m": static_tagger()}, pieces_per_word=math.inf),
            ValueError,
            r"^pieces_per_word must be at least 1, and finite, got inf$",
        ),
        (
            lambda: efficiency_report({"m": static_tagger()}, device="xpu" if not torch.xpu.is_available() else "hpu"),
            ValueError,
            r"^device must be a device that is there, got [xh]pu$",
        ),
        (
            lambda: efficiency_report({"m": static_tagger()}, runs=0),
            ValueError,
            r"^runs must be a positive integer, got",
        ),
        (
            lambda: efficiency_report({"m": static_tagger()}, pieces_per_word=0.5),
            ValueError,
            r"^pieces_per_word must be at least 1, and finite, got 0.5$",
        ),
        (
            lambda: efficiency_report({"m": static_tagger()}, max_seconds=math.nan),
            ValueError,
            r"^max_seconds must be positive, got nan$",
        ),
        (
            lambda: efficiency_report({"m": static_tagger()}, device="cuda:99"),
            ValueError,
            r"^device must be a device that is there \(cuda: [0-9]+\), got cuda:99$",
        ),
        (
            lambda: efficiency_report({"m": static_tagger()}, device="abacus"),
            ValueError,
            r"^device must name a device, got 'abacus'$",
        ),
    ],
)
def test_bad_input(call, error, message) -> None:
    with pytest.raises(error, match=message):
        call()
