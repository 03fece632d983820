#!/usr/bin/env bash
# Installs the locked packages into an environment of Python 3.11: provisioning/lock/install.sh PYTHON cpu|cuda
#
# A file whose hash is not in the lock files is refused. If `make wheelhouse` has written build/wheelhouse/VARIANT, all
# files come from there and pip uses no index. Install fedward itself after that: PYTHON -m pip install --no-deps .
set -euo pipefail

python=${1:?usage: provisioning/lock/install.sh PYTHON cpu|cuda}
variant=${2:?usage: provisioning/lock/install.sh PYTHON cpu|cuda}
lock=$(realpath "$(dirname "$0")")
wheelhouse=$lock/../../build/wheelhouse/$variant

options=(--quiet --no-cache-dir --require-hashes --no-build-isolation --use-pep517)
if [ -d "$wheelhouse" ]; then
    options+=(--no-index --find-links "$wheelhouse")
fi
"$python" -m pip install "${options[@]}" -r "$lock/build.txt" # Packages without a wheel are built with these.
"$python" -m pip install "${options[@]}" -r "$lock/packages.txt" -r "$lock/torch-$variant.txt"
