"""nano_gpt learns the built-in corpus as the same model in torch does, on every mesh: the same
first weights, batches and optimizer.

`python -m pytest tests/train/test_learns.py -m long -s` prints the losses of the long run.
"""

import numpy as np
import pytest
from train.tiny import DEVICES, tiny

from ttkit.train import Trainer
from ttkit.train.config.settings import DeviceConfig
from ttkit.train.run.trainer import VALIDATION_BATCHES

pytest.importorskip("torch", reason="torch is not installed (make .venv/with-torch)")
import torch
import torch.nn.functional as F
from train import oracle

SHORT = {"batch_size": 8, "max_steps": 16, "learning_rate": 1e-2, "eval_every": 8}
SHORT["model"] = {"num_blocks": 1, "embedding_dim": 32, "max_sequence_length": 32}
# ttml's default shape, but with heads for four chips; some minutes for each form on two cores
LONG = {"batch_size": 8, "max_steps": 300, "learning_rate": 3e-4, "eval_every": 150}
LONG["model"] = {"num_blocks": 6, "embedding_dim": 384, "max_sequence_length": 128, "num_heads": 8}
for options in (SHORT, LONG):
    options["model"]["intermediate_dim"] = None
FORMS = {"one": DEVICES["one"], "DP2xTP4": DeviceConfig((2, 4), enable_ddp=True, enable_tp=True)}


def ours(form, **options):
    """The losses of all steps, and the last validation loss, of a run on the built-in corpus."""
    with Trainer(tiny(FORMS[form], tokenizer_type="char", **options)) as run:
        records = run.fit(show=False)
    return np.array([record.loss for record in records]), records[-1].validation_loss


def of_torch(**options):
    """The same in torch, in float32."""
    with Trainer(tiny("one", tokenizer_type="char", **options)) as run:
        first = {
            name: torch.tensor(parameter.gather()).requires_grad_()
            for name, parameter in run.parameters.items()
        }
        config, training = run.model_config, run.settings.training_config
        batches, held_out, steps = run.batches, run.validation, run.max_steps
    optimizer = torch.optim.AdamW(
        first.values(),
        training.learning_rate,
        (training.beta1, training.beta2),
        training.eps,
        weight_decay=training.weight_decay,
    )

    def loss_of(x, y):
        logits = oracle.gpt(
            config,
            {name: value[0, 0] for name, value in first.items()},
            torch.tensor(x[:, 0, 0].astype(np.int64)),
        )
        return F.cross_entropy(logits.flatten(0, 1), torch.tensor(y.astype(np.int64)).flatten())

    losses = []
    for step in range(steps):
        loss = loss_of(*batches.batch(step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        count = min(len(held_out), VALIDATION_BATCHES)
        validated = [loss_of(*held_out.batch(i)).item() for i in range(count)]
        return np.array(losses), np.mean(validated)


@pytest.mark.parametrize(
    "options, within, fallen",
    [(SHORT, 1e-4, 0.75), pytest.param(LONG, 1e-2, 0.4, marks=pytest.mark.long)],
    ids=["short", "long"],
)
def test_it_learns_what_torch_learns_on_every_mesh(options, within, fallen):
    curve, held_out = of_torch(**options)
    assert curve[-5:].mean() < fallen * curve[0]
    for form in FORMS:
        losses, validation = ours(form, **options)
        far = float(np.abs(losses / curve - 1).max())
        print(
            f"{form}: validation {validation:.5f}, torch's {held_out:.5f}, at most {far:.1e} apart"
        )
        assert abs(validation / held_out - 1) < within and far < within
