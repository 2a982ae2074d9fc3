#!/usr/bin/env bash
# venv.sh FOLDER [REQUIREMENTS]: a Python environment in FOLDER that has these requirements. Does nothing when it has them already.
set -euo pipefail
folder=$1 requirements=${2:-}

[[ -x $folder/bin/pip ]] || python3 -m venv "$folder" </dev/null
[[ -n $requirements ]] || exit 0
cmp -s "$requirements" "$folder/requirements.txt" && exit 0
"$folder/bin/pip" install -q --disable-pip-version-check -r "$requirements" </dev/null
cp "$requirements" "$folder/requirements.txt"
