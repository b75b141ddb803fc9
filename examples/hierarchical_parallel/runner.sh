#!/usr/bin/env bash
# Brings the code to every host, then starts the example on them. Without a hosts file: all ranks on this host.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
project=$(cd "$here/../.." && pwd)
hostfile='' rank_bindings=configs/5loudboxes/rank_bindings.yaml config=configs/training/nanogpt_3tier.yaml
usage="usage: runner.sh [--hostfile FILE] [--rank-bindings FILE] [--config FILE]   (defaults: this host alone, $rank_bindings and $config of the project)"

while [ $# -gt 0 ]; do
  case "$1" in
    --hostfile) hostfile=$(realpath "${2:?$usage}"); shift 2 ;;
    --rank-bindings) rank_bindings=$(realpath "${2:?$usage}"); shift 2 ;;
    --config) config=$(realpath "${2:?$usage}"); shift 2 ;;
    *) echo "$usage" >&2; exit 1 ;;
  esac
done

cd "$project"
python=$project/.venv/bin/python
[ -x "$python" ] || python=$(command -v "${PYTHON:-python3}")
where=()
if [ -n "$hostfile" ]; then
  "$python" -m ttkit sync --hostfile "$hostfile" --apply
  where=(--hostfile "$hostfile")
fi
"$python" -m ttkit run --rank-binding "$rank_bindings" "${where[@]}" "$python" -m mpi4py examples/hierarchical_parallel/training.py -c "$config"
