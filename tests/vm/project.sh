#!/usr/bin/env bash
# Replaces the project in a system where it is set up: project.sh FOLDER PACKAGES CACHE, as packages.sh.
set -euo pipefail
source "$(dirname "$0")/inside.sh"
enter "$@"

inside make --no-print-directory --directory /opt/warren setup >/dev/null
inside ln -s /opt/warren/.venv/bin/warren /usr/local/bin/warren
inside warren image build python >/dev/null
inside install -d -o u1 -g u1 /home/u1/.local /home/u1/.local/share
inside cp -a /var/lib/warren /home/u1/.local/share/
inside chown -R u1:u1 /home/u1/.local
inside /opt/warren/.venv/bin/python -m compileall -q -j 2 /opt/warren/src

# The image that is there, for commands that ask for none: in sessions, in services of the system and in those of users.
echo WARREN_IMAGE=python >>"$root/etc/environment"
for manager in system user; do
    mkdir -p "$root/etc/systemd/$manager.conf.d"
    printf '[Manager]\nDefaultEnvironment=WARREN_IMAGE=python\n' >"$root/etc/systemd/$manager.conf.d/warren.conf"
done
