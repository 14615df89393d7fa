#!/usr/bin/env bash
# Makes a stock Debian with systemd: base.sh FOLDER MIRROR SUITE. Leaves disk.img, vmlinuz and initrd.img in the folder.
# build.py runs it in namespaces of its own: what it mounts and starts ends with it, however it ends.
set -euo pipefail
folder=$1 mirror=$2 suite=$3 root=$1/root
packages=systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,linux-image-amd64,initramfs-tools,login,passwd,\
util-linux,mount,kmod,procps,iproute2,e2fsprogs,uidmap,ca-certificates,python3,python3-venv,git,make,bubblewrap,curl

truncate --size 10G "$folder/disk.img"
mkfs.ext4 -q -F -E lazy_itable_init=1 -L warren-vm "$folder/disk.img"
mkdir "$root"
mount -o loop "$folder/disk.img" "$root"
debootstrap --variant=minbase --include="$packages" "$suite" "$root" "$mirror" >"$folder/debootstrap.log" ||
    { tail -n 20 "$folder/debootstrap.log" >&2; exit 1; }

echo warren-vm >"$root/etc/hostname"
echo '127.0.0.1 localhost warren-vm' >"$root/etc/hosts"
echo '/dev/vda / ext4 defaults 0 1' >"$root/etc/fstab"
# Two terminals, each with a user who is logged in, by `login` and its PAM session.
for terminal in ttyS0:root ttyS1:u1; do
    service=serial-getty@${terminal%:*}.service
    mkdir "$root/etc/systemd/system/$service.d"
    printf '[Service]\nExecStart=\nExecStart=-/sbin/agetty --autologin %s --noclear --keep-baud 115200 %%I vt220\n' \
        "${terminal#*:}" >"$root/etc/systemd/system/$service.d/autologin.conf"
    chroot "$root" systemctl --quiet enable "$service"
done
chroot "$root" passwd --quiet --delete root
chroot "$root" useradd --create-home --shell /bin/bash u1
chroot "$root" passwd --quiet --delete u1
# Nothing that happens by the clock, in the middle of a test.
chroot "$root" systemctl --quiet mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
    fstrim.timer systemd-tmpfiles-clean.timer
chroot "$root" apt-get clean

cp --dereference "$root/vmlinuz" "$root/initrd.img" "$folder/"
umount "$root"
rmdir "$root"
rm "$folder/debootstrap.log"
