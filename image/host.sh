#!/bin/bash
# Builds the tasks as Linux programs for `urmqtt host` into out/host: host.sh [TASK ...]
set -euo pipefail
cd "$(dirname "$0")/.."
. image/env.sh

tasks=("$@")
[ ${#tasks[@]} -gt 0 ] || tasks=(tcp tls broker console front)

names=()
for task in "${tasks[@]}"; do names+=(-p "$task"); done
$CARGO build --quiet --release --bins "${names[@]}" --features task

out=out/host
mkdir -p "$out"
for task in "${tasks[@]}"; do
  case $task in
    front) programs=(sockets tap stray) ;;
    *) programs=("$task") ;;
  esac
  # Not by writing into a program that runs.
  for program in "${programs[@]}"; do
    cp "${CARGO_TARGET_DIR:-target}/release/$program" "$out/$program.new"
    mv "$out/$program.new" "$out/$program"
  done
done
