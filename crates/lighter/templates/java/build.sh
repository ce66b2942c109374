#!/bin/sh
# Builds the function: classes by the JDK alone, and one jar of them. The same source makes the same bytes.
set -e
cd "$(dirname "$0")"
rm -rf build
mkdir -p build/classes
find src -name '*.java' > build/sources
# Texts are joined without code that is generated in the first call, which would take 20 ms there.
javac --release 17 -Xlint:all -XDstringConcat=inline -cp sdk/lighterage-unit.jar -d build/classes @build/sources
jar --create --file build/{{name}}.jar --date 1980-01-01T00:00:02Z -C build/classes .
