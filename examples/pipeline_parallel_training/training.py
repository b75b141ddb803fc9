"""Pipeline-parallel training: each rank is a stage.

ttkit run -n 5 python -m mpi4py examples/pipeline_parallel_training/training.py -c
configs/training/nanogpt_pp.yaml"""

import argparse

import trainer

from ttkit.train.config.files import read_settings


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-c", "--config", default="configs/training/nanogpt_pp.yaml")
    trainer.stage(read_settings(parser.parse_args().config))


if __name__ == "__main__":
    main()
