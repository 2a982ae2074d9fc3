#!/usr/bin/env bash
# Installs what is missing of scripts/packages.txt. Where nothing is missing it needs neither network nor rights.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v dpkg-query >/dev/null; then
    echo "packages: this is no Debian; make sure that there is what scripts/packages.txt names" >&2
    exit 0
fi
missing=()
while read -r name; do
    [[ -z $name || $name == \#* ]] && continue
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null) == installed ]] || missing+=("$name")
done <scripts/packages.txt
[[ ${#missing[@]} -eq 0 ]] && exit 0

sudo=()
if [[ $(id -u) -ne 0 ]]; then
    if ! command -v sudo >/dev/null; then
        echo "packages: please install: ${missing[*]}" >&2
        exit 1
    fi
    sudo=(sudo)
fi
echo "packages: installing ${missing[*]}"
"${sudo[@]}" apt-get update -qq </dev/null
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y -o Dpkg::Use-Pty=0 --no-install-recommends "${missing[@]}" </dev/null
