#!/usr/bin/env bash
# Wait for a study_session.sh that runs in the background, at most so long, and pack what it has recorded:
#
#   scripts/study_wait.sh SECONDS RECORDS OUT
#
# With KEEP=N in the environment, weights of N finished trainings that were not packed before come along, two an archive,
# each with its card and curve: unpacked into a folder for `eyechart study NAME --work`, they can be examined again,
# anywhere, without training anew. A machine that gives back 64 MiB at a time takes KEEP=10.
#
# Ends with 0 when the session has ended, with 3 when the time has, and at once with 1 when there is no session: half an
# hour of a GPU was once spent in waiting for one that had never begun.
set -uo pipefail
if [ $# -ne 3 ]; then
  sed -n '4p' "$0" >&2
  exit 2
fi
seconds=$1 records=$2 out=$3

going() { [ -f "$records/pid" ] && kill -0 "$(cat "$records/pid")" 2>/dev/null; }

until [ -f "$records/ended" ] || [ "$SECONDS" -ge "$seconds" ]; do
  if ! going; then
    sleep 1 # it may have ended just now
    [ -f "$records/ended" ] && break
    echo "There is no session to wait for in $records: it never began, or was killed." >&2
    code=1
    break
  fi
  sleep 1
done
if [ -d "$records" ]; then
  mkdir -p "$out"
  tar --exclude='*.safetensors' --exclude='*.state' -czf "$out/records.tgz" -C "$(dirname "$records")" "$(basename "$records")"
  tail -n 4 "$records"/*.log 2>/dev/null
  work=$records.work packed=$records/packed number=0
  touch "$packed"
  ended() { # names of finished trainings, without their ending; snapshots stay behind
    find . -name '*.safetensors' ! -path '*.state/*' ! -name '*.init.*' ! -name '*.warmup.*' ! -name '*.quarter.*' |
      sed 's/\.safetensors$//' | sort
  }
  [ -d "$work" ] && cd "$work" && while [ $((2 * number)) -lt "${KEEP:-0}" ]; do
    mapfile -t two < <(ended | grep -vxFf "$packed" | head -n 2)
    [ ${#two[@]} -gt 0 ] || break
    number=$((number + 1))
    files=()
    for name in "${two[@]}"; do files+=("$name.safetensors" "$name.json" "$name.records.jsonl"); done
    tar -cf "$out/weights-$number.tar" "${files[@]}" && printf '%s\n' "${two[@]}" >>"$packed"
  done
fi
if [ -f "$records/ended" ]; then
  echo "The session has ended with $(cat "$records/ended")."
  exit 0
fi
exit "${code:-3}"
