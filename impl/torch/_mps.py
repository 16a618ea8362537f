# A private MPS daemon, so that kernels of processes that share a GPU run at the same time.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from typing import Iterator

CONTROL = "nvidia-cuda-mps-control"


@contextlib.contextmanager
def private_mps() -> Iterator[bool]:
    """Runs an MPS daemon during the block; processes started in the block use it.

    Yields whether there is a daemon: True also where CUDA_MPS_PIPE_DIRECTORY already names one, False where MPS is not
    installed or does not start. Without MPS the processes take turns on the GPU: slower, with the same results.
    """
    if "CUDA_MPS_PIPE_DIRECTORY" in os.environ:
        yield True
        return
    control = shutil.which(CONTROL)
    if control is None:
        yield False
        return
    with tempfile.TemporaryDirectory(prefix="samesum-mps-") as folder:
        variables = {f"CUDA_MPS_{name}_DIRECTORY": os.path.join(folder, name.lower()) for name in ("PIPE", "LOG")}
        for path in variables.values():
            os.mkdir(path)
        environment = {**os.environ, **variables}
        quiet = {"check": False, "env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        if subprocess.run([control, "-d"], **quiet).returncode != 0:
            yield False
            return
        try:
            os.environ.update(variables)
            yield True
        finally:
            subprocess.run([control], input=b"quit -t 2\n", **quiet)
            for name in variables:
                os.environ.pop(name, None)
