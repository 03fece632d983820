#!/usr/bin/env bash
# Writes the lock files again from pyproject.toml, with the hash of every file: provisioning/lock/make.sh
#
# For CPython 3.11 on Linux x86-64. PyTorch's packages have files of their own: its CPU builds come from another index, and
# torch-cpu.txt is edited by hand when the version below changes.
set -euo pipefail
cd "$(dirname "$0")"

torch=2.13.0
compile=(uv pip compile --quiet --no-annotate --no-header --generate-hashes --python-version 3.11
    --python-platform x86_64-manylinux_2_28)
note="# Written by provisioning/lock/make.sh; do not edit."

all=$(echo "torch==$torch" | "${compile[@]}" --constraints - --extra privacy --extra he --extra monitoring \
    --extra dicom --extra volumes --extra kubernetes --extra pretrained ../../pyproject.toml)
pytorch='/^[a-z]/ { of_torch = /^(torch|torchvision|triton|nvidia|cuda)[-=]/ }'
awk -v note="$note" "BEGIN { print note } $pytorch !of_torch" <<<"$all" >packages.txt
awk -v note="$note" "BEGIN { print note } $pytorch of_torch" <<<"$all" >torch-cuda.txt
printf '%s\n' "$note" "$(echo 'setuptools>=77' | "${compile[@]}" --constraints packages.txt -)" >build.txt
