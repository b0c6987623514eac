#!/bin/bash
# Builds the fuzz targets with libFuzzer's instrumentation and runs each for some seconds: run.sh [SECONDS] [TARGET ...]
#
# `cargo fuzz run TARGET` works too. Corpora grow in fuzz/corpus, what broke stays in fuzz/artifacts.
set -euo pipefail
cd "$(dirname "$0")"
. ../image/env.sh

seconds=${1:-5}
# Continuous integration says the same of the same commit; to look for something new is for longer runs.
seed=${FUZZ_SEED:-${CI:+1}}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(ls fuzz_targets | sed 's/\.rs$//')

host_triple=$(${RUSTC:-rustc} -vV | sed -n 's/^host: //p')
# What cargo-fuzz passes, without a sanitizer: the code under test is safe Rust with overflow checks.
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
  -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"
target=${CARGO_TARGET_DIR:-../target}/fuzz
CARGO_TARGET_DIR=$target "$CARGO" build --release --target "$host_triple" "${targets[@]/#/--bin=}"

passed=0
for name in "${targets[@]}"; do
  mkdir -p "corpus/$name" artifacts
  log=artifacts/$name.log
  if "$target/$host_triple/release/$name" -seed="${seed:-0}" -max_total_time="$seconds" -rss_limit_mb=4096 -timeout=20 -verbosity=1 \
    -artifact_prefix="artifacts/$name-" "corpus/$name" >"$log" 2>&1; then
    echo "fuzz $name: $(grep -E '^Done|stat::number' "$log" | tail -1)"
    passed=$((passed + 1))
  else
    grep -A 2 'panicked at' "$log" || true
    tail -30 "$log"
    echo "fuzz $name: failed; the input is in fuzz/artifacts"
    exit 1
  fi
done
echo "$passed passed, 0 failed"
