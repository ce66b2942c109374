#!/bin/sh
# Builds the function: the tool from PyPI into .venv, the component into build/.
set -e
cd "$(dirname "$0")"
[ -x .venv/bin/pip ] || python3 -m venv .venv
[ -x .venv/bin/componentize-py ] || .venv/bin/pip install --quiet --disable-pip-version-check --requirement requirements.txt
mkdir -p build
.venv/bin/componentize-py --quiet --wit-path wit --world function componentize app --python-path src --output build/{{name}}.wasm
