#!/usr/bin/env bash
# Starts the example on every host of a hosts file, or on this host: see ../start_on_hosts.sh.
exec bash "$(dirname "${BASH_SOURCE[0]}")/../start_on_hosts.sh" pipeline_parallel_training/training.py \
  configs/5loudboxes/rank_bindings.yaml configs/training/nanogpt_pp.yaml "$@"
