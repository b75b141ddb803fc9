"""The command `ttkit train`."""

from argparse import ArgumentParser
from collections.abc import Sequence

from ttkit.train.config.files import read_settings
from ttkit.words import add_options

OPTIONS = (
    ("--plan", "", "print axes, memory, bytes and modelled times; open and train nothing"),
    (
        "--system",
        "NAME",
        "with --plan, the machine to plan for, such as galaxy (default: the one in use)",
    ),
    (
        "--step",
        "N",
        "continue from the checkpoint of step N (default: the newest); set later ones aside",
    ),
)


def train(parser: ArgumentParser, words: Sequence[str]) -> int:
    """Train a model by a configuration file; with `--plan`, print the memory and time it needs."""
    text = "a training configuration, such as configs/training/nanogpt.yaml"
    parser.add_argument("--config", required=True, metavar="FILE", help=text)
    add_options(parser, OPTIONS)
    asked = parser.parse_args(words)
    settings = read_settings(asked.config)
    if asked.system and not asked.plan:
        parser.error("--system is for --plan; set TTKIT_SYSTEM to train on another machine")
    if asked.plan:
        from ttkit.train.plan import training_plan

        print(training_plan(settings, asked.system))
        return 0
    from ttkit.train import PipelineTrainer, Trainer

    kind = PipelineTrainer if settings.device_config.enable_pp else Trainer
    with kind(settings, step=asked.step) as trainer:
        trainer.fit()
    return 0
