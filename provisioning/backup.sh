#!/usr/bin/env bash
# Packs the files of a participant that exist nowhere else: provisioning/backup.sh KIT OUT.tar
#
# KIT is the kit of the server or a site, or the workspace of the authority. The archive also holds the server's jobs
# and results, the runs that FEDWARD_RUNS names, and the state that FEDWARD_STATE names. Stop the participant first.
# OUT "-" writes to standard output, for encryption. docs/operation.md has the commands, and how to restore.
set -euo pipefail

usage="usage: provisioning/backup.sh KIT OUT.tar"
kit=$(realpath "${1:?$usage}")
out=${2:?$usage}
if [ ! -d "$kit/startup" ] && [ -z "$(find "$kit" -maxdepth 3 -path '*/state/cert.json')" ]; then
    echo "folder $kit: expected a kit with startup/, or a workspace with state/cert.json; found neither." >&2
    exit 1
fi
for process in /proc/[0-9]*; do
    # It may have ended, or be another account's.
    mapfile -d '' -t words 2>/dev/null <"$process/cmdline" || continue
    [[ " ${words[*]}" == *" nvflare.private."* ]] || continue
    for ((place = 1; place < ${#words[@]}; place++)); do
        [ "${words[place - 1]}" = -m ] || continue
        # FLARE names the kit by the path that it was started by, which may lead over a link. A workspace has kits in it.
        started=$(realpath -m -- "${words[place]}")
        if [ "$started" = "$kit" ] || [[ "$started" == "$kit"/* ]]; then
            echo "kit $kit: expected a participant that is stopped, found process ${process#/proc/}." \
                "Stop it first: a copy of files that are being written may be of no use." >&2
            exit 1
        fi
    done
done

folders=("$kit")
if [ -f "$kit/startup/fed_server.json" ]; then
    resources=$kit/local/resources.json # Like FLARE: the server's own file, else the one of the kit.
    [ -f "$resources" ] || resources=$resources.default
    storage=$(python3 - "$resources" <<'END'
import json
import sys

with open(sys.argv[1]) as file:
    components = json.load(file)["components"]
print(*(part["args"]["uri_root"] for part in components if part["id"] == "job_manager"))
END
    )
    folders+=("$storage")
    [ -z "${FEDWARD_RUNS:-}" ] || folders+=("$(realpath "$FEDWARD_RUNS")")
fi

state=$(realpath "${FEDWARD_STATE:-$kit/fedward}")
case $state/ in
    "$kit"/*) ;;
    *) folders+=("$state") ;;
esac

for folder in "${folders[@]}"; do
    if [ ! -d "$folder" ]; then
        echo "folder $folder: expected what the kit or the environment names, found none." \
            "Nothing was packed. Has the participant ever run?" >&2
        exit 1
    fi
done

umask 077
# FLARE's folders of jobs: eight hexadecimal digits, three times four, and twelve.
digits='[0-9a-f][0-9a-f][0-9a-f][0-9a-f]'
uuid="$digits$digits-$digits-$digits-$digits-$digits$digits$digits"
tar --create --file "$out" --directory / --exclude="${state#/}/cache" --exclude="${kit#/}/transfer" \
    --no-wildcards-match-slash --exclude="${kit#/}/$uuid" -- "${folders[@]#/}"
