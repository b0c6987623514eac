#!/bin/bash
# Builds kernel, tasks and loaders of one architecture into out/ARCH/artifacts: artifacts.sh ARCH [TASK ...]
#
# The loader gets the public key of URMQTT_PUBLIC_KEY (default: the development key) compiled in.
set -euo pipefail
cd "$(dirname "$0")/.."
. image/env.sh

arch=${1:?usage: artifacts.sh x86_64|aarch64 [TASK ...]}
shift
tasks=("$@")
[ ${#tasks[@]} -gt 0 ] || tasks=(supervisor nic tcp tls broker console probe)

case $arch in
  x86_64) bare_target=x86_64-unknown-none direct=pvh ;;
  aarch64) bare_target=aarch64-unknown-none-softfloat direct=linux ;;
  *) echo "unknown architecture $arch: x86_64 or aarch64" >&2; exit 2 ;;
esac

target=${CARGO_TARGET_DIR:-target}
out=out/$arch/artifacts
mkdir -p "$out"
export URMQTT_PUBLIC_KEY=${URMQTT_PUBLIC_KEY:-$PWD/out/keys/development.pub}
# No path of this machine in a file that is compared bit by bit.
remap="--remap-path-prefix=$PWD=. --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo"

# put BUILT NAME: without what only debuggers read. A file that hasn't changed keeps its time.
put() {
  cp "$1" "$out/$2.new"
  case $2 in
    loader.efi) ;;
    loader) [ "$arch" = aarch64 ] || llvm-strip "$out/$2.new" ;;
    *) llvm-strip "$out/$2.new" ;;
  esac
  if cmp -s "$out/$2.new" "$out/$2"; then rm "$out/$2.new"; else mv "$out/$2.new" "$out/$2"; fi
}

names=()
for task in "${tasks[@]}"; do names+=(-p "$task"); done
# The target's system name makes rustc ask for a dynamic linker, which a task doesn't have.
task_flags="-C link-arg=--image-base=0x400000 -C link-arg=--no-dynamic-linker"
# The kernel maps the tasks' text guarded: docs/decisions/0022-aarch64-branches.md.
[ "$arch" = x86_64 ] || task_flags+=" -Z branch-protection=bti,pac-ret"
RUSTFLAGS="$remap $task_flags" bare "services/rt/targets/$arch-urmqtt.json" build --release --bins "${names[@]}" \
  --features task
for task in "${tasks[@]}"; do put "$target/$arch-urmqtt/release/$task" "$task"; done

# The curve's portable arithmetic: the other one needs SIMD registers.
loader_flags='--cfg curve25519_dalek_backend="serial"'
RUSTFLAGS="$remap $loader_flags" bare "$bare_target" build --release --bins \
  -p microkernel -p "loader-$direct" --features bare
put "$target/$bare_target/release/microkernel" kernel
put "$target/$bare_target/release/loader-$direct" loader

RUSTFLAGS="$remap $loader_flags -Clink-arg=/Brepro -Clink-arg=/DEBUG:NONE" bare "$arch-unknown-uefi" build --release \
  --bins -p loader-uefi --features bare
put "$target/$arch-unknown-uefi/release/loader-uefi.efi" loader.efi
