"""What the decoders of this folder share: chips in groups, and the comparison with one device."""

import argparse
from dataclasses import dataclass

import numpy as np

import ttkit
from ttkit import ttnn

TILE = 32


@dataclass(frozen=True)
class Size:
    """What the models of this folder have in common; `theta` is the base of rotary positions."""

    width: int = 512
    heads: int = 8
    layers: int = 2
    positions: int = 128
    epsilon: float = 1e-5
    theta: float = 10_000.0

    @property
    def head(self):
        """The width of a head."""
        return self.width // self.heads


def matrix(numbers, rows, columns):
    """Return random weights [in, out] that keep the scale of what goes through them."""
    return numbers.standard_normal((rows, columns), np.float32) / np.float32(rows**0.5)


class Chips:
    """A mesh whose `axis` runs through a group of chips, and what its collectives need."""

    def __init__(self, mesh, axis):
        self.mesh, self.axis = mesh, axis
        self.tp = tuple(mesh.shape)[axis]
        self.groups = mesh.get_num_devices() // self.tp
        self.grid = mesh.compute_with_storage_grid_size()
        corner = ttnn.CoreCoord(self.grid.x - 1, self.grid.y - 1)
        self.cores = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), corner)})
        self.gathering, self.scattering, (self.barrier,) = (
            [ttnn.create_global_semaphore(mesh, self.cores, 0) for _ in range(n)] for n in (2, 3, 1)
        )
        self.kernel = ttnn.WormholeComputeKernelConfig(
            math_fidelity=ttnn.MathFidelity.HiFi4,
            math_approx_mode=False,
            fp32_dest_acc_en=True,
            packer_l1_acc=True,
        )

    def place(self, array, dim=None, group_dim=None, **how):
        """Put an array on the mesh: `dim` is cut over a group, `group_dim` over the groups."""
        placements = [ttnn.PlacementReplicate(), ttnn.PlacementReplicate()]
        for axis, cut in ((self.axis, dim), (1 - self.axis, group_dim)):
            if cut is not None:
                placements[axis] = ttnn.PlacementShard(cut)
        mapper = ttnn.create_mesh_mapper(self.mesh, ttnn.MeshMapperConfig(placements))
        how = {"dtype": ttnn.bfloat16, "layout": ttnn.TILE_LAYOUT, **how}
        return ttkit.from_numpy(array, device=self.mesh, mesh_mapper=mapper, **how)

    def read(self, x, dim, group_dim):
        """Read a tensor that is cut along both axes."""
        dims = [dim, dim]
        dims[1 - self.axis] = group_dim
        composer = ttnn.create_mesh_composer(self.mesh, ttnn.MeshComposerConfig(dims))
        return ttkit.to_numpy(x, mesh_composer=composer)

    def read_one(self, x, group_dim):
        """Read a tensor of which the chips of a group have the same."""
        return self.read(x, 1, group_dim)[:, :1]

    def positions(self, position, users):
        """Return the place of the next token of each user, as the caches take it."""
        numbers = np.full(users, position, np.int32)
        return self.place(numbers, dtype=ttnn.int32, layout=ttnn.ROW_MAJOR_LAYOUT)

    def gather(self, x):
        """Return the whole width, of which each chip of a group has a slice."""
        if self.tp == 1:
            return x
        return ttnn.experimental.all_gather_async(
            x,
            persistent_output_buffer=None,
            dim=3,
            multi_device_global_semaphore=self.gathering,
            cluster_axis=self.axis,
            num_links=1,
            topology=ttnn.Topology.Linear,
            barrier_semaphore=self.barrier,
        )

    def scatter(self, x):
        """Add a group's partial sums; each chip keeps a slice of the width."""
        if self.tp == 1:
            return x
        return ttnn.experimental.reduce_scatter_minimal_async(
            x,
            persistent_output_buffers=None,
            dim=3,
            multi_device_global_semaphore=self.scattering,
            cluster_axis=self.axis,
            num_links=1,
            topology=ttnn.Topology.Linear,
            barrier_semaphore=self.barrier,
        )

    def add_up(self, x):
        """Add a group's partial sums; each chip has the whole width."""
        if self.tp == 1:
            return x
        return ttnn.all_reduce(
            x, cluster_axis=self.axis, num_links=1, topology=ttnn.Topology.Linear
        )

    def linear(self, x, weight):
        """Multiply by a weight on all cores, each with a block of rows and of columns."""
        rows, columns = -(-x.shape[-2] // TILE), weight.shape[-1] // TILE
        program = ttnn.MatmulMultiCoreReuseMultiCastProgramConfig(
            compute_with_storage_grid_size=(self.grid.x, self.grid.y),
            in0_block_w=1,
            out_subblock_h=1,
            out_subblock_w=1,
            per_core_M=-(-rows // self.grid.y),
            per_core_N=-(-columns // self.grid.x),
            transpose_mcast=False,
            fused_activation=None,
            fuse_batch=True,
        )
        return ttnn.linear(x, weight, program_config=program, compute_kernel_config=self.kernel)

    def attend_to_caches(self, q, keys, values, positions):
        """Attend from one token of every user to what the caches hold up to its position."""
        program = ttnn.SDPAProgramConfig(
            compute_with_storage_grid_size=self.grid, q_chunk_size=0, k_chunk_size=TILE
        )
        return ttnn.transformer.scaled_dot_product_attention_decode(
            q,
            keys,
            values,
            cur_pos_tensor=positions,
            program_config=program,
            memory_config=ttnn.DRAM_MEMORY_CONFIG,
        )

    def heads_in_l1(self, users, width):
        """Return a memory configuration that gives each user's heads, one tile high, a core."""
        return ttnn.create_sharded_memory_config(
            (TILE, width),
            ttnn.num_cores_to_corerangeset(users, self.grid, True),
            ttnn.ShardStrategy.HEIGHT,
            ttnn.ShardOrientation.ROW_MAJOR,
            use_height_and_width_as_shard_shape=True,
        )


# ---------------------------------------------------------------- arithmetic on one device
def angles(size):
    """Cosines and sines [positions, head] for heads whose neighbouring columns are turned."""
    rates = size.theta ** (-np.arange(0, size.head, 2) / size.head)
    turned = np.outer(np.arange(size.positions), rates).repeat(2, axis=1)
    return np.cos(turned).astype(np.float32), np.sin(turned).astype(np.float32)


def causal(q, k, v):
    """Attention [users, heads, tokens, head] in NumPy; query heads may share a head of k and v."""
    tokens, shared = q.shape[2], q.shape[1] // k.shape[1]
    hidden = np.triu(np.full((tokens, tokens), -np.inf, np.float32), 1)
    k, v = k.repeat(shared, axis=1), v.repeat(shared, axis=1)
    scores = q @ k.swapaxes(-1, -2) / np.float32(q.shape[-1] ** 0.5) + hidden
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    return scores / scores.sum(-1, keepdims=True) @ v


def agreement(model, size, shape, users=2, prompt=32, new=4, axis=1, dtype=ttnn.bfloat16, seed=0):
    """Run prompts and new tokens on a mesh; return the correlation of both with one device.

    Args:
        model: a module with `random_weights`, `reference` and `Decoder`.
        shape: rows and columns of the mesh.
        users: sequences of each group.
        prompt, new: tokens to prefill, and to decode after them.
        axis: the mesh axis of a group.
        dtype: of weights and caches.
    """
    weights = model.random_weights(size, seed)
    if max(shape) > 1:  # one chip alone needs no fabric
        ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    with ttnn.create_mesh_device(ttnn.MeshShape(*shape)) as mesh:
        decoder = model.Decoder(mesh, weights, size, users, axis, dtype)
        x = np.random.default_rng(seed + 1).standard_normal(
            (decoder.chips.groups, users, prompt + new, size.width), np.float32
        )
        found = np.empty_like(x)
        for user in range(users):
            found[:, user, :prompt] = decoder.prefill(x[:, user, :prompt], user)
        for position in range(prompt, prompt + new):
            found[:, :, position] = decoder.decode(x[:, :, position], position)
    wanted = model.reference(x.reshape(-1, prompt + new, size.width), weights, size)
    wanted = wanted.reshape(x.shape)
    return tuple(
        float(np.corrcoef(found[:, :, part].ravel(), wanted[:, :, part].ravel())[0, 1])
        for part in (slice(0, prompt), slice(prompt, None))
    )


def report(model, sizes):
    """Compare a mesh with one device, as the command line asks.

    Args:
        sizes: by name; the first is the default.
    """
    parser = argparse.ArgumentParser(
        description=model.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mesh", default="2x4", help="rows x columns")
    parser.add_argument("--axis", type=int, default=1, help="the mesh axis of a group of chips")
    parser.add_argument("--users", type=int, default=2, help="sequences of each group")
    parser.add_argument("--new", type=int, default=8, help="tokens to decode")
    parser.add_argument("--dtype", default="bfloat16", help="of weights and caches")
    parser.add_argument("--size", choices=sizes, default=next(iter(sizes)))
    asked = parser.parse_args()
    shape = [int(n) for n in asked.mesh.split("x")]
    found = agreement(
        model,
        sizes[asked.size],
        shape,
        asked.users,
        new=asked.new,
        axis=asked.axis,
        dtype=getattr(ttnn, asked.dtype),
    )
    print(f"{asked.mesh} mesh, {asked.dtype}; correlation with one device in float32:")
    for what, value in zip(("prompt of 32 tokens", f"{asked.new} decoded tokens"), found):
        print(f"  {what:20} {value:.5f}")
