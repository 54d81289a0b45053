"""One way to kill a training: a process of its own that ends itself by SIGKILL, without any clean-up."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path


def run_killed(test_file: str, program: str, folder: Path) -> None:
    """Run a program that may import the tests beside `test_file`, with ``folder``, and require that it was killed."""
    places = [str(Path(test_file).parent), str(Path(__file__).parent)]
    start = f"import sys\nfrom pathlib import Path\nsys.path[:0] = {places!r}\nfolder = Path({str(folder)!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", start + program], capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def killer(call: int) -> Callable[..., None]:
    """Return a function that kills its process when it is called for the `call`-th time."""
    count = 0

    def kill(*_: object) -> None:
        nonlocal count
        count += 1
        if count == call:
            os.kill(os.getpid(), signal.SIGKILL)

    return kill
