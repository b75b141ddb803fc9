"""GPT and Llama in plain torch, one device, on the weights of our models by name: what their
losses and gradients must be.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F


def loss_and_gradients(config, weights, tokens, targets):
    """The mean cross-entropy of tokens [B, S] and the gradient of each weight, in float64, so
    that all rounding is the other side's.

    Args:
        config: a TransformerConfig.
        weights: name -> array [1, 1, rows, columns].
    """
    w = {
        name: torch.tensor(array, dtype=torch.float64).requires_grad_()
        for name, array in weights.items()
    }
    model = {"gpt2": gpt, "llama": llama}[config.model_type]
    named = {name: value[0, 0] if value.shape[1] == 1 else value[0] for name, value in w.items()}
    logits = model(config, named, torch.as_tensor(tokens))
    loss = F.cross_entropy(logits.flatten(0, 1), torch.as_tensor(targets).flatten())
    loss = loss + sum(value for name, value in named.items() if name.endswith("balance"))
    loss.backward()
    return loss.item(), {name: value.grad.numpy() for name, value in w.items()}


def linear(w, name, x):
    bias = w.get(f"{name}.bias")
    return F.linear(x, w[f"{name}.weight"], None if bias is None else bias[0])


def attention(config, w, name, x, turn=lambda heads: heads):
    batch, length, width = x.shape

    def heads(part):
        return (
            linear(w, f"{name}.{part}", x)
            .view(batch, length, -1, width // config.num_heads)
            .transpose(1, 2)
        )

    y = F.scaled_dot_product_attention(
        turn(heads("query")), turn(heads("key")), heads("value"), is_causal=True, enable_gqa=True
    )
    return linear(w, f"{name}.out", y.transpose(1, 2).reshape(batch, length, width))


def mlp(config, w, block, x, activation):
    """The dense MLP, or every token through every expert, most of them counting nothing."""
    up, down = (f"{block}.experts.up", f"{block}.experts.down")
    if up not in w:
        y = activation(lambda name: linear(w, f"{block}.{name}", x))
        return linear(w, f"{block}.down", y)
    probs = F.softmax(x @ w[f"{block}.experts.router.weight"].T, -1)
    chosen, placed = routing(config, probs.detach().numpy())
    chosen, placed = torch.tensor(chosen), torch.tensor(placed)
    gates = probs * placed
    if config.experts_per_token > 1:
        gates = gates / (probs * chosen).sum(-1, keepdim=True)
    share = chosen.mean(1) / config.experts_per_token
    balance = (share * probs.mean(1)).sum(-1).mean()
    w[f"{block}.balance"] = config.balance_loss * config.num_experts * balance
    total = 0
    for e in range(config.num_experts):
        y = activation(lambda name, e=e: x @ w[f"{block}.experts.{name}"][e].T)
        total = total + gates[..., e : e + 1] * (y @ w[down][e].T)
    return total


def routing(config, probs):
    """What tokens choose, and what of it has a place: probabilities [B, S, E] -> two arrays of
    ones and zeros.
    """
    chosen, placed = np.zeros((2, *probs.shape))
    length, k = probs.shape[1], config.experts_per_token
    places = math.ceil(config.capacity_factor * (k * length / config.num_experts))
    for sequence, row in enumerate(probs):
        taken = [0] * config.num_experts
        for token, likely in enumerate(row):
            for e in sorted(range(config.num_experts), key=lambda e: (-likely[e], e))[:k]:
                chosen[sequence, token, e] = 1
                placed[sequence, token, e] = taken[e] < places
                taken[e] += 1
    return chosen, placed


def head(w, x):
    return F.linear(x, w.get("vocabulary.head", w["vocabulary.table"]))


def gpt(config, w, tokens):
    def norm(name, x):
        return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"][0], w[f"{name}.bias"][0])

    x = F.embedding(tokens, w["vocabulary.table"]) + w["position"][: tokens.shape[1]]
    for i in range(config.num_blocks):
        block = f"blocks.{i}"
        x = x + attention(config, w, f"{block}.attention", norm(f"{block}.norm1", x))
        y = norm(f"{block}.norm2", x)
        x = x + mlp(config, w, block, y, lambda part: F.gelu(part("up"), approximate="tanh"))
    return head(w, norm("norm", x))


def llama(config, w, tokens):
    def norm(name, x):
        return F.rms_norm(x, x.shape[-1:], w[f"{name}.weight"][0], eps=1e-5)

    turns = torch.polar(
        torch.ones(()).double(),
        torch.outer(torch.arange(tokens.shape[1]).double(), frequencies(config)),
    )

    def turn(heads):  # neighbours are the two parts of a complex number
        pairs = torch.view_as_complex(heads.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * turns.to(pairs.dtype)).flatten(-2)

    x = F.embedding(tokens, w["vocabulary.table"])
    for i in range(config.num_blocks):
        block = f"blocks.{i}"
        x = x + attention(config, w, f"{block}.attention", norm(f"{block}.norm1", x), turn)
        y = norm(f"{block}.norm2", x)
        x = x + mlp(config, w, block, y, lambda part: F.silu(part("gate")) * part("up"))
    return head(w, norm("norm", x))


def frequencies(config):
    """As Llama 3.1 tells them apart, by wavelength: short ones stay, long ones are stretched,
    those between go from one to the other.
    """
    width, scaling = config.embedding_dim // config.num_heads, config.rope_scaling
    found = [1 / config.theta ** (i / width) for i in range(0, width, 2)]
    if scaling and scaling.scaling_factor:
        for i, frequency in enumerate(found):
            # wavelengths in the old context
            fits = scaling.original_context_length / (2 * math.pi / frequency)
            if fits < scaling.low_freq_factor:
                found[i] = frequency / scaling.scaling_factor
            elif fits <= scaling.high_freq_factor:
                smooth = (fits - scaling.low_freq_factor) / (
                    scaling.high_freq_factor - scaling.low_freq_factor
                )
                found[i] = (1 - smooth) * frequency / scaling.scaling_factor + smooth * frequency
    return torch.tensor(found, dtype=torch.float64)
