#!/usr/bin/env bash
# Makes new certificates and keys of participants: provisioning/renew.sh WORKSPACE PROJECT.yml [NAME...]
#
# Without names, of all. The authority stays the same, so that old and new certificates work side by side until the old
# ones end. What is made are a certificate and a key for each: rules, data and runs of a kit in use are not touched.
set -euo pipefail

usage="usage: provisioning/renew.sh WORKSPACE PROJECT.yml [NAME...]"
workspace=$(realpath "${1:?$usage}")
project=$(realpath "${2:?$usage}")
shift 2

authority=$(find "$workspace" -maxdepth 3 -path '*/state/cert.json' -print -quit)
if [ -z "$authority" ]; then
    echo "workspace $workspace: expected the authority, state/cert.json; found none." \
        "Name the workspace that build.sh made." >&2
    exit 1
fi
if grep -q HEBuilder "$project"; then
    echo "project $project: expected kits without an encryption key, found HEBuilder: FLARE signs such kits as a whole." \
        "Provision again and hand all new startup/ folders out at once, see docs/operation.md." >&2
    exit 1
fi

umask 077
made=$(mktemp -d -p "$workspace" .renewing-XXXXXX) # the authority's state changes last, and in one step
trap 'rm -r "$made"' EXIT
name=$(basename "$(dirname "$(dirname "$authority")")")
mkdir -p "$made/$name/state"

python3 - "$authority" "$made/$name/state/cert.json" "$@" >"$made/names" <<'END'
import json
import sys

before, after, *named = sys.argv[1:]
with open(before) as file:
    state = json.load(file)
known = [name for name in state if isinstance(state[name], dict)]
if unknown := sorted(set(named) - set(known)):
    sys.exit(f"names: expected some of {', '.join(known)}; found {', '.join(unknown)}. Nothing was changed.")
for name in named or known:
    del state[name]
    print(name)
with open(after, "w") as file:
    json.dump(state, file)
END
(cd "$made" && nvflare provision --force -p "$project" -w . >"$made/log.txt") || { cat "$made/log.txt" >&2; exit 1; }

out=$workspace/renewed-$(date --utc +%Y-%m-%d-%H%M%S)
mkdir "$out"
while read -r participant; do
    mkdir "$out/$participant"
    find "$made/$name/prod_00/$participant/startup" \( -name '*.crt' -o -name '*.key' \) \
        -exec cp -t "$out/$participant" {} +
done <"$made/names"
mv "$made/$name/state/cert.json" "$authority"
find "$out" -type f | sort
