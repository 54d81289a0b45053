"""Data-parallel training in two processes over gloo, against one process over joined batches."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from test_metaxl_trainer import Setting
from toys import TAGS, ToyVectors, toy_corpus, toy_lexicon, toy_table

import polyembed as pe

CORPUS = toy_corpus(4)
STEPS, HALF = 3, 2
FOLDERS = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]


def build_tagger() -> pe.SequenceTagger:
    """Return a tagger in float64 without dropout.

    It has a trained table in two places, a frozen table, and a CRF.
    """
    torch.manual_seed(0)
    shared = toy_table(5)
    tables = [shared, pe.SourceEmbedding(ToyVectors(3), toy_lexicon()), pe.UniqueWords(shared)]
    encoder = pe.LSTMSequenceEncoder(13, hidden_size=7, dropout=0.0)
    return pe.SequenceTagger(pe.MetaEmbedding.concat(tables), TAGS, encoder=encoder).double()


def make_optimizer(tagger: torch.nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD([p for p in tagger.parameters() if p.requires_grad], lr=0.1)


def reference(size: int = 2 * HALF) -> dict[str, torch.Tensor]:
    """Train in one process with batches of twice the size, and return the weights."""
    tagger = build_tagger()
    optimizer = make_optimizer(tagger)
    for step in range(STEPS):
        optimizer.zero_grad()
        tagger(**tagger.collate(CORPUS[step * size : (step + 1) * size])).backward()
        optimizer.step()
    return tagger.state_dict()


METAXL = ("metaxl", "joint_rtn")


def metaxl(objective: str, rank: int | None = None, folder: str | None = None) -> Setting:
    """Train in one process (rank None), or in one of two processes with half the rows each."""
    setting = Setting(
        objective=objective,
        batch_size=4 if rank is None else 2,
        gradient_accumulation_steps=2,
        backoff_epochs=1,
    )
    if rank:
        torch.nn.init.normal_(setting.model.head.weight)  # replaced by the first process's weights
    # the scores of the first process count
    scores = iter([0.9, 0.1, 0.3] if rank else [0.1, 0.9, 0.3])
    setting.train(evaluate=lambda _: next(scores), checkpoint=folder)
    setting.losses = [step.loss for step in setting.steps]
    return setting


PROGRAM = """
import os, sys
sys.path[:0] = {paths!r}
import torch
import torch.distributed as dist
from accelerate import Accelerator
from test_processes import CORPUS, HALF, METAXL, STEPS, build_tagger, make_optimizer, metaxl
import polyembed as pe

rank, folder = int(os.environ["RANK"]), sys.argv[1]
dist.init_process_group("gloo")

tagger = build_tagger()
if rank:
    torch.nn.init.zeros_(tagger.decoder.linear.weight)  # all start from the first one's
model = torch.nn.parallel.DistributedDataParallel(tagger)
optimizer = make_optimizer(tagger)
for step in range(STEPS):
    first = (2 * step + rank) * HALF
    optimizer.zero_grad()
    model(**tagger.collate(CORPUS[first : first + HALF])).backward()
    optimizer.step()
torch.save(tagger.state_dict(), f"{{folder}}/torch-{{rank}}.pt")
try:
    pe.fit(model, CORPUS, CORPUS)
except TypeError as error:
    print(error)

accelerator = Accelerator(cpu=True)
tagger = build_tagger()
loader = torch.utils.data.DataLoader(CORPUS[: 2 * STEPS * HALF], batch_size=HALF, collate_fn=tagger.collate)
model, optimizer, loader = accelerator.prepare(tagger, make_optimizer(tagger), loader)
for batch in loader:
    optimizer.zero_grad()
    accelerator.backward(model(**batch))
    optimizer.step()
accelerator.save_state(folder + "/state")
accelerator.wait_for_everyone()
with torch.no_grad():
    tagger.decoder.linear.weight.zero_()
accelerator.load_state(folder + "/state")
torch.save(tagger.state_dict(), f"{{folder}}/accelerate-{{rank}}.pt")

# a plain model in Accelerate's processes: MetaXLTrainer averages its gradients
for objective in METAXL:
    folder_of_run = f"{{folder}}/run-{{objective}}"
    setting = metaxl(objective, rank, folder_of_run)
    torch.save((setting.state(), setting.losses), f"{{folder}}/{{objective}}-{{rank}}.pt")
    resumed = metaxl(objective, rank, folder_of_run)
    assert not resumed.steps
    assert all(torch.equal(value, setting.state()[name]) for name, value in resumed.state().items())

dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Run all loops under one torchrun, because its start takes most of the time."""
    pytest.importorskip("accelerate")
    folder = tmp_path_factory.mktemp("processes")
    path = folder / "program.py"
    path.write_text(PROGRAM.format(paths=FOLDERS))
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        path,
        folder,
    ]
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


@pytest.mark.parametrize("loop", ["torch", "accelerate"])
def test_two_processes_are_one(loop, launched):
    expected, start, alone = reference(), build_tagger().state_dict(), reference(size=HALF)
    for rank in range(2):
        state = torch.load(launched[0] / f"{loop}-{rank}.pt", weights_only=True)
        for name, value in expected.items():
            torch.testing.assert_close(state[name], value, rtol=1e-9, atol=1e-12)
    moved = {name for name, value in expected.items() if not torch.equal(value, start[name])}
    frozen = {name for name, p in build_tagger().named_parameters() if not p.requires_grad}
    assert moved == set(expected) - frozen
    assert not torch.allclose(alone["decoder.linear.weight"], expected["decoder.linear.weight"])


def test_fit_refuses_a_wrapped_tagger(launched: tuple[Path, str]):
    assert (
        launched[1].count("model must be a tagger or a classifier of this library, not wrapped")
        == 2
    )


@pytest.mark.parametrize("objective", METAXL)
def test_metaxl_in_the_processes_of_accelerate(objective, launched):
    expected = metaxl(objective)
    for rank in range(2):
        state, losses = torch.load(launched[0] / f"{objective}-{rank}.pt")
        assert losses == pytest.approx(expected.losses)
        for name, value in expected.state().items():
            torch.testing.assert_close(state[name], value, rtol=1e-9, atol=1e-12)
