"""The highest memory of a chip while operations run on the simulator."""

from ttkit.sim.memory import bytes_in_use
from ttkit.sim.operation import watchers


class Peak:
    """Watches, inside `with`, what the fullest chip holds after each operation: `most` bytes.

    An operation's operands are alive when it returns, so nothing higher is missed.
    """

    def __init__(self):
        self.most = 0

    def before(self, name, args, kwargs):
        pass

    def after(self, name, args, kwargs, result):
        self.most = max(self.most, max(bytes_in_use().values(), default=0))

    def __enter__(self):
        watchers.append(self)
        return self

    def __exit__(self, *error):
        watchers.remove(self)
