#!/bin/bash
# Format, lints, dependencies, spelling: nothing that runs the code.
set -euo pipefail
cd "$(dirname "$0")/.."
. image/env.sh

tools=$PWD/target/tools
tasks=(supervisor nic tcp tls broker console probe)

step() { echo "== $1"; }

step format
if command -v cargo-fmt >/dev/null; then cargo fmt --all --check; else $CARGO fmt --all --check; fi
sh_files=(image/*.sh .ci/run)
for file in "${sh_files[@]}"; do bash -n "$file"; done

step "lints (host)"
clippy --quiet --workspace --all-targets --features ipc/testing -- -D warnings

step "lints (tasks as Linux programs)"
clippy --quiet -p tcp -p tls -p broker -p console@0.1.0 -p front --bins --features task -- -D warnings

# The loaders compile a public key in; which one doesn't matter to a lint.
key=$(mktemp)
trap 'rm -f "$key"' EXIT
export URMQTT_PUBLIC_KEY=$key
for arch in x86_64 aarch64; do
  step "lints ($arch)"
  case $arch in
    x86_64) bare_target=x86_64-unknown-none direct=pvh ;;
    aarch64) bare_target=aarch64-unknown-none-softfloat direct=linux ;;
  esac
  names=()
  for task in "${tasks[@]}"; do names+=(-p "$task"); done
  bare "services/rt/targets/$arch-urmqtt.json" clippy --quiet --release --bins "${names[@]}" -p rt --features task \
    -- -D warnings
  bare "$bare_target" clippy --quiet --release --bins -p microkernel -p "loader-$direct" --features bare -- -D warnings
  bare "$arch-unknown-uefi" clippy --quiet --release --bins -p loader-uefi --features bare -- -D warnings
done

step dependencies
if ! command -v cargo-deny >/dev/null && [ ! -x "$tools/bin/cargo-deny" ]; then
  echo "installing cargo-deny into target/tools"
  $CARGO install --quiet --locked --root "$tools" --target-dir "$tools/build" cargo-deny
fi
# The advisory database is a git repository, which this check does without.
PATH="$PATH:$tools/bin" cargo-deny --log-level warn check bans licenses sources

step spelling
if ! command -v typos >/dev/null && [ ! -x "$tools/python/bin/typos" ]; then
  python3 -m venv "$tools/python"
  "$tools/python/bin/pip" --quiet install typos
fi
PATH="$PATH:$tools/python/bin" typos

echo "all checks passed"
