#!/usr/bin/env bash
# Copies the code to every host, then starts an example on them; without a hosts file: all ranks on this host.
# Called by each example's runner.sh: start_on_hosts.sh PROGRAM RANK_BINDINGS CONFIG [options of runner.sh]
set -euo pipefail

program=$1 rank_bindings=$2 config=$3
shift 3
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
hostfile=''
usage="usage: runner.sh [--hostfile FILE] [--rank-bindings FILE]${config:+ [--config FILE]}   (defaults: this host alone, $rank_bindings${config:+ and $config} of the project)"

while [ $# -gt 0 ]; do
  case "$1" in
    --hostfile) hostfile=$(realpath "${2:?$usage}"); shift 2 ;;
    --rank-bindings) rank_bindings=$(realpath "${2:?$usage}"); shift 2 ;;
    --config) [ -n "$config" ] || { echo "$usage" >&2; exit 1; }; config=$(realpath "${2:?$usage}"); shift 2 ;;
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
elif [ -n "$config" ]; then
  where=(--bare)  # on one host by shared memory: faster, and mpirun knows which rank ended first
fi
"$python" -m ttkit run --rank-binding "$rank_bindings" "${where[@]}" "$python" -m mpi4py "examples/$program" ${config:+-c "$config"}
