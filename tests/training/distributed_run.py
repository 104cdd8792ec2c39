"""A toy run under any launcher: `mpirun -n 2 python tests/training/distributed_run.py CORPUS RUN`."""

import sys
from pathlib import Path

from glassbert.training.trainer import Trainer
from tests.training.toy import make_trainer

if __name__ == "__main__":
    corpus, run = (Path(argument) for argument in sys.argv[1:3])
    trainer = Trainer.resume(run) if run.exists() else make_trainer(corpus, run, threads=1, checkpoint_every=4)
    trainer.train()
