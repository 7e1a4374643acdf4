#!/bin/sh
# Builds, for the machines that are named, the first process of sandboxes, static, and the library that an interpreter forks them with: both for
# any distribution. They go into the package beside what uses them, with SOURCES, which says what they were built from. The compiler is pinned, so
# that the same sources give the same bytes everywhere; it is a package of PyPI: pip install ziglang==0.13.0
set -eu
ZIG_VERSION=0.13.0
cd "$(dirname "$0")"
bin=${OUT:-$PWD/../python/rookery_zygote/bin}
if [ "$(python3 -m ziglang version 2>/dev/null)" != "$ZIG_VERSION" ]; then
    echo "the compiler is missing: pip install ziglang==$ZIG_VERSION" >&2
    exit 1
fi
object=$(mktemp -d)
trap 'rm -r "$object"' EXIT
for machine in ${*:-x86_64 aarch64}; do
    options="-target $machine-linux-musl -std=c11 -D_GNU_SOURCE -Os -Wall -Wextra -Wno-deprecated-non-prototype"
    (cd src && python3 -m ziglang cc $options -static -s -o "$bin/init-$machine" ./*.c)
    # Linked to nothing: what it needs of a libc is there in every process that loads it.
    for name in fork/fork src/kernel; do
        python3 -m ziglang cc $options -fPIC -fvisibility=hidden -c -o "$object/${name#*/}.o" "$name.c"
    done
    python3 -m ziglang ld.lld -shared -s -o "$bin/fork-$machine.so" "$object/fork.o" "$object/kernel.o"
done
LC_ALL=C sh -c 'cat src/*.c src/*.h fork/*.c fork/*.h build.sh' | sha256sum | cut -d ' ' -f 1 >"$bin/SOURCES"
