#!/bin/bash
# Installs what building and running need: Debian and Ubuntu packages by apt, as root or with sudo. Without that right, or on
# another system, it says what is missing. Nothing to do: it is done in a few milliseconds.
set -euo pipefail
cd "$(dirname "$0")/.."
. image/env.sh

missing=()
need() { # need PACKAGE COMMAND|FILE: the package, unless what it brings is there
  case $2 in
    /*) [ -e "$2" ] ;;
    *) command -v "$2" >/dev/null ;;
  esac || missing+=("$1")
}

need lld ld.lld
need lld lld-link
need clang clang
need llvm llvm-ar
need gcc gcc
need qemu-system-x86 qemu-system-x86_64
need qemu-system-arm qemu-system-aarch64
need ovmf /usr/share/OVMF/OVMF_CODE_4M.fd
need qemu-efi-aarch64 /usr/share/AAVMF/AAVMF_CODE.fd
need mosquitto-clients mosquitto_pub
need iproute2 ip
need procps pgrep
need openssl openssl
need python3 python3
need python3-venv /usr/share/doc/python3-venv
# What the tests talk with, and what libFuzzer is built with.
need python3-paho-mqtt /usr/lib/python3/dist-packages/paho
need nodejs node
need npm npm
need g++ g++
case $URMQTT_TOOLCHAIN in
  none)
    missing+=(rustc-web cargo-web rust-web-src rust-web-clippy)
    command -v cargo-fmt >/dev/null || missing+=(rustfmt-web)
    ;;
  debian)
    need rust-web-clippy /usr/bin/cargo-clippy
    need rustfmt-web cargo-fmt
    ;;
esac
[ ${#missing[@]} -gt 0 ] || exit 0

mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
if ! command -v apt-get >/dev/null; then
  echo "Missing, by their names in Debian: ${missing[*]}" >&2
  echo "Rust: \`rustup component add rust-src\` does instead of the packages rustc-web, cargo-web, rust-web-src." >&2
  exit 1
fi
root=()
if [ "$(id -u)" != 0 ]; then
  if ! sudo -n true 2>/dev/null && ! { [ -t 0 ] && sudo -v; }; then
    echo "Missing packages; install them with: sudo apt-get install ${missing[*]}" >&2
    exit 1
  fi
  root=(sudo)
fi
echo "Installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${root[@]}" apt-get update -qq
for name in "${missing[@]}"; do
  # Ubuntu has no recent Rust with the library's source among its packages.
  if ! apt-cache show "$name" >/dev/null 2>&1; then
    echo "There is no package $name here. For Rust: https://rustup.rs, then \`rustup component add rust-src\`." >&2
    exit 1
  fi
done
"${root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"
