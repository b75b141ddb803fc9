"""Train a small Llama on a 2x4 mesh, two groups that share the batch, four chips in each that
share the model; then sample from it.

    python examples/llama.py                              200 steps, a few minutes
    python examples/llama.py --steps 20 --prompts "The fox " "On Monday"

After training the prompts run side by side, one half of them on each group. Temperature 0 always
takes the likeliest next token; above that the text is drawn. Keys and values of earlier tokens are
kept in place, so each token costs one step of one token."""

import argparse
from pathlib import Path

from ttkit.train import Sampler, Trainer, generate

CONFIG = Path(__file__).resolve().parents[1] / "configs" / "training" / "llama_stories.yaml"
PROMPTS = ["The fox ", "On Monday it is "]


def main(config=CONFIG, steps=None, prompts=tuple(PROMPTS), new_tokens=60):
    """Train, up to the configuration's max_steps unless `steps` says how many more; the records,
    and the texts by temperature.
    """
    with Trainer(config) as trainer:
        records = trainer.fit(steps)
        trainer.model.eval()
        sampler = Sampler(trainer.model, batch=len(prompts))
        ids = [trainer.tokenizer.encode(prompt).tolist() for prompt in prompts]
        texts = {}
        for temperature in (0.0, 0.7):
            found = generate(sampler, ids, new_tokens, temperature=temperature, top_k=20)
            texts[temperature] = [trainer.tokenizer.decode(each) for each in found]
            print(f"\ntemperature {temperature}:", *texts[temperature], sep="\n  ")
    return records, texts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default=CONFIG)
    parser.add_argument("--steps", type=int)
    parser.add_argument(
        "--prompts", nargs="+", default=PROMPTS, help="as many as the groups can share evenly"
    )
    asked = parser.parse_args()
    main(asked.config, asked.steps, tuple(asked.prompts))
