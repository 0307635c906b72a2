#!/usr/bin/env bash
# Makes the bundled weights again: train_zoo.sh [DATA [OUT]]; DATA is cifar10 (a download), a .npz or a folder of sheets.
# On one H200 both trainings, side by side, take under ten minutes.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
export PYTHONPATH="$root/src${PYTHONPATH:+:$PYTHONPATH}"
exec python3 -m eyechart.training vit resnet --data "${1:-cifar10}" --recipe zoo --seed 0 \
  --parallel 2 --evaluate-every 5 --snapshots warmup --out "${2:-$root/src/eyechart/zoo/weights}"
