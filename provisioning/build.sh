#!/usr/bin/env bash
# Makes the startup kits of all participants: provisioning/build.sh WORKSPACE [PROJECT.yml]
#
# The workspace then holds the private keys of the authority and of all participants. The script refuses a workspace
# with an authority, because new keys would lock out every site that uses the old ones.
set -euo pipefail

[[ ${1:--} != -* ]] || { echo "usage: provisioning/build.sh WORKSPACE [PROJECT.yml]" >&2; exit 2; }
workspace=$1
project=$(realpath "${2:-$(dirname "$0")/project.yml}")

authority=$(find "$workspace" -path '*/state/cert.json' -print -quit 2>/dev/null || true)
if [ -n "$authority" ]; then
    echo "workspace $workspace: expected no keys, found $authority." \
        "Name another workspace; to add a site to this one see docs/deployment.md." >&2
    exit 1
fi

umask 077 # FLARE makes state/cert.json, which holds every private key, readable by all.
mkdir -p "$workspace"
cd "$workspace"
nvflare provision --force -p "$project" -w .
