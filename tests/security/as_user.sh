#!/usr/bin/env bash
# Runs tests/security as an ordinary user, from root: a copy of the tree, an own environment, a uid that owns nothing else.
set -euo pipefail
cd "$(dirname "$0")/../.."

uid=61234
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
as_user() { setpriv --reuid=$uid --regid=$uid --clear-groups --inh-caps=-all -- env -u XDG_DATA_HOME -u XDG_CACHE_HOME \
    HOME="$stage/home" USER=warren LOGNAME=warren TMPDIR="$stage/tmp" "$@"; }

mkdir "$stage/repo" "$stage/home" "$stage/tmp"
git ls-files -z --cached --others --exclude-standard | tar -c --null --ignore-failed-read -T - | tar -x -C "$stage/repo"
chown -R $uid:$uid "$stage"

# The interpreter of this environment may lie where no other user can read it.
python=
for candidate in "$(.venv/bin/python -c 'import sys; print(sys._base_executable)')" /usr/bin/python3 /usr/local/bin/python3; do
    if as_user "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "no Python 3.11 or later with venv that an ordinary user can read: 'apt-get install python3-venv' brings one" >&2
    exit 1
fi

cd "$stage/repo"
as_user make --no-print-directory setup PYTHON="$python"
as_user .venv/bin/pytest tests/security "$@"
