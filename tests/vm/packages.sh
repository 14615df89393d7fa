#!/usr/bin/env bash
# Sets the project up in a copy of a system: packages.sh FOLDER BASE CACHE, the project's files in a tar on standard
# input. Leaves disk.img in the folder. Done with the guest's own Python, by the commands of the README.
# build.py runs it in namespaces of its own: what it mounts and starts ends with it, however it ends.
set -euo pipefail
source "$(dirname "$0")/inside.sh"
enter "$@"

inside make --no-print-directory --directory /opt/warren setup
inside /opt/warren/.venv/bin/warren image build python
# Compiled once here, and not by each process in there. Only what runs: no tools for development.
inside /opt/warren/.venv/bin/python -m compileall -q -j 2 -x '/(mypy|mypyc|ruff|hypothesis|schemathesis|tests?)/' \
    /opt/warren/.venv/lib
