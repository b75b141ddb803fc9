"""Hierarchical training: each rank finds out what it is, and does that.

ttkit run -n 4 python -m mpi4py examples/hierarchical_parallel/training.py -c
configs/training/nanogpt_3tier.yaml"""

import argparse
import signal
import sys

import trainer

from ttkit.train import AutoContext, announce_role
from ttkit.train.config.files import read_settings
from ttkit.train.context import open_layout
from ttkit.train.run.hierarchy import ROLES


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-c", "--config", default="configs/training/nanogpt_3tier.yaml")
    parser.add_argument("--worker-type", choices=ROLES, help="this role, whatever the rank")
    asked = parser.parse_args()
    settings = read_settings(asked.config)
    context = AutoContext.get_instance()
    context.initialize_distributed_context(*sys.argv)
    ranks = context.get_distributed_context()
    role = announce_role(ranks.rank(), ranks.size(), settings.multihost_config.num_workers)
    context.set_seed(settings.training_config.seed + ranks.rank())
    if "optimizer" not in role:  # that rank ends all at Ctrl-C, after the step at hand
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    open_layout(settings)
    getattr(trainer, asked.worker_type or role)(settings)
    context.close_device()


if __name__ == "__main__":
    main()
