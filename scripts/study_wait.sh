#!/usr/bin/env bash
# Wait for a study_session.sh that runs in the background, at most so long, and pack what it has recorded:
#
#   scripts/study_wait.sh SECONDS RECORDS OUT
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
fi
if [ -f "$records/ended" ]; then
  echo "The session has ended with $(cat "$records/ended")."
  exit 0
fi
exit "${code:-3}"
