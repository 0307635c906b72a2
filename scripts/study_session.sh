#!/usr/bin/env bash
# Studies side by side on a machine with one NVIDIA GPU, as much of them as fits into a time:
#
#   scripts/study_session.sh MINUTES RECORDS DATA.npz "WORKERS STUDY [ARGUMENTS] [then STUDY [ARGUMENTS]]…" …
#   scripts/study_session.sh 22 /tmp/records cifar100.npz "4 locality --arms vit,vit-no-skip-* then blur_again" "2 alternet"
#
# All begin at once, each with its own number of workers, so that none waits for another's last training; six workers in
# all, which share the GPU through CUDA's multi-process service, are enough. What stands after a "then" begins when what
# stands before it has ended, with the same workers. An arm that two of them need is trained by the first and waited for
# by the second: name it last in the --arms of the second. First one short training goes to its
# end: what breaks there would break in all of them. Records are written to RECORDS/NUMBER as trainings end, so a machine
# that is lost loses what was in flight. After MINUTES no training is begun; what is trained is examined.
#
# On a machine that takes only short commands it is left running (setsid scripts/study_session.sh … &), and
# scripts/study_wait.sh waits for it in pieces.
set -fuo pipefail # f: the stars of --arms are for eyechart
if [ $# -lt 4 ]; then
  sed -n '4p' "$0" >&2
  exit 2
fi
minutes=$1 records=$2 data=$3
shift 3
cd "$(dirname "$0")/.."
mkdir -p "$records"
rm -f "$records/ended"
echo $$ >"$records/pid" # for study_wait.sh
trap 'echo $? >"$records/ended"' EXIT
export PYTHONPATH=src PYTHONUNBUFFERED=1 OMP_NUM_THREADS=2 TORCHINDUCTOR_COMPILE_THREADS=4
eyechart="${PYTHON:-python3} -m eyechart"
command -v nvidia-cuda-mps-control >/dev/null && nvidia-cuda-mps-control -d 2>/dev/null

if ! $eyechart train vit --data "$data" --out "$records/rehearsal" --epochs 2 --warmup-epochs 1 --steps 20 --overwrite \
  >"$records/rehearsal.log" 2>&1; then
  tail -n 20 "$records/rehearsal.log"
  echo "the rehearsal failed; nothing was begun ($records/rehearsal.log)"
  exit 1
fi

# The studies of one argument, one after the other; what is left of the time counts.
run_queue() {
  local number=$1 workers=${2%% *} queue="${2#* } then " part=0 failed=0 study
  while [ -n "$queue" ]; do
    study=${queue%% then *} queue=${queue#* then } part=$((part + 1))
    echo "eyechart study $study ($workers workers, records in $records/$number)"
    # shellcheck disable=SC2086 # the words of a study are arguments of their own
    $eyechart study $study --data "$data" --records "$records/$number" --work "$records.work" --parallel "$workers" \
      --minutes $(((60 * minutes - SECONDS + began) / 60)) >"$records/$number-$part.log" 2>&1 || failed=$?
  done
  return $failed
}

number=0 jobs=() began=$SECONDS
for queue in "$@"; do
  number=$((number + 1))
  run_queue "$number" "$queue" &
  jobs+=($!)
done
failed=0
for job in "${jobs[@]}"; do
  wait "$job" || failed=$?
done
set +f; tail -n 5 "$records"/[0-9]*.log
exit "$failed"
