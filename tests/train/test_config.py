"""Training configurations: defaults, references to other files, unknown keys with the nearest
known one.
"""

import pathlib
from dataclasses import replace

import pytest
import yaml
from train.runs import refused

from ttkit import TTKitError
from ttkit.cluster import lint_path
from ttkit.train import read_settings
from ttkit.train.config.layout import Layout
from ttkit.train.config.settings import (
    GUIDES_CURE,
    GUIDES_RULE,
    DeviceConfig,
    RopeScaling,
    TrainingConfig,
)


@pytest.fixture
def put(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(text, name="train.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return call


def test_the_guides_example(put):
    """The training configuration of the distributed training guide, with the model that it
    names.
    """
    put(
        "transformer_config:\n  model_type: llama\n  num_heads: 32\n  num_groups: "
        "8\n  num_blocks: 32\n"
        "  rope_scaling: {scaling_factor: 8, original_context_length: 8192}\n",
        "configs/model_configs/llama8b.yaml",
    )
    text = 'training_config:\n  project_name: "tt_train_llama8b_tp_dp"\n  batch_size: 4\n'
    text += '  model_config: "configs/model_configs/llama8b.yaml"\ndevice_config:\n'
    text += "  enable_tp: true\n  enable_ddp: true\n  mesh_shape: [4, 8]\n  device_ids: []\n"
    settings = read_settings(put(text, "configs/training_configs/tp_ddp.yaml"))
    assert settings.device_config == DeviceConfig((4, 8), (), True, True)
    layout = Layout.of(settings)
    assert (layout.axes, layout.tp, layout.dp) == ((("dp", 0), ("tp", 1)), 8, 4)
    assert settings.transformer_config.num_blocks == 32
    assert settings.transformer_config.rope_scaling == RopeScaling(8.0, 4.0, 1.0, 8192)


def test_multihost_in_a_file_of_its_own(put):
    text = "multihost_config: {enabled: true, num_workers: 4, socket_type: fabric, "
    text += "pipeline_parallel_config: {num_blocks: 6, blocks_per_rank: {0: 2, 1: 4}}}\n"
    put(text, "multihost_configs/pp.yaml")
    main = "training_config: {learning_rate: 3e-4}\ndevice_config: {enable_pp: true}\n"
    settings = read_settings(put(main + "multihost_config: multihost_configs/pp.yaml\n"))
    assert settings.multihost_config.num_workers == 4
    assert settings.multihost_config.pipeline_parallel_config.blocks_per_rank == {0: 2, 1: 4}
    assert settings.training_config == TrainingConfig()
    (finding,) = lint_path(put("training_config: {}\nmultihost_config: nowhere.yaml\n"))
    assert finding.line == 2 and "multihost_config file not found: nowhere.yaml" in finding.message


def test_an_unknown_section_hides_no_other_fault(put):
    path = put("training_confg: {}\ndevice_config: {enable_tp: true, mesh_shape: [1, 4]}")
    assert [found.line for found in lint_path(path)] == [1, 2]


STAGES = "device_config: {enable_pp: true, mesh_shape: [1, 8], enable_tp: true}\n"
STAGES += "transformer_config: {num_heads: 8}\nmultihost_config: {enabled: true, num_workers: 2, "
STAGES += "pipeline_parallel_config: {num_blocks: 6, blocks_per_rank: %s}}\n"
WRONG = {
    "training_config: {lerning_rate: 1}": "1: error: training_config.lerning_rate: unknown key 'lerning_rate': "
    "ttml ignores it; did you mean 'learning_rate'?",
    "device_config:\n  mesh_shap: [1, 8]": "2: error: device_config.mesh_shap: unknown key 'mesh_shap': ttml ignores it; "
    "did you mean 'mesh_shape'?",
    "devise_config: {}\ntraining_config: {}": "1: warning: unknown section 'devise_config'; did you mean 'device_config'?",
    "device_config: {mesh_shape: 8}": "1: error: device_config.mesh_shape: got 8: input should be a valid tuple; "
    "the default is [1, 1]",
    "device_config: {mesh_shape: [0, 8]}": "1: error: device_config.mesh_shape.0: got 0: input "
    "should be greater than or equal to 1; the default is [1, 1]",
    "device_config: {enable_tp: 1}": "1: error: device_config.enable_tp: got 1: input should be a valid boolean; "
    "the default is false",
    "training_config: {batch_size: many}": "1: error: training_config.batch_size: got 'many': "
    "input should be a valid integer; the default is 64",
    "training_config: {tokenizer_type: word}": "1: error: training_config.tokenizer_type: Unknown tokenizer_type: word; "
    "one of 'bpe', 'char' or 'byte'",
    "multihost_config: {socket_type: tcp}": "1: error: multihost_config.socket_type: Unknown socket_type: tcp; "
    "one of 'mpi' or 'fabric'",
    "training_config: {batch_size: 64}\ndevice_config: {mesh_shape: [3, 2], enable_ddp: true, "
    "enable_tp: true}": "2: error: dp 3 x micro_batches 1 do not divide batch 64; "
    "another size: ttkit.plan_layouts lists those that run",
    "device_config: {mesh_shape: [1, 4], enable_tp: true}": "1: error: "
    "tp 4 does not divide num_heads 6; another size: ttkit.plan_layouts lists those that run",
    "device_config: {mesh_shape: [1, 8], enable_ddp: true, enable_tp: true}": "1: error: "
    "For line mesh topology (shape MeshShape([1, 8])), exactly one parallelism type must be "
    "enabled. Got: ddp=true, tp=true, cp=false "
    f"({GUIDES_RULE}); {GUIDES_CURE}",
    "device_config: {mesh_shape: [2, 4], enable_ddp: true, enable_cp: true}": "1: error: "
    "max_sequence_length 128 is not divisible by 8 chunks of whole tiles of 32: 256: "
    "128 % 256 = 128; max_sequence_length 256",
    "transformer_config: {num_experts: 6, experts_per_token: 2, capacity_factor: 1.5}\n"
    "device_config: {enable_ddp: true, mesh_shape: [1, 4]}\nlayout: {expert_parallel: true}": "2: "
    "error: ep 4 does not divide 6 experts; another size: ttkit.plan_layouts lists those that run",
    "device_config: {mesh_shape: [1, 4], enable_cp: true}\n"
    "multihost_config: {enabled: true}": "1: error: a worker sends a replica's gradient; "
    "chips that share a sequence have parts of it; enable_ddp or enable_tp",
    STAGES
    % "{0: 2, 1: 2, 2: 2}": "1: error: num_workers 2 is not divisible by the number of stages "
    "3: 2 % 3 = 2; num_workers 3",
    STAGES.replace("enable_pp: true, ", "") % "{0: 3, 1: 3}": "3: error: "
    "pipeline_parallel_config asks for stages, but enable_pp is off; enable_pp: true",
    STAGES % "{0: 2, 1: 3}": "1: error: 2 stages of 1 chunk need at least one block in each part, "
    "6 in all; the parts have [2, 3]; fewer stages or chunks, or one line 'RANK: BLOCKS' for each stage",
}


@pytest.mark.parametrize("text, output", WRONG.items(), ids=range(len(WRONG)))
def test_what_is_wrong_is_reported(put, text, output):
    path = put(text)
    found = lint_path(path)
    assert [f"{f.line}: {f.severity}: {f.message}; {f.cure}" for f in found] == [output]
    if ": error: " in output:
        with pytest.raises(TTKitError, match=r"train\.yaml:\d+:\d+: "):
            read_settings(path)
    else:
        with pytest.warns(UserWarning, match="unknown section"):
            read_settings(path)


def test_a_fault_has_its_column_and_all_faults_are_reported(put):
    last = "training_config: {batch_size: 4, optimizer: {type: SGD, momentun: 0.9, lr: -1}}"
    path = put(f"device_config:\n    mesh_shape: [2, 0]\n{last}\n")
    with pytest.raises(TTKitError) as error:
        read_settings(path)
    lines = str(error.value).splitlines()
    assert lines[0] == f"read {path}: 3 errors"
    assert [line.removeprefix(str(path)).partition(": got")[0] for line in lines[1::2]] == [
        ":2:21: device_config.mesh_shape.1",
        f":3:{last.index('lr:') + 1}: training_config.optimizer.lr",
        f":3:{last.index('momentun') + 1}: training_config.optimizer.momentun: "
        "unknown key 'momentun': ttml ignores it",
    ]
    assert lines[-1] == "  try: did you mean 'momentum'?"


def test_values_given_in_python_are_checked_alike():
    rule = "DeviceConfig(mesh_shape.1): got 0: "
    refused(lambda: DeviceConfig((1, 0)), rule, "the default is [1, 1]")
    refused(lambda: TrainingConfig(lerning_rate=1), "did you mean 'learning_rate'")
    rule = "TrainingConfig(beta1): got 1: input should be less than 1\n  try: the default is 0.9"
    refused(lambda: replace(TrainingConfig(), beta1=1), rule)


def test_a_pipeline_takes_no_axis_of_the_mesh(put):
    settings = read_settings(put(STAGES % "{0: 3, 1: 3}"))
    assert Layout.of(settings).axes == (("tp", 1),)


@pytest.mark.parametrize(
    "name, text", [("hosts.json", '[{"ssh": "a"}]'), ("hostfile", "a slots=1\n")]
)
def test_distributed_over_hosts_without_meshes(put, name, text):
    put(text, name)
    settings = read_settings(put(f"distributed: {{enabled: true, hosts: {name}}}\n"))
    assert settings.distributed.enabled and settings.distributed.hosts == name
    text = "training_config: {}\ndistributed:\n  enabled: true\n  hosts: nowhere.json\n"
    (finding,) = lint_path(put(text))
    assert finding.line == 4 and "Hosts file not found: nowhere.json" in finding.message
    read_settings(put("distributed: {enabled: false, hosts: nowhere.json}\n"))


CONFIGS = sorted(pathlib.Path(__file__).parents[2].glob("configs/training/*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_ours_are_sound(path):
    assert lint_path(path) == []


def test_the_guides_flagship_has_exactly_its_keys():
    (path,) = [path for path in CONFIGS if path.name == "training_llama8b_tp_ddp_galaxy.yaml"]
    written = yaml.safe_load(path.read_text())
    assert {section: set(keys) for section, keys in written.items()} == {
        "training_config": {"project_name", "batch_size", "model_config"},
        "device_config": {"enable_tp", "enable_ddp", "mesh_shape"},
    }
    settings = read_settings(path)
    assert settings.training_config.project_name == "tt_train_llama8b_tp_dp"
    assert settings.training_config.batch_size == 4
    assert settings.device_config == DeviceConfig((4, 8), None, True, True)
    assert settings.transformer_config.embedding_dim == 4096
    assert settings.transformer_config.rope_scaling.scaling_factor == 8
