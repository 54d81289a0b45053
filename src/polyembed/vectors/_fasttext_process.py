"""The fasttext package in its own process, since it ends the process on an error."""

import subprocess
import sys
from pathlib import Path

from polyembed._checks import must

TRAINING = """
import json, sys
from fasttext.FastText import fasttext, model_name
arguments, settings = fasttext.args(), json.loads(sys.argv[1])
settings["model"] = getattr(model_name, settings["model"])
for name, value in settings.items():
    setattr(arguments, name, value)
model = fasttext.fasttext()
fasttext.train(model, arguments)
model.saveModel(arguments.output)
"""
"""By the compiled module, since the package's own train_unsupervised refuses a seed."""

LABELS = """
import json, sys
from fasttext.FastText import fasttext
path, k = json.loads(sys.argv[1])
model = fasttext.fasttext()
model.loadModel(path)
json.dump([model.predict(text + "\\n", k, 0.0, "strict") for text in json.load(sys.stdin)], sys.stdout)
"""
"""By the compiled module, since the package's own predict fails under numpy 2."""


def run_fasttext(
    program: str, arguments: str, *, given: str = "", folder: Path | None = None
) -> str:
    """Run a program that uses the fasttext package, and return what it prints.

    Args:
        program: Its text.
        arguments: Its only argument.
        given: Its standard input.
        folder: Its working folder.

    Returns:
        Its standard output.

    Raises:
        RuntimeError: It failed.
    """
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, arguments],
        cwd=folder,
        input=given,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        said = done.stderr.strip().rpartition("\n")[2]
        raise RuntimeError(
            must("the fasttext package", "finish its work", f"{done.returncode} ({said})")
        )
    return done.stdout
