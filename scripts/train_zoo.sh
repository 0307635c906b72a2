#!/usr/bin/env bash
# Makes the bundled weights again, from the list beside it, without the package being installed:
# train_zoo.sh [DATA [OUT [NAME…]]]; DATA is cifar10 (a download), a .npz or a folder of sheets.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
export PYTHONPATH="$root/src${PYTHONPATH:+:$PYTHONPATH}"
exec python3 -m eyechart.training --list "$root/scripts/zoo.toml" --parallel "${PARALLEL:-2}" \
  --data "${1:-cifar10}" --out "${2:-$root/src/eyechart/zoo/weights}" "${@:3}"
