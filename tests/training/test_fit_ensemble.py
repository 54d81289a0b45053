"""Members trained side by side: the same numbers however many at once, and a lost one costs only itself."""

import json
import math
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType

import pytest
import torch
from test_fit import DEV, build
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, ReduceLROnPlateau
from toys import TAGS, ToyVectors, toy_corpus, toy_lexicon

import polyembed as pe
from polyembed.metrics import accuracy
from polyembed.training import EnsembleResult, FitOptions, fit, fit_ensemble
from polyembed.training.runs import read_checkpoint

TRAIN = toy_corpus(4)
FILES = {"checkpoint.pt", "lock"}


def build_constrained(seed: int) -> pe.SequenceTagger:
    """The same with rules about which tag may follow which: nothing of it is a number."""
    tagger = build(seed)
    count = len(tagger.tags)
    rules = pe.Constraints([[1] * count] * count)
    tagger.decoder = pe.CRFDecoder(tagger.decoder.linear.in_features, count, constraints=rules)
    return tagger


def adam(tagger: pe.SequenceTagger, lr: float = 0.01) -> torch.optim.Adam:
    return torch.optim.Adam([p for p in tagger.parameters() if p.requires_grad], lr=lr)


def cosine(optimizer: torch.optim.Optimizer, steps: int = 50) -> CosineAnnealingLR:
    return CosineAnnealingLR(optimizer, T_max=steps)


OPTIONS = FitOptions(
    num_train_epochs=3,
    batch_size=4,
    optimizer=adam,
    scheduler=cosine,
    scheduler_interval="step",
    metric="accuracy",
)


def train(
    folder: Path, *, seeds=(3, 1), build=build, train=TRAIN, dev=DEV, **changes
) -> EnsembleResult:
    """One call with many kinds of state: Adam, a cosine schedule by steps, dropout, unknown words."""
    fields = {name: changes.pop(name) for name in [*changes] if hasattr(OPTIONS, name)}
    arguments = {"num_processes": 1, "num_threads": 1, "devices": ["cpu"], **changes}
    return fit_ensemble(
        build, train, dev, replace(OPTIONS, **fields), folder=folder, seeds=seeds, **arguments
    )


def numbers(result: EnsembleResult) -> list[list[tuple]]:
    """Every epoch of every member without its seconds."""
    return [[epoch[:3] for epoch in member.history] for member in result.results]


def assert_equal_members(found: EnsembleResult, expected: EnsembleResult) -> None:
    assert numbers(found) == numbers(expected)
    assert len(found.ensemble.members) == len(expected.ensemble.members)
    for ours, theirs in zip(found.ensemble.members, expected.ensemble.members, strict=True):
        assert_equal_states(ours, theirs)


def assert_equal_states(found: nn.Module, expected: nn.Module) -> None:
    assert found.state_dict().keys() == expected.state_dict().keys()
    for name, value in found.state_dict().items():
        assert torch.equal(value, expected.state_dict()[name]), name


def written(folder: Path) -> dict[str, int]:
    return {
        str(path.relative_to(folder)): path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.is_file()
    }


@contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> EnsembleResult:
    """Seeds 3 and 1, one after the other in this process."""
    return train(tmp_path_factory.mktemp("reference"))


def test_members_are_what_fit_makes_of_them(reference) -> None:
    assert isinstance(reference.ensemble, pe.VotingEnsemble)
    assert not reference.ensemble.training
    for seed, member, result in zip(
        (3, 1), reference.ensemble.members, reference.results, strict=True
    ):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            tagger = build(seed)
        with threads(1):  # as the members had: sums over more threads are rounded otherwise
            expected = fit(tagger, TRAIN, DEV, OPTIONS, seed=seed)
        assert [epoch[:3] for epoch in result.history] == [epoch[:3] for epoch in expected.history]
        assert result.best in result.history
        assert_equal_states(member, tagger)
    first, second = (member.state_dict() for member in reference.ensemble.members)
    assert not torch.equal(first["decoder.linear.weight"], second["decoder.linear.weight"])


def test_the_callers_state_is_untouched(tmp_path, monkeypatch) -> None:
    before, seen = torch.get_rng_state(), []

    def metric(gold: list, predicted: list) -> float:
        seen.append(torch.get_num_threads())
        return 0.5

    monkeypatch.chdir(tmp_path)
    with threads(1):
        train(Path("here"), metric=metric, num_threads=2, num_train_epochs=1)
        train(Path("there"), metric=metric, num_threads=None, num_train_epochs=1)
        assert torch.get_num_threads() == 1
    assert seen == [2, 2, 1, 1]
    assert torch.equal(torch.get_rng_state(), before)


# --- processes
# ---------------------------------------------------------------------------------------------------


def build_mortal(seed: int, *, marker: Path) -> pe.SequenceTagger:
    """The tagger of `build`; in a process of its own, that of seed 1 kills it as it predicts in its second epoch."""
    predict = pe.SequenceTagger.predict

    def predict_and_die(self: pe.SequenceTagger, texts: list) -> list:
        with marker.open("a") as lines:
            lines.write(f"{os.getpid()} {torch.get_num_threads()}\n")
        if len(marker.read_text().splitlines()) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return predict(self, texts)

    if seed == 1 and multiprocessing.parent_process() is not None:
        pe.SequenceTagger.predict = predict_and_die
    return build(seed)


def test_a_killed_process_costs_only_itself(tmp_path, reference, capfd) -> None:
    folder, marker = tmp_path / "members", tmp_path / "marker"
    options = {"build": partial(build_mortal, marker=marker), "num_processes": 2}
    lost = (
        r"^every member must finish \(the same call continues where the lost ones stopped\), got seeds \[1\] lost, "
        r"the first: BrokenProcessPool: .* \(it was killed, or a script lacks: if __name__ == '__main__'\)\n"
    )
    with pytest.raises(RuntimeError, match=lost):
        train(folder, **options, progress=True, devices=["cpu:0", "cpu:1"])
    assert "members" in capfd.readouterr().err
    files = written(folder)
    assert set(files) == {f"member-{seed}/{name}" for seed in (1, 3) for name in FILES}
    kept = {seed: read_checkpoint(folder / f"member-{seed}" / "checkpoint.pt") for seed in (1, 3)}
    assert (kept[1]["finished"], kept[3]["finished"], len(kept[1]["state"]["history"])) == (
        False,
        True,
        1,
    )

    assert_equal_members(train(folder, **options), reference)
    assert all(
        written(folder)[name] == at for name, at in files.items() if name.startswith("member-3")
    )
    epochs = [line.split() for line in marker.read_text().splitlines()]
    assert len(epochs) == 4  # one finished, one lost, then only what was left
    assert len({process for process, _ in epochs}) == 2
    assert {threads for _, threads in epochs} == {"1"}


def stops_the_caller(seed: int, *, folder: Path) -> pe.SequenceTagger:
    """In a process of its own: be known, press the caller's Ctrl-C once both processes are there, and hang."""
    if multiprocessing.parent_process() is not None:
        (folder / f"{os.getpid()}").write_text(f"{torch.get_num_threads()}")
        while sum(path.stat().st_size > 0 for path in folder.iterdir()) < 2:
            time.sleep(0.01)
        if seed == 0:
            os.kill(os.getppid(), signal.SIGINT)
        time.sleep(60)
    return build(seed)


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_ctrl_c_ends_the_processes(tmp_path, request) -> None:
    processes = tmp_path / "processes"
    processes.mkdir()
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background jobs ignore Ctrl-C
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    with pytest.raises(KeyboardInterrupt):
        train(
            tmp_path / "members",
            seeds=range(5),
            build=partial(stops_the_caller, folder=processes),
            num_processes=2,
            num_threads=2,
        )
    started = list(processes.iterdir())
    assert len(started) == 2  # never more than num_processes
    assert {path.read_text() for path in started} == {"2"}
    assert not any(is_running(int(path.name)) for path in started)


PROGRAM = """
import os, sys
from functools import partial
from pathlib import Path
sys.path[:0] = {paths!r}
import test_fit_ensemble as tests
{program}
"""


def write_program(folder: Path, program: str) -> str:
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    path = folder / "program.py"
    path.write_text(PROGRAM.format(paths=paths, program=program))
    return str(path)


def kills_the_caller(seed: int, *, file: Path) -> pe.SequenceTagger:
    if multiprocessing.parent_process() is not None:
        file.write_text(str(os.getpid()))
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    return build(seed)


@pytest.mark.slow
def test_processes_end_with_a_killed_caller(tmp_path) -> None:
    file = tmp_path / "process"
    program = f"""
if __name__ == "__main__":
    build = partial(tests.kills_the_caller, file=Path({str(file)!r}))
    tests.train(Path({str(tmp_path)!r}), seeds=(0,), build=build, num_processes=2)
"""
    caller = subprocess.run(
        [sys.executable, write_program(tmp_path, program)], check=False
    )  # a pipe would wait for all
    assert caller.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 20
    while is_running(int(file.read_text())) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(int(file.read_text()))


def fails(seed: int, *, table: torch.Tensor) -> pe.SequenceTagger:
    if multiprocessing.parent_process() is not None:
        if seed == 5:
            os._exit(3)
        raise OSError(f"no vectors for {seed} in {table.tolist()}")
    return build(seed)


def test_each_process_says_why_it_failed(tmp_path) -> None:
    lost = r"got seeds \[4, 5\] lost, the first: OSError: no vectors for 4 in \[0, 1\]\n"
    with pytest.raises(RuntimeError, match=lost) as error:
        train(tmp_path, seeds=(4, 5), build=partial(fails, table=torch.arange(2)), num_processes=2)
    first, second = error.value.__notes__
    assert first.startswith("seed 4: ")
    assert "in fails" in first
    assert second.startswith("seed 5: ")
    assert "BrokenProcessPool" in second


LAMBDA = {
    "build": lambda seed: build(seed),
    "optimizer": lambda tagger: adam(tagger),
    "scheduler": lambda optimizer: cosine(optimizer),
    "metric": lambda gold, predicted: 0.5,
}


def test_functions_without_a_name_need_this_process(tmp_path, monkeypatch) -> None:
    rule = re.escape(
        "must be a function of a module, or a partial of one, so that processes find it (not with"
    )
    for name, function in LAMBDA.items():
        with pytest.raises(
            TypeError,
            match=rf"^{name} {rule} num_processes=1\), got <function .*<lambda>.*> \(.+\)$",
        ):
            train(tmp_path, num_processes=2, **{name: function})
    console = ModuleType("__main__")
    console.build = FunctionType(build.__code__, build.__globals__, "build")
    console.build.__kwdefaults__, console.build.__module__ = build.__kwdefaults__, "__main__"
    monkeypatch.setitem(sys.modules, "__main__", console)
    with pytest.raises(
        TypeError,
        match=r"^build must be .*, got functools.partial\(.*\) of an interactive session$",
    ):
        train(tmp_path, num_processes=2, build=partial(console.build, dropout=0.2))
    assert not written(tmp_path)


# --- what is lost, what is kept
# ----------------------------------------------------------------------------------


def test_a_failed_member_costs_only_itself(tmp_path, reference) -> None:
    broken, built = {3}, []

    def build_broken(seed: int) -> pe.SequenceTagger:
        tagger = build(seed)
        if seed in broken:
            tagger.decoder.linear.weight.data.fill_(math.inf)
        return tagger

    def metric(gold: list, predicted: list) -> float:
        built.append(None)
        return accuracy(gold, predicted)

    # then a note
    lost = (
        r"got seeds \[3\] lost, the first: ValueError: loss must stay finite, got nan in epoch 1\n"
    )
    with pytest.raises(RuntimeError, match=lost) as error:
        train(tmp_path, build=build_broken, metric=metric)
    assert "in _epoch" in error.value.__notes__[0]
    assert len(built) == 3
    broken.clear()
    assert_equal_members(train(tmp_path, build=build_broken, metric=metric), reference)
    assert len(built) == 6


def test_what_is_kept_is_small_and_safe(tmp_path) -> None:
    result = train(tmp_path, seeds=(1,))
    kept = read_checkpoint(tmp_path / "member-1" / "checkpoint.pt")["state"]
    assert set(kept) == {"weights", "history"}
    tagger = result.ensemble.members[0]
    trains = {name for name, value in tagger.named_parameters() if value.requires_grad}
    assert set(kept["weights"]) == trains | {name for name, _ in tagger.named_buffers()}
    assert len(trains) < len(list(tagger.parameters()))


def test_members_of_another_run_are_refused(tmp_path) -> None:
    """What `fit` refuses, and what ends a training elsewhere."""
    base = {"num_train_epochs": 1, "seeds": (1,)}
    train(tmp_path, **base)
    files = written(tmp_path)
    others = {
        "patience None in place of 1": {"patience": 1},
        "other scheduler": {"scheduler": partial(cosine, steps=7)},
        "other modules": {"build": build_constrained},
        "other frozen tensors": {"build": partial(build, source_seed=1)},
    }
    for differs, changes in others.items():
        with pytest.raises(
            ValueError, match=rf"member-1/checkpoint\.pt must come from this run, .*{differs}"
        ):
            train(tmp_path, **{**base, **changes})
    assert written(tmp_path) == files
    train(tmp_path, **base)


# --- wrong arguments
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": ()}, r"^seeds must be different integers, at least one, got \[\]$"),
        (
            {"seeds": (1, 2, 1)},
            r"^seeds must be different integers, at least one, got \[1, 2, 1\]$",
        ),
        ({"vote": "loud"}, r"^vote must be one of 'hard', 'soft', 'entity', got 'loud'$"),
        (
            {"vote": "entity", "build": partial(build, tags=[*TAGS, "X"])},
            r"^tags must be BIO for .*, got \[.*'X'\]$",
        ),
        ({"num_processes": 0}, r"^num_processes must be a positive integer, got 0$"),
        ({"num_threads": 0}, r"^num_threads must be a positive integer, got 0$"),
        ({"devices": []}, r"^devices must be a list, at least one, got \[\]$"),
        ({"devices": "cpu"}, r"^devices must be a list, at least one, got 'cpu'$"),
        ({"devices": ["abacus"]}, r"^devices\[0\] must name a device, got 'abacus'$"),
        (
            {"scheduler": ReduceLROnPlateau},
            r"^scheduler_interval must be 'epoch' for a ReduceLROnPlateau, got 'step'$",
        ),
        (
            {"build": lambda seed: build(seed, tags=TAGS if seed == 3 else [*TAGS, "B-X"])},
            r"^build\(1\).tags must be \('O', .*\), as build\(3\) has it, got \('O', .*, 'B-X'\)$",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_values(tmp_path, changes, message) -> None:
    with pytest.raises(ValueError, match=message):
        train(tmp_path, **changes)
    assert not written(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"build": None}, r"^build must be a function that makes one, got NoneType$"),
        (
            {"build": lambda seed: nn.Linear(2, 2)},
            r"^build\(3\) must return a SequenceTagger, got Linear$",
        ),
        ({"optimizer": lambda tagger: 0.01}, r"^optimizer must make an Optimizer, got float$"),
        (
            {"scheduler": lambda optimizer: optimizer},
            r"^scheduler must make an LRScheduler, got Adam$",
        ),
    ],
)
def test_wrong_functions(tmp_path, changes, message) -> None:
    with pytest.raises(TypeError, match=message):
        train(tmp_path, **changes)
    assert not written(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"^folder must be no file, got .*file$"):
        train(tmp_path / "file")


def test_members_share_only_what_is_frozen(tmp_path) -> None:
    lexicon = toy_lexicon()
    table = torch.randn(len(lexicon), 3)

    def share(seed: int, *, freeze: bool) -> pe.SequenceTagger:
        embedding = nn.Embedding.from_pretrained(table, freeze=freeze)
        return pe.SequenceTagger(pe.SourceEmbedding.from_embedding(embedding, lexicon), TAGS)

    rule = r"^build\(3\) must share nothing that trains with another member, got embedder.table.weight of build\(1\)$"
    with pytest.raises(ValueError, match=rule):
        train(tmp_path, build=partial(share, freeze=False))
    before = table.clone()
    result = train(tmp_path, build=partial(share, freeze=True))
    assert len(result.ensemble.members) == 2
    assert torch.equal(table, before)


# --- several launched processes
# ----------------------------------------------------------------------------------

RANK = """
import json
import torch.distributed as dist

rank, folder = int(os.environ["RANK"]), Path({folder!r}) / f"machine-{{os.environ['RANK']}}"


def metric(gold, predicted):
    lost = rank == 1 and not (folder / "said.json").exists()
    return float("nan") if lost else tests.accuracy(gold, predicted)


def refused(**options):
    try:
        tests.train(folder, **options)
    except (ValueError, RuntimeError) as error:
        return f"{{type(error).__name__}}: {{error}}"
    raise AssertionError(options)


folder.mkdir()
said = {{
    "other": refused(train=tests.TRAIN[rank:]),
    "wrong": refused(vote=["hard", "loud"][rank]),
    "many": refused(num_processes=2),
    "lost": refused(metric=metric),
}}
said["mine"] = os.listdir(folder)
(folder / "said.json").write_text(json.dumps(said))
assert not dist.is_initialized()
dist.init_process_group("gloo")  # as a caller may have
result = tests.train(folder, metric=metric)
dist.barrier()  # theirs still works
dist.destroy_process_group()
tests.torch.save([member.state_dict() for member in result.ensemble.members], folder / "states.pt")
(folder / "numbers.json").write_text(json.dumps(tests.numbers(result)))
tests.train(folder.parent / "shared", seeds=(5, 6, 7), num_train_epochs=1)
"""


def test_launched_processes_share_the_work(tmp_path, reference) -> None:
    program = write_program(tmp_path, RANK.format(folder=str(tmp_path)))
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        program,
    ]
    result = subprocess.run(launch, capture_output=True, text=True, check=False, timeout=300)
    assert result.returncode == 0, result.stderr
    vote = "ValueError: vote must be one of 'hard', 'soft', 'entity', got 'loud'"
    expected = {
        "other": "ValueError: rank 1 must make the same call as rank 0, got other train",
        "wrong": f"RuntimeError: rank 1 must make this call as the others do, got {vote}",
        "many": "ValueError: num_processes must be None under a launcher of processes, got 2",
        "lost": "RuntimeError: every member must finish (the same call continues where the lost ones stopped), got "
        "seeds [1] lost, the first: ValueError: metric must give a finite score, got nan in epoch 1",
    }
    for rank in (0, 1):
        machine = tmp_path / f"machine-{rank}"
        said = json.loads((machine / "said.json").read_text())
        own = [{"mine": ["member-3"]}, {"mine": ["member-1"], "wrong": vote}]
        assert said == {**expected, **own[rank]}
        assert json.loads((machine / "numbers.json").read_text()) == json.loads(
            json.dumps(numbers(reference))
        )
        states = torch.load(machine / "states.pt", weights_only=True)
        for member, state in zip(reference.ensemble.members, states, strict=True):
            assert member.state_dict().keys() == state.keys()
            assert all(
                torch.equal(value, state[name]) for name, value in member.state_dict().items()
            )
        assert {
            path.name for seed in (1, 3) for path in (machine / f"member-{seed}").iterdir()
        } == FILES
    assert set(written(tmp_path / "shared")) == {
        f"member-{seed}/{name}" for seed in (5, 6, 7) for name in FILES
    }


# --- on a GPU
# ----------------------------------------------------------------------------------------------------


def tells(tagger: pe.SequenceTagger, *, folder: Path) -> torch.optim.Adam:
    """Adam, and a note of the process that asks for it and of the device that its tagger is on."""
    (folder / f"{multiprocessing.current_process().name} {tagger.device.type}").touch()
    return adam(tagger)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_members_train_on_gpus_and_come_back(tmp_path, reference) -> None:
    for name, options, processes in (
        ("one", {"devices": None}, {"True cpu", "True cuda"}),
        (
            "two",
            {"num_processes": 2, "devices": ["cuda", "cpu"]},
            {"True cpu", "False cuda", "False cpu"},
        ),
    ):
        told = tmp_path / name
        told.mkdir()
        result = train(
            tmp_path / f"{name}-members", optimizer=partial(tells, folder=told), **options
        )
        assert {path.name for path in told.iterdir()} == processes
        for member, expected in zip(
            result.ensemble.members, reference.ensemble.members, strict=True
        ):
            assert member.device.type == "cpu"
            for key, value in member.state_dict().items():
                assert value.isfinite().all()
                assert value.shape == expected.state_dict()[key].shape


def test_a_member_with_two_equal_frozen_tables(tmp_path: Path) -> None:
    """They become one in the ensemble, not before: the member's checkpoint was refused as another run's."""

    def build_twice(seed: int) -> pe.SequenceTagger:
        words = [pe.SourceEmbedding(ToyVectors(5), toy_lexicon()) for _ in range(2)]
        return pe.SequenceTagger(pe.MetaEmbedding.linear(words, embedding_dim=4), TAGS)

    for vote in ("hard", "entity"):
        assert (
            len(train(tmp_path / vote, build=build_twice, vote=vote, num_train_epochs=1).results)
            == 2
        )
