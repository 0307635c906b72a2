#!/usr/bin/env bash
# Studies one after the other on a machine with one NVIDIA GPU, as many as fit into a time:
#
#   scripts/study_session.sh MINUTES RECORDS DATA.npz "positions --seeds 2" "locality --arms vit,kernel-3" …
#
# Six workers share the GPU through CUDA's multi-process service (8 to 9 s for a warm-up run; three workers: 11 to 12).
# Records are written to the folder RECORDS as trainings end, so a machine that is lost loses what was in flight. After
# MINUTES no training is begun; what is trained is examined. Weights are left in RECORDS.work.
set -fuo pipefail # f: the stars of --arms are for eyechart
if [ $# -lt 4 ]; then
  sed -n '4p' "$0" >&2
  exit 2
fi
minutes=$1 records=$2 data=$3
shift 3
cd "$(dirname "$0")/.."
mkdir -p "$records"
export PYTHONPATH=src PYTHONUNBUFFERED=1 OMP_NUM_THREADS=2
command -v nvidia-cuda-mps-control >/dev/null && nvidia-cuda-mps-control -d 2>/dev/null

failed=0
for study in "$@"; do
  left=$(awk -v all="$minutes" -v gone="$SECONDS" 'BEGIN { printf "%.1f", all - gone / 60 }')
  if [ "${left%.*}" -lt 1 ]; then
    echo "not begun, the time is up: eyechart study $study"
    failed=3
    continue
  fi
  echo "eyechart study $study ($left minutes left)"
  # shellcheck disable=SC2086 # the words of a study are arguments of their own
  ${PYTHON:-python3} -m eyechart study $study --data "$data" --records "$records" --work "$records.work" \
    --parallel 6 --minutes "$left" || failed=$?
done
exit "$failed"
