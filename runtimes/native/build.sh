#!/bin/sh
# Builds the first process of sandboxes for the machines that are named, static, for any distribution. It goes into the package beside
# what becomes it, with SOURCES, which says what it was built from. The compiler is pinned, so that the same sources give the same
# bytes everywhere; it is a package of PyPI: pip install ziglang==0.13.0
set -eu
ZIG_VERSION=0.13.0
cd "$(dirname "$0")"
bin=${OUT:-$PWD/../python/rookery_zygote/bin}
if [ "$(python3 -m ziglang version 2>/dev/null)" != "$ZIG_VERSION" ]; then
    echo "the compiler is missing: pip install ziglang==$ZIG_VERSION" >&2
    exit 1
fi
cd src
for machine in ${*:-x86_64 aarch64}; do
    python3 -m ziglang cc -target "$machine-linux-musl" -std=c11 -D_GNU_SOURCE -Os -static -s -Wall -Wextra -Wno-deprecated-non-prototype \
        -o "$bin/init-$machine" ./*.c
done
LC_ALL=C sh -c 'cat ./*.c ./*.h ../build.sh' | sha256sum | cut -d ' ' -f 1 >"$bin/SOURCES"
