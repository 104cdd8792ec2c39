"""Starts test jobs of several processes under a launcher."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LOSSES = Path(__file__).with_name("distributed_losses.py")
RUN = Path(__file__).with_name("distributed_run.py")
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # containers of CI
LAUNCHED = ("OMPI_", "PMI", "PMIX", "SLURM_", "MLX_")


def launcher(name: str) -> str | None:
    """A program in the scripts folder of this Python, or on the path."""
    return shutil.which(name, path=os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")]))


class Job:
    """A running job. `end` waits for it."""

    def __init__(
        self, launch: list[str], corpus: Path, output: Path, *options: str, script: Path = LOSSES, **environment: str
    ):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHED)}
        self.output = output
        self.process = subprocess.Popen(
            [*launch, sys.executable, str(script), str(corpus), str(output), *options],
            env={**kept, **AS_ROOT, **environment, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip

    def end(self, timeout: float = 120) -> tuple[int, str]:
        """Exit status and output."""
        try:
            printed, _ = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            raise
        return self.process.returncode, printed

    def result(self) -> dict[str, Any]:
        status, printed = self.end()
        assert status == 0, printed
        return json.loads(self.output.read_text())
