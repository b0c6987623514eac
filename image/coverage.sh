#!/bin/bash
# Line coverage of the host tests, for each crate: coverage.sh [PACKAGE ...]. A summary on the terminal, pages in out/coverage.
#
# What runs in the image only (main.rs of the tasks, the kernel's architecture code) counts as not covered: QEMU's tests run that.
set -euo pipefail
cd "$(dirname "$0")/.."
. image/env.sh

rustc=${RUSTC:-rustc}
major=$("$rustc" -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
host=$("$rustc" -vV | sed -n 's/^host: //p')

# The tools must know the format of the LLVM that is in rustc: rustup's component, or the system's package of the same number.
tools=
for folder in "$("$rustc" --print sysroot)/lib/rustlib/$host/bin" "/usr/lib/llvm-$major/bin"; do
  if [ -x "$folder/llvm-cov" ] && [ -x "$folder/llvm-profdata" ]; then tools=$folder; fi
done
if [ -z "$tools" ]; then
  echo "There is no llvm-cov $major here: install llvm-$major, or \`rustup component add llvm-tools\`." >&2
  exit 1
fi

packages=("$@")
if [ ${#packages[@]} -gt 0 ]; then
  selection=()
  for name in "${packages[@]}"; do selection+=(-p "$name"); done
else
  selection=(--workspace --exclude smoke --features ipc/testing)
fi

out=$PWD/out/coverage
rm -rf "$out"
mkdir -p "$out/raw"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}/coverage
export LLVM_PROFILE_FILE=$out/raw/%p-%8m.profraw
# Own crates only: the other ones would make the tests slow, and their numbers are not asked for.
export RUSTC_WORKSPACE_WRAPPER=$out/rustc
printf '#!/bin/sh\nexec "$@" -Cinstrument-coverage\n' >"$RUSTC_WORKSPACE_WRAPPER"
chmod +x "$RUSTC_WORKSPACE_WRAPPER"

# The tests' programs, which hold the map from counters to lines.
"$CARGO" test "${selection[@]}" --no-run --message-format=json-render-diagnostics >"$out/build.json"
python3 - "$out/build.json" >"$out/objects" <<'EOF'
import json, sys
for line in open(sys.argv[1]):
    message = json.loads(line)
    if message.get("executable") and message.get("target", {}).get("kind") != ["custom-build"]:
        print(message["executable"])
EOF
"$CARGO" test --quiet "${selection[@]}" --no-fail-fast >"$out/tests.log" 2>&1 ||
  { grep -E '^(test result: FAILED|    [a-z].*::)' "$out/tests.log" || tail -20 "$out/tests.log"; echo "tests failed: $out/tests.log" >&2; exit 1; }

"$tools/llvm-profdata" merge --sparse "$out"/raw/*.profraw -o "$out/all.profdata"
rm -rf "$out/raw"
mapfile -t objects <"$out/objects"
arguments=("${objects[0]}")
for object in "${objects[@]:1}"; do arguments+=(--object "$object"); done
arguments+=(--instr-profile "$out/all.profdata" --ignore-filename-regex "(/registry/|/rustlib/|/tests/|tests\.rs$|/examples/|/image/smoke/)")

"$tools/llvm-cov" show "${arguments[@]}" --format html --output-dir "$out/html" --show-instantiations=false >/dev/null
"$tools/llvm-cov" export "${arguments[@]}" --summary-only >"$out/summary.json"
python3 - "$out/summary.json" "$PWD/" <<'EOF' | tee "$out/summary.txt"
import collections, json, sys
crates = collections.defaultdict(lambda: [0, 0])
for file in json.load(open(sys.argv[1]))["data"][0]["files"]:
    name = file["filename"].removeprefix(sys.argv[2])
    lines = file["summary"]["lines"]
    sums = crates[name.split("/src/")[0]]
    sums[0] += lines["covered"]
    sums[1] += lines["count"]
crates["together"] = [sum(s[i] for s in crates.values()) for i in (0, 1)]
for name, (covered, count) in crates.items():
    print(f"{name:24} {covered:6} of {count:6} lines  {100 * covered / max(count, 1):5.1f} %")
EOF
echo "pages: out/coverage/html/index.html"
