# Sourced by the Makefile's recipes and by scripts: which toolchain builds what. See docs/decisions/0041-toolchain.md.
#
# The bare targets need the library's source. Of rustup's toolchain and Debian's `rustc-web`, the first that has it
# builds everything; bash functions hide the difference.

_has_source() {
  [ -x "$(command -v "$1")" ] && [ -d "$("$1" --print sysroot 2>/dev/null)/lib/rustlib/src/rust/library/core" ]
}

if [ -n "${URMQTT_TOOLCHAIN:-}" ]; then :
elif _has_source rustc; then URMQTT_TOOLCHAIN=path
elif _has_source /usr/bin/rustc; then URMQTT_TOOLCHAIN=debian
else URMQTT_TOOLCHAIN=none
fi
export URMQTT_TOOLCHAIN

if [ "$URMQTT_TOOLCHAIN" = debian ]; then
  export RUSTC=/usr/bin/rustc RUSTDOC=/usr/bin/rustdoc CARGO=/usr/bin/cargo
  clippy() { /usr/bin/cargo-clippy clippy "$@"; }
else
  export CARGO=cargo
  clippy() { cargo clippy "$@"; }
fi

# cargo for a bare target: bare TARGET build|clippy ...
bare() {
  local target=$1 command=$2
  shift 2
  set -- --target "$target" -Zbuild-std=core,alloc,compiler_builtins \
    -Zbuild-std-features=compiler-builtins-mem "$@"
  case $target in
    *.json) set -- -Zjson-target-spec "$@" ;;
    # The loader's curve arithmetic without SIMD registers, which these targets don't have.
    *) local RUSTFLAGS="${RUSTFLAGS:-} --cfg curve25519_dalek_backend=\"serial\"" ;;
  esac
  (
    export RUSTFLAGS
    export RUSTC_BOOTSTRAP=1
    # The tool stands in for the C compiler that cargo would call, and leaves no path of this machine in a file.
    export CARGO_TARGET_X86_64_UNKNOWN_NONE_LINKER=ld.lld
    export CARGO_TARGET_AARCH64_UNKNOWN_NONE_SOFTFLOAT_LINKER=ld.lld
    export CARGO_TARGET_X86_64_UNKNOWN_UEFI_LINKER=lld-link CARGO_TARGET_AARCH64_UNKNOWN_UEFI_LINKER=lld-link
    if [ "$command" = clippy ]; then clippy "$@"; else "$CARGO" "$command" "$@"; fi
  )
}
