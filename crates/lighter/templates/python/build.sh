#!/bin/sh
# Builds the function: the tool and the packages of requirements.txt from PyPI into .venv, the component into build/.
set -e
cd "$(dirname "$0")"
[ -x .venv/bin/pip ] || python3 -m venv .venv
# Again whenever requirements.txt has changed.
if ! cmp -s requirements.txt .venv/installed; then
    .venv/bin/pip install --quiet --disable-pip-version-check --requirement requirements.txt
    cp requirements.txt .venv/installed
fi
mkdir -p build
# By VIRTUAL_ENV the tool finds the packages in .venv; otherwise it takes those of the system.
export VIRTUAL_ENV="$PWD/.venv"
.venv/bin/componentize-py --quiet --wit-path wit --world function componentize app --python-path src --output build/{{name}}.wasm
