#!/bin/bash
# Builds kernel, tasks and loaders of one architecture into out/ARCH/artifacts: artifacts.sh ARCH [NAME ...]
#
# NAME: a task, `kernel`, `loader` or `loader.efi`; without it, everything. A file comes out the same whether it is built alone or
# with all others: cargo always selects all packages, and with them the same features of what they share.
# The loader gets the public key of URMQTT_PUBLIC_KEY (default: the development key) compiled in.
set -euo pipefail
cd "$(dirname "$0")/.."
. image/env.sh

arch=${1:?usage: artifacts.sh x86_64|aarch64 [NAME ...]}
shift
all=(supervisor nic tcp tls broker console probe)
tasks=() without_system=() efi=
[ $# -gt 0 ] || set -- "${all[@]}" kernel loader loader.efi
for name; do
  case $name in
    kernel | loader) without_system+=("$name") ;;
    loader.efi) efi=yes ;;
    *)
      [[ " ${all[*]} " = *" $name "* ]] || { echo "unknown name $name: ${all[*]} kernel loader loader.efi" >&2; exit 2; }
      tasks+=("$name")
      ;;
  esac
done

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

# select_each OPTION NAME ...: the option before each name
select_each() {
  local option=$1 name
  shift
  for name; do selected+=("$option" "$name"); done
}

if [ ${#tasks[@]} -gt 0 ]; then
  # The target's system name makes rustc ask for a dynamic linker, which a task doesn't have.
  task_flags="-C link-arg=--image-base=0x400000 -C link-arg=--no-dynamic-linker"
  # The kernel maps the tasks' text guarded: docs/decisions/0022-aarch64-branches.md.
  [ "$arch" = x86_64 ] || task_flags+=" -Z branch-protection=bti,pac-ret"
  selected=()
  select_each -p "${all[@]}"
  select_each --bin "${tasks[@]}"
  RUSTFLAGS="$remap $task_flags" bare "services/rt/targets/$arch-urmqtt.json" build --release "${selected[@]}" \
    --features task
  for task in "${tasks[@]}"; do put "$target/$arch-urmqtt/release/$task" "$task"; done
fi

# The curve's portable arithmetic: the other one needs SIMD registers.
loader_flags='--cfg curve25519_dalek_backend="serial"'
if [ ${#without_system[@]} -gt 0 ]; then
  declare -A programs=([kernel]=microkernel [loader]=loader-$direct)
  selected=()
  select_each -p "${programs[@]}"
  for name in "${without_system[@]}"; do select_each --bin "${programs[$name]}"; done
  RUSTFLAGS="$remap $loader_flags" bare "$bare_target" build --release "${selected[@]}" --features bare
  for name in "${without_system[@]}"; do put "$target/$bare_target/release/${programs[$name]}" "$name"; done
fi

if [ -n "$efi" ]; then
  RUSTFLAGS="$remap $loader_flags -Clink-arg=/Brepro -Clink-arg=/DEBUG:NONE" bare "$arch-unknown-uefi" build --release \
    --bins -p loader-uefi --features bare
  put "$target/$arch-unknown-uefi/release/loader-uefi.efi" loader.efi
fi
