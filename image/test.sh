#!/bin/bash
# Host, loom and smoke tests, or the named parts: test.sh [host] [loom] [fuzz] [smoke]. The last line is the sum.
set -uo pipefail
cd "$(dirname "$0")/.."
. image/env.sh

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(host loom fuzz smoke)
logs=out/test
rm -rf "$logs"
mkdir -p "$logs"
broken=()

part() { # part NAME: its output goes to the terminal and to a log
  echo "== $1"
  "$1" 2>&1 | tee "$logs/$1.log"
  [ "${PIPESTATUS[0]}" = 0 ] || broken+=("$1")
}

host() { $CARGO test --workspace --exclude smoke --features ipc/testing --no-fail-fast; }
# Other flags for everything: a target folder of its own, so that the others stay built.
loom() { RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom" $CARGO test -p ipc --release --test loom; }
fuzz() { fuzz/run.sh; }
# One machine at a time: their time limits are for a processor that does nothing else. But the packet cases mostly wait.
smoke() {
  local js=target/tools/js
  if ! [ -d "$js/node_modules/mqtt" ] &&
    ! timeout 180 npm install --silent --no-audit --no-fund --prefix "$js" mqtt@5.10.4; then
    export WITHOUT_MQTT_JS=1
    echo "Skipped: mqtt.js cannot be installed"
  fi
  local one_by_one=() name broken=0
  for name in idle_memory boot clients hosted isolation refusals restart; do one_by_one+=(--test "$name"); done
  $CARGO test -p smoke --no-fail-fast "${one_by_one[@]}" -- --test-threads=1 || broken=1
  $CARGO test -p smoke --test cases -- --test-threads=3 || broken=1
  return $broken
}

for name in "${parts[@]}"; do part "$name"; done

read -r passed failed < <(cat "$logs"/*.log | awk '/^test result:/ { p += $4; f += $6 } END { print p + 0, f + 0 }')
# Who reads only the end of a long log sees what broke and why.
for name in "${broken[@]}"; do
  echo "Broken: $name"
  grep -E '^test .* FAILED|panicked at|^error|failed;' "$logs/$name.log" | cut -c 1-160 | tail -6
done
# A part that broke without a failed test (it didn't compile, say) counts as one failure.
[ ${#broken[@]} = 0 ] || [ "$failed" -gt 0 ] || failed=${#broken[@]}
grep -h '^Skipped:' "$logs"/*.log || true
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
