#!/usr/bin/env bash
# Puts the project into a copy of the base system: project.sh FOLDER BASE CACHE, the project's files in a tar on
# standard input. Leaves disk.img in the folder. Done with the guest's own Python, by the commands of the README.
# build.py runs it in namespaces of its own: what it mounts and starts ends with it, however it ends.
set -euo pipefail
folder=$1 base=$2 cache=$3 root=$1/root

cp --sparse=always "$base/disk.img" "$folder/disk.img"
mkdir "$root"
mount -o loop "$folder/disk.img" "$root"
mkdir -p "$root/opt/warren" "$root/root/.cache" "$cache"
tar --extract --directory "$root/opt/warren" --no-same-owner

# What this machine reaches package indexes with, for the time of the build.
mount --bind "$cache" "$root/root/.cache"
for file in /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt; do
    [ ! -s "$file" ] || { [ -e "$root$file" ] || touch "$root$file"; mount --bind "$(realpath "$file")" "$root$file"; }
done
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"

inside() { chroot "$root" env HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
    UV_LINK_MODE=copy "$@"; }
inside make --no-print-directory --directory /opt/warren setup
inside ln -s /opt/warren/.venv/bin/warren /usr/local/bin/warren
inside warren image build python
inside cp -a --no-target-directory /var/lib/warren /tmp/warren
inside install -d -o u1 -g u1 /home/u1/.local /home/u1/.local/share
inside mv /tmp/warren /home/u1/.local/share/warren
inside chown -R u1:u1 /home/u1/.local
# Compiled once here, and not by each process in there. Only what runs: no tools for development.
inside /opt/warren/.venv/bin/python -m compileall -q -j 2 /opt/warren/src /opt/warren/.venv/lib -x '/(mypy|ruff|hypothesis|schemathesis|IPython|tests?)/'

# The image that is there, for whoever asks for none: in sessions, in services of the system and in those of users.
echo WARREN_IMAGE=python >>"$root/etc/environment"
for manager in system user; do
    mkdir -p "$root/etc/systemd/$manager.conf.d"
    printf '[Manager]\nDefaultEnvironment=WARREN_IMAGE=python\n' >"$root/etc/systemd/$manager.conf.d/warren.conf"
done
