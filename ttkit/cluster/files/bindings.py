"""rank_bindings.yaml: which rank runs on which mesh, and with which environment.

The models are those of tt-run 0.81.1, so pydantic refuses what tt-run refuses, in the same words.
ttkit adds file, line, column and what to do. Three generations of these files are in use, and this
module reads all of them: G1 has `rank` and `mesh_id` only, G2 adds `mesh_host_rank` and
`env_overrides`, and `tt-run -m` writes G3. The linter (ttkit.cluster.files.lint) reports mistakes
that tt-run accepts.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    StrictStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

from ttkit.errors import TTKitError, fail
from ttkit.files import AnyPath, Document, Finding, fail_with, find_file, read_yaml
from ttkit.words import counted

SHOWN = 60  # A message shows at most this many characters of a value.
# A message shows this example if a key is missing or a value has a wrong form.
EXAMPLE = "rank_bindings: [{rank: 0, mesh_id: 0}]\nmesh_graph_desc_path: PATH.textproto"


def _file(what: str) -> AfterValidator:
    """Return a validator that finds the file that a value names."""

    def found(path: Path, info: ValidationInfo) -> Path:
        try:
            document: Document = info.context["document"]  # type: ignore[index]
            return find_file(path, what, document.path.parent)
        except TTKitError as error:
            details = {"rule": error.rule, "cure": error.cure}
            raise PydanticCustomError("file", "{rule}", details) from None

    return AfterValidator(found)


Environment = dict[StrictStr, StrictStr]
Descriptor = Annotated[Path, _file("Mesh graph descriptor")]
OwnDescriptor = Annotated[Path, _file("Per-rank mesh graph descriptor")]


class RankBinding(BaseModel, frozen=True, extra="allow"):
    """One rank: an MPI process, the mesh it belongs to and its place among that mesh's hosts."""

    # extra="allow" accepts unknown keys, as tt-run does. The linter reports them.
    rank: int = Field(ge=0)
    mesh_id: int = Field(ge=0)
    mesh_host_rank: int | None = Field(default=None, ge=0)
    env_overrides: Environment = Field(default_factory=dict)
    # If the path of a rank is empty, tt-run treats it as missing.
    mesh_graph_desc_path: Annotated[
        OwnDescriptor | None, BeforeValidator(lambda path: path or None)
    ] = None
    subcontext_id: int | None = Field(default=None, ge=0)
    subcontext_size: int | None = Field(default=None, ge=1)


class TTRunConfig(BaseModel, frozen=True, extra="allow"):
    """All ranks of a launch, in rank order, and what they share."""

    rank_bindings: list[RankBinding] = Field(min_length=1)
    mesh_graph_desc_path: Descriptor
    global_env: Environment = Field(default_factory=dict)
    factory_system_descriptor_path: Path | None = None
    mock_cluster_rank_binding: dict[int, Path] = Field(default_factory=dict)

    def descriptor_of(self, binding: RankBinding) -> Path:
        """Return the mesh graph descriptor of a rank; None for plain ranks."""
        return binding.mesh_graph_desc_path or self.mesh_graph_desc_path

    def visible_devices(self, binding: RankBinding) -> str:
        """Return a rank's TT_VISIBLE_DEVICES; "" if neither its binding nor global_env sets it."""
        return (self.global_env | binding.env_overrides).get("TT_VISIBLE_DEVICES", "")

    @field_validator("rank_bindings")
    @classmethod
    def _numbered(cls, bindings: list[RankBinding], info: ValidationInfo) -> list[RankBinding]:
        """Check that the ranks are 0, 1, ... each once, and put them in order."""
        ranks = [binding.rank for binding in bindings]
        cure = f"number the ranks 0 to {len(ranks) - 1}, each once"
        for index, rank in enumerate(ranks):
            if (before := ranks.index(rank)) < index:
                document: Document = info.context["document"]  # type: ignore[index]
                places = (document.position("rank_bindings", i, "rank") for i in (before, index))
                lines = " and ".join(f"{line}" for line, _ in places)
                rule = f"Duplicate ranks found in bindings: rank {rank} on lines {lines}"
                details = {"rule": rule, "cure": cure, "where": (index, "rank")}
                raise PydanticCustomError("ranks", "{rule}", details)
        if sorted(ranks) != list(range(len(ranks))):
            rule = f"Ranks must be contiguous from 0. Got: {sorted(ranks)}"
            raise PydanticCustomError("ranks", "{rule}", {"rule": rule, "cure": cure})
        return sorted(bindings, key=lambda binding: binding.rank)


def check_bindings(document: Document) -> tuple[TTRunConfig | None, list[Finding]]:
    """Return the bindings of a file and the errors in it. The bindings are None if
    tt-run would refuse the file."""
    try:
        return TTRunConfig.model_validate(document.value, context={"document": document}), []
    except ValidationError as error:
        return None, [_finding(document, fault) for fault in error.errors(include_url=False)]


def _finding(document: Document, fault) -> Finding:
    """Return a finding for a fault from pydantic, with line, column and what to do."""
    kind = fault["type"]
    context = fault.get("ctx", {})
    value = fault["input"]
    where = tuple(part for part in fault["loc"] if part != "[key]")
    where += context.get("where", ())
    rule = fault["msg"]
    key = str(where[-1] if where else "")
    shown = repr(value)[:SHOWN]
    if "cure" in context:
        cure = context["cure"]
    elif kind == "string_type":
        # YAML reads `on`, `off` and an empty value as True, False and None. Programs
        # expect 1, 0 and "".
        written = "" if value is None else int(value) if isinstance(value, bool) else value
        rule = f"{rule}: {shown} without quotes is not a string"
        cure = f'put quotes around it: {key}: "{written}"'
    else:
        rule = rule if kind == "missing" else f"{rule}: {shown}"
        cure = f"write it as here:\n{EXAMPLE}"
    name = ".".join(map(str, where))
    return document.finding(where, f"{name}: {rule}" if name else rule, cure)


Bindings = TTRunConfig  # The class has tt-run's name because messages show it.


def plain_ranks(number: int, cards: Sequence[str] = ()) -> Bindings:
    """Return `number` ranks of plain MPI without a mesh.

    Args:
        cards: the TT_VISIBLE_DEVICES of each rank; by default no rank sets it.

    Example:
        >>> [binding.rank for binding in plain_ranks(3).rank_bindings]
        [0, 1, 2]
    """
    if number < 1:
        fail(f"start {number} ranks", "there must be at least one", "-n 2")
    ranks = []
    for rank in range(number):
        own = {"TT_VISIBLE_DEVICES": cards[rank]} if cards else {}
        # Ranks from a file must name meshes, but plain ranks have none. So nothing is checked here.
        ranks.append(RankBinding.model_construct(rank=rank, mesh_id=None, env_overrides=own))
    return Bindings.model_construct(rank_bindings=ranks, mesh_graph_desc_path=None)


def read_bindings(path: AnyPath) -> Bindings:
    """Read the ranks that a rank_bindings.yaml describes.

    Args:
        path: the file; a relative path starts at $TT_METAL_HOME or else at the current folder, as
            in tt-run.

    Raises:
        TTKitError: tt-run would refuse the file; the message lists all errors, each with file, line
            and column.

    Example:
        >>> ranks = read_bindings("configs/t3000_2ranks/rank_bindings.yaml").rank_bindings
        >>> [(b.rank, b.mesh_id, b.mesh_host_rank, b.env_overrides) for b in ranks]
        [(0, 0, 0, {'TT_VISIBLE_DEVICES': '0,1'}), (1, 0, 1, {'TT_VISIBLE_DEVICES': '2,3'})]
    """
    asked = "Configuration error"
    found = find_file(path, "Configuration file", asked=asked)
    bindings, findings = check_bindings(read_yaml(found, "Configuration file"))
    if bindings is None:
        number = counted(len(findings), "validation error")
        fail_with(asked, f"Invalid configuration: {number} for TTRunConfig", findings)
    return bindings
