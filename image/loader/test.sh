#!/bin/bash
# Boots the test kernel by every front end and tries every refusal, under QEMU.
#
# test.sh ARTIFACTS KEY TOOLS [pvh|linux|uefi-x86_64|uefi-aarch64 ...]
#   ARTIFACTS  folder with ARCH/artifacts/loader and loader.efi (`make artifacts`: out)
#   KEY        secret key that these loaders trust (out/keys/development.key)
#   TOOLS      cargo's target folder with the test kernels and the example `pack`
set -euo pipefail
artifacts=$1 key=$2 tools=$3
shift 3
[ $# -gt 0 ] || set -- pvh linux uefi-x86_64 uefi-aarch64
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pack=$tools/debug/examples/pack
"$pack" key "$work/foreign"
failures=0

declare -A kernel=(
    [x86_64]=$tools/x86_64-unknown-none/release/loader-testkernel
    [aarch64]=$tools/aarch64-unknown-none-softfloat/release/loader-testkernel)

# packages ARCH: good and bad ones
packages() {
    local arch=$1 other=$([ "$1" = x86_64 ] && echo aarch64 || echo x86_64) at
    "$pack" "$arch" "${kernel[$arch]}" "$key" "$work/good" "signed line"
    "$pack" "$arch" "${kernel[$arch]}" "$work/foreign.key" "$work/foreign"
    "$pack" "$other" "${kernel[$arch]}" "$key" "$work/arch"
    payload=$(od -An -t u8 -j 16 -N 8 "$work/good" | tr -d ' ')
    head -c "$payload" "$work/good" > "$work/unsigned"
    head -c 100000 "$work/good" > "$work/truncated"
    for at in 40 400 5000 $((payload - 1)) $((payload + 3)) $((payload + 60)) $((payload + 200)); do
        flip "$at"
    done
}

# flip OFFSET: a copy with one bit changed
flip() {
    cp "$work/good" "$work/flip-$1"
    local byte=$(od -An -t u1 -j "$1" -N 1 "$work/good" | tr -d ' ')
    printf "\\x$(printf %02x $((byte ^ 4)))" | dd of="$work/flip-$1" bs=1 seek="$1" conv=notrunc status=none
}

# disk FILE: a FAT volume with the loader and the package
disk() {
    local image=$work/disk-$(basename "$1")
    rm -f "$image"
    truncate -s 48M "$image"
    mformat -i "$image" -F ::
    mmd -i "$image" ::/EFI ::/EFI/BOOT ::/urmqtt
    mcopy -i "$image" "$efi" "::/EFI/BOOT/$boot"
    [ ! -e "$1" ] || mcopy -i "$image" "$1" ::/urmqtt/package
    echo "$image"
}

# expect NAME SECONDS PATTERN QEMU...: runs until a line decides
expect() {
    local name=$1 seconds=$2 pattern=$3 log=$work/log start=$(date +%s%N) verdict=FAIL
    shift 3
    : > "$log"
    "$@" -display none -monitor none -serial "file:$log" -no-reboot > "$work/qemu" 2>&1 &
    local qemu=$!
    for _ in $(seq $((seconds * 20))); do
        if grep -qaE 'testkernel: (done|FAILED)|urmqtt: refused' "$log"; then break; fi
        kill -0 $qemu 2> /dev/null || break
        sleep 0.05
    done
    local took=$((($(date +%s%N) - start) / 1000000))
    sleep 0.05
    kill $qemu 2> /dev/null || true
    wait $qemu 2> /dev/null || true
    grep -qaE "$pattern" "$log" && verdict=ok
    echo "$verdict $name ($took ms)"
    if [ $verdict = FAIL ]; then
        failures=$((failures + 1))
        cat "$log" "$work/qemu" | tail -n 12
    fi
}

# refusals RUN: RUN FILE gives the command for a package
refusals() {
    local file
    expect "$1 without a package" 120 'refused to boot: there is no package' $("$1" "$work/none")
    expect "$1 foreign key" 120 'refused to boot: package is signed with a foreign key' $("$1" "$work/foreign")
    expect "$1 without signature" 120 'refused to boot: package has no signature' $("$1" "$work/unsigned")
    expect "$1 truncated" 120 'refused to boot: package is truncated' $("$1" "$work/truncated")
    expect "$1 other architecture" 120 'refused to boot: package is for' $("$1" "$work/arch")
    for file in "$work"/flip-*; do
        expect "$1 $(basename "$file")" 120 'refused to boot: ' $("$1" "$file")
    done
}

pvh() {
    echo qemu-system-x86_64 -M q35 -m 256M -kernel "$artifacts/x86_64/artifacts/loader"
    [ ! -e "$1" ] || echo -initrd "$1"
}

linux() {
    echo qemu-system-aarch64 -M virt -cpu max -m 256M
    echo -kernel "$artifacts/aarch64/artifacts/loader"
    [ ! -e "$1" ] || echo -initrd "$1"
}

uefi-x86_64() {
    efi=$artifacts/x86_64/artifacts/loader.efi boot=BOOTX64.EFI
    echo qemu-system-x86_64 -M q35 -m 256M -device virtio-rng-pci -bios /usr/share/ovmf/OVMF.fd
    echo -drive "if=virtio,format=raw,file=$(disk "$1")"
}

uefi-aarch64() {
    efi=$artifacts/aarch64/artifacts/loader.efi boot=BOOTAA64.EFI
    echo qemu-system-aarch64 -M virt -cpu max -m 256M -device virtio-rng-pci -bios /usr/share/qemu-efi-aarch64/QEMU_EFI.fd
    echo -drive "if=virtio,format=raw,file=$(disk "$1")"
}

for front in "$@"; do
    case $front in
        pvh | uefi-x86_64) packages x86_64 ;;
        *) packages aarch64 ;;
    esac
    run=$($front "$work/good")
    for cpus in 1 4; do
        expect "$front -smp $cpus" 120 "testkernel: done" $run -smp $cpus
        grep -qa "testkernel: $cpus processors" "$work/log" || { echo "FAIL $front: not $cpus processors"; failures=$((failures + 1)); }
    done
    case $front in
        pvh)
            expect "$front unsigned words" 60 "command line 'signed line diag'" $run -append "evil=1 diag console=x"
            expect "$front microvm" 60 "testkernel: done" ${run/q35/microvm} -smp 2
            expect "$front above 4 GiB" 60 "testkernel: done" ${run/256M/5G} -cpu max
            ;;
        linux)
            expect "$front unsigned words" 60 "command line 'signed line diag'" $run -append "evil=1 diag console=x"
            expect "$front from EL2" 60 "testkernel: done" ${run/virt/virt,virtualization=on} -smp 2
            expect "$front GICv3, 4 GiB" 60 "testkernel: done" ${run/virt/virt,gic-version=3} -m 4G
            ;;
        uefi-aarch64)
            expect "$front device tree" 120 "rsdp false, dtb true" ${run/virt/virt,acpi=off} -smp 2
            expect "$front from EL2" 120 "testkernel: done" ${run/virt/virt,virtualization=on} -smp 2
            ;;
    esac
    refusals "$front"
    rm -f "$work"/flip-* "$work"/disk-*
done
[ $failures -eq 0 ] && echo "all passed" || { echo "$failures failed"; exit 1; }
