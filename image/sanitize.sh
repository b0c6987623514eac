#!/bin/bash
# Host tests under a sanitizer: sanitize.sh [address|thread] [PACKAGE ...]
#
# address: the crates with `unsafe` in them, and those that parse what others write. thread: the ring's benchmark, two threads.
# Our own code and the crates it uses are instrumented, not the standard library, whose source cannot be built twice into tests.
set -euo pipefail
cd "$(dirname "$0")/.."
. image/env.sh

sanitizer=${1:-address}
shift || true
case $sanitizer in
  address) short=asan packages=(ipc virtio nic tcp broker console@0.1.0 supervisor loader front) ;;
  thread) short=tsan packages=(ipc) ;;
  *) echo "unknown sanitizer $sanitizer: address or thread" >&2; exit 2 ;;
esac
[ $# -eq 0 ] || packages=("$@")

# The sanitizers' library comes with rustup's toolchains, not with Debian's.
found=
for rustc in "${RUSTC:-rustc}" rustc "${CARGO_HOME:-$HOME/.cargo}/bin/rustc"; do
  command -v "$rustc" >/dev/null || continue
  host=$("$rustc" -vV | sed -n 's/^host: //p')
  if compgen -G "$("$rustc" --print sysroot)/lib/rustlib/$host/lib/librustc*_rt.$short.a" >/dev/null; then found=$rustc; break; fi
done
if [ -z "$found" ]; then
  echo "No Rust here has the library of the sanitizer $sanitizer: rustup's have, https://rustup.rs" >&2
  exit 1
fi
unset RUSTC RUSTDOC
cargo=$(command -v cargo)
[ "$found" != rustc ] || cargo=cargo

selection=()
for name in "${packages[@]}"; do selection+=(-p "$name"); done
export RUSTC=$found RUSTC_BOOTSTRAP=1
export RUSTFLAGS="-Zsanitizer=$sanitizer -Cunsafe-allow-abi-mismatch=sanitizer -Cforce-frame-pointers=yes"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}/$short
# The benches of tests leak their shared memory on purpose.
export ASAN_OPTIONS=detect_leaks=0:${ASAN_OPTIONS:-} PROPTEST_CASES=${PROPTEST_CASES:-64}
if [ "$sanitizer" = thread ]; then
  # Not the tests: their harness synchronises by fences inside the standard library, which the sanitizer doesn't understand.
  exec "$cargo" run --target "$host" -p ipc --features testing --example ring_bench -- 20000
fi
"$cargo" test --target "$host" --features ipc/testing "${selection[@]}" --lib --tests
