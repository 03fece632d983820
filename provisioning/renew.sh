#!/usr/bin/env bash
# Makes new certificates and keys of participants: provisioning/renew.sh WORKSPACE PROJECT.yml [NAME...]
#
# Without names it renews all. The authority stays the same, so old and new certificates work side by side until the old
# ones end. The script makes a certificate and a key for each. It does not touch rules, data or runs of a kit in use. If
# kits hold an encryption key, FLARE signs startup/. The script then adds signature.json, and the encryption key stays.
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

umask 077
made=$(mktemp -d -p "$workspace" .renewing-XXXXXX) # The authority's state changes last, and in one step.
trap 'rm -r "$made"' EXIT
name=$(basename "$(dirname "$(dirname "$authority")")")
mkdir -p "$made/$name/state"

python3 - "$authority" "$made/$name/state/cert.json" "$@" >"$made/names" <<'END'
import json
import sys

old_state, new_state, *chosen = sys.argv[1:]
with open(old_state) as file:
    state = json.load(file)
participants = [name for name in state if isinstance(state[name], dict)]
unknown = sorted(set(chosen) - set(participants))
if unknown:
    sys.exit(
        f"names: expected some of {', '.join(participants)}; found {', '.join(unknown)}. "
        "Nothing was changed."
    )
for name in chosen or participants:
    del state[name]
    print(name)
with open(new_state, "w") as file:
    json.dump(state, file)
END
(cd "$made" && nvflare provision --force -p "$project" -w . >"$made/log.txt") || { cat "$made/log.txt" >&2; exit 1; }

while read -r participant; do
    if [ ! -d "$made/$name/prod_00/$participant/startup" ]; then
        echo "$participant: expected in $project, found none. Nothing was changed." >&2
        exit 1
    fi
    mkdir -p "$made/out/$participant"
    find "$made/$name/prod_00/$participant/startup" \( -name '*.crt' -o -name '*.key' \) \
        -exec cp -t "$made/out/$participant" {} +
done <"$made/names"
python3 - "$workspace/$name" "$made/$name/prod_00" "$made/out" <<'END'
import json
import sys
from pathlib import Path

kits, new_kits, out = map(Path, sys.argv[1:])
file = Path("startup", "signature.json")
for folder in out.iterdir():
    new_file = new_kits / folder.name / file
    if not new_file.exists():
        continue
    files_in_use = sorted(kits.glob(f"prod_*/{folder.name}/{file}"))
    if not files_in_use:
        sys.exit(
            f"{kits}: expected {folder.name}/{file} of the kit in use; found none. "
            "Nothing was changed."
        )
    signatures = json.loads(files_in_use[-1].read_text())
    new_signatures = json.loads(new_file.read_text())
    for renewed in folder.iterdir():
        signatures[renewed.name] = new_signatures[renewed.name]
    (folder / file.name).write_text(json.dumps(signatures))
END

out=$workspace/renewed-$(date --utc +%Y-%m-%d-%H%M%S)
mv "$made/out" "$out"
mv "$made/$name/state/cert.json" "$authority"
find "$out" -type f | sort
