#!/bin/bash
# Builds the guest that the image is compared with: Debian's cloud kernel, busybox and Mosquitto, x86_64.
# Usage: linux-guest.sh OUT CERTS - writes OUT/vmlinuz and OUT/initrd; CERTS is a folder of `urmqtt certs`.
#
# The system is made once, from Debian's packages, and kept in target/linux-guest; certificates and configuration come as a
# second archive, which the kernel unpacks over the first. Wants apt-get, dpkg-deb, cpio and depmod; needs no root.
set -euo pipefail
cd "$(dirname "$0")/../.."

out=${1:?usage: linux-guest.sh OUT CERTS}
certs=${2:?usage: linux-guest.sh OUT CERTS}
cache=$PWD/${CARGO_TARGET_DIR:-target}/linux-guest
case ${CARGO_TARGET_DIR:-} in /*) cache=$CARGO_TARGET_DIR/linux-guest ;; esac

archive() { (cd "$1" && find . -print0 | cpio --null --quiet --create --format=newc --owner=0:0 | gzip -9); }

# Mosquitto's libraries, whatever they are called in this release of Debian.
libraries() {
  apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances mosquitto |
    grep -E '^lib[a-z0-9.+-]+$' | sort -u
}

download() {
  local kernel names
  kernel=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image-/ { print $2; exit }')
  mapfile -t names < <(libraries)
  mkdir -p "$cache/packages"
  (cd "$cache/packages" && apt-get download -q "$kernel" busybox-static mosquitto "${names[@]}" >/dev/null)
  for package in "$cache"/packages/*.deb; do dpkg-deb --extract "$package" "$cache/all"; done
}

# Only what runs: busybox, mosquitto, its libraries, and the modules of virtio's network and random numbers.
system() {
  local all=$cache/all root=$cache/root version module library
  local paths=$all/lib/x86_64-linux-gnu:$all/usr/lib/x86_64-linux-gnu
  mkdir -p "$root"/{bin,etc,proc,sys,dev,tmp,lib64,lib/x86_64-linux-gnu,usr/sbin}
  cp "$all/bin/busybox" "$root/bin/"
  cp "$all/usr/sbin/mosquitto" "$root/usr/sbin/"
  cp -L "$all/lib64/ld-linux-x86-64.so.2" "$root/lib64/" 2>/dev/null ||
    cp -L "$all/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2" "$root/lib64/"
  "$root/lib64/ld-linux-x86-64.so.2" --library-path "$paths" --list "$root/usr/sbin/mosquitto" |
    awk '$3 ~ /^\// { print $3 }' | while read -r library; do cp -L "$library" "$root/lib/x86_64-linux-gnu/"; done
  version=$(basename "$all"/lib/modules/*)
  for module in virtio virtio_ring virtio_pci virtio_pci_modern_dev virtio_pci_legacy_dev virtio_net net_failover failover \
    virtio-rng rng-core; do
    find "$all/lib/modules/$version" -name "$module.ko*" | while read -r library; do
      install -D -m 644 "$library" "$root/lib/modules/$version/${library##*/}"
    done
  done
  cp "$all/lib/modules/$version/"modules.{order,builtin,builtin.modinfo} "$root/lib/modules/$version/"
  PATH=$PATH:/sbin:/usr/sbin depmod --basedir "$root" "$version"
  echo 'root:x:0:0::/:/bin/sh' >"$root/etc/passwd"
  cat >"$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
for module in virtio_pci virtio_net virtio-rng; do /bin/busybox modprobe $module; done
/bin/busybox ip link set lo up
/bin/busybox ip link set eth0 up
# QEMU's user network gives everybody this address; asking for it would only take time.
/bin/busybox ip address add 10.0.2.15/24 dev eth0
/bin/busybox ip route add default via 10.0.2.2
ulimit -n 20000
exec /usr/sbin/mosquitto -c /etc/mosquitto.conf
INIT
  chmod 755 "$root/init"
  cp "$all"/boot/vmlinuz-* "$cache/vmlinuz"
  archive "$root" >"$cache/system.cpio.gz"
}

if [ ! -s "$cache/system.cpio.gz" ]; then
  rm -rf "$cache"
  download
  system
  rm -rf "$cache/all" "$cache/packages"
fi

# The suite's own configuration of Mosquitto, for the guest's address and folder.
settings=$(mktemp -d)
trap 'rm -rf "$settings"' EXIT
mkdir -p "$settings/etc/certs" "$out"
cp "$certs"/{ca.crt,server.crt,server.key} "$settings/etc/certs/"
awk '/^"mosquitto.conf" = """/ { inside = 1; next } /^"""/ { inside = 0 } inside' image/bench/peers/mosquitto.toml |
  sed 's|{port} 127.0.0.1|8883 0.0.0.0|; s|{certs}|/etc/certs|' >"$settings/etc/mosquitto.conf"
cp "$cache/vmlinuz" "$out/vmlinuz"
{ cat "$cache/system.cpio.gz"; archive "$settings"; } >"$out/initrd"
