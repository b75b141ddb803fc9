"""Train a small GPT on the kit's own stories, and let it tell one.

    python examples/nano_gpt.py                          300 steps on four chips, a minute or two
    python examples/nano_gpt.py --steps 50 --prompt "The fox "
    python examples/nano_gpt.py --config configs/training/nanogpt.yaml  the full size, for hardware

Ctrl-C stops after the step at hand, with a checkpoint; the same command resumes from there.
"""

import argparse
from pathlib import Path

from ttkit.train import Trainer

CONFIG = Path(__file__).resolve().parents[1] / "configs" / "training" / "nanogpt_stories.yaml"


def main(config=CONFIG, steps=None, prompt="The owl "):
    """Train, up to the configuration's max_steps unless `steps` says how many more; the records,
    and what the model says.
    """
    with Trainer(config) as trainer:
        records = trainer.fit(steps)
        said = trainer.sample(prompt)
    print(said)
    return records, said


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default=CONFIG)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--prompt", default="The owl ")
    asked = parser.parse_args()
    main(asked.config, asked.steps, asked.prompt)
