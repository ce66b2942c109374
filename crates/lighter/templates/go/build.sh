#!/bin/sh
# Builds the function: a core module by Go itself, and at its end which world it is made for. `lighter build` then makes
# a component of it.
set -e
cd "$(dirname "$0")"
mkdir -p build
# -checklinkname=0: the bindings take memory from the runtime before it is up, which Go allows only when asked.
GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -trimpath -ldflags="-s -w -checklinkname=0" -o build/module.wasm ./internal/exports
cat build/module.wasm internal/world.section > build/{{name}}.wasm
rm build/module.wasm
