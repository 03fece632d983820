#!/usr/bin/env bash
# Rehearses, on one machine, provisioning in which every private key stays where it was made:
#
#     provisioning/distributed.sh FOLDER
#
# It plays all parties, each in its own folder below FOLDER. They exchange request zips, signed zips, and the authority's
# fingerprint over a second channel. docs/deployment.md has the commands of each party.
set -euo pipefail

[[ ${1:--} != -* ]] || { echo "usage: provisioning/distributed.sh FOLDER" >&2; exit 2; }
folder=$1
definitions=$(realpath "$(dirname "$0")/distributed")
if [ -e "$folder" ]; then
    echo "folder $folder: expected none, found one. Name another: its keys would be lost." >&2
    exit 1
fi

umask 077
mkdir -p "$folder"
folder=$(realpath "$folder")
export HOME=$folder/home # nvflare keeps requests and approvals in its user's home.
mkdir "$HOME"

# Once: the authority, and the fingerprint of its certificate.
mkdir "$folder/authority"
cd "$folder/authority"
cp "$definitions/profile.yml" .
fingerprint=$(nvflare cert init --profile profile.yml --output-dir ca | sed -n 's/^rootca_fingerprint_sha256: //p')

join() { # join NAME <DEFINITION: all steps for one participant
    mkdir "$folder/$1"
    cd "$folder/$1"
    cat >participant.yml
    nvflare cert request --participant participant.yml --out request

    cd "$folder/authority" # It reads the request, and asks by telephone whose it is.
    nvflare cert approve "$folder/$1/request/$1.request.zip" --ca-dir ca --profile profile.yml --out "$1.signed.zip"

    cd "$folder/$1"
    nvflare package "$folder/authority/$1.signed.zip" --request-dir request --fingerprint "$fingerprint" --workspace .
}

{
    join localhost <"$definitions/server.yml"
    for hospital in hospital-a hospital-b hospital-c; do
        sed "s/hospital-a/$hospital/; s/hospital_a/${hospital/-/_}/" "$definitions/hospital.yml" | join "$hospital"
    done
    join lead@hospital-a.org <"$definitions/person.yml"
    sed 's/lead@hospital-a.org/it@consortium.org/; s/hospital_a/consortium/; s/role: lead/role: org_admin/' \
        "$definitions/person.yml" | join it@consortium.org
} >"$folder/log.txt"

echo "authority $fingerprint"
ls -d "$folder"/*/fedward/prod_00/*/
