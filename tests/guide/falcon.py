"""A small stand-in for the Falcon MLP: the guide's module, and a torch model of the same names
to compare with.
"""

from ttkit import ttnn

HIDDEN, WIDE = 128, 512


class FalconMLP:
    """Two linear layers with a gelu between; `gather` puts an all-gather before the second."""

    def __init__(self, parameters, gather=None):
        self.up, self.down, self.gather = (
            parameters.dense_h_to_4h.weight,
            parameters.dense_4h_to_h.weight,
            gather,
        )

    def __call__(self, x):
        hidden = ttnn.gelu(ttnn.linear(x, self.up))
        return ttnn.linear(self.gather(hidden) if self.gather else hidden, self.down)


def torch_model(torch):
    """A torch module with the parameter names of Falcon's MLP and weights that give outputs
    around 1.
    """

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.dense_h_to_4h = torch.nn.Linear(HIDDEN, WIDE, bias=False)
            self.dense_4h_to_h = torch.nn.Linear(WIDE, HIDDEN, bias=False)

        def forward(self, x):
            return self.dense_4h_to_h(torch.nn.functional.gelu(self.dense_h_to_4h(x)))

    torch.manual_seed(0)
    return Model().eval()


def inputs(torch, batch, length):
    """Hidden states as the guide draws them: [batch, 1, length, hidden], from -1 to 1."""
    return torch.rand(batch, 1, length, HIDDEN, dtype=torch.float32) * 2 - 1


__all__ = ["HIDDEN", "WIDE", "FalconMLP", "inputs", "torch_model"]
