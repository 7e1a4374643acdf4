#!/bin/sh
# Builds the image of the server and of its pods (deploy/Dockerfile) without an image registry: `scripts/image.sh [--base IMAGE] [NAME]`.
# Without --base it makes a Debian of its own with debootstrap, once. The last line of its output is the image's name.
set -eu
cd "$(dirname "$0")/.."

packages=python3,openssl,ca-certificates,patchelf
suite=bookworm

base='' name=''
while [ $# -gt 0 ]; do
  case "$1" in
    --base) base="${2:?--base needs an image}"; shift ;;
    -*) echo "usage: $0 [--base IMAGE] [NAME]" >&2; exit 2 ;;
    *) name="$1" ;;
  esac
  shift
done
[ -n "$name" ] || name="rookery:$(node -p 'require("./package.json").version')"

work="$(mktemp -d "${TMPDIR:-/tmp}/rookery-image-XXXXXX")"
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# A base is known by what it was made from, so that the next build finds it.
if [ -z "$base" ]; then
  base="rookery-base:$(echo "$suite $packages" | sha256sum | cut -c1-12)"
  if ! docker image inspect "$base" >/dev/null 2>&1; then
    echo "making $base with debootstrap, which takes a minute" >&2
    command -v debootstrap >/dev/null || { echo 'debootstrap is needed, or --base IMAGE' >&2; exit 1; }
    debootstrap --variant=minbase --include="$packages" "$suite" "$work/base" >"$work/debootstrap.log" 2>&1 || {
      tail -n 20 "$work/debootstrap.log" >&2
      exit 1
    }
    rm -rf "$work/base/var/lib/apt/lists/"* "$work/base/var/cache/apt/"* "$work/base/var/log/"* "$work/base/usr/share/doc/"* \
      "$work/base/usr/share/man/"* "$work/base/usr/share/locale/"* "$work/base/usr/share/info/"*
    tar -C "$work/base" -c . | docker import -c 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' - "$base" >/dev/null
    rm -rf "$work/base"
  fi
fi

context="$work/context"
mkdir -p "$context/server" "$context/node/bin" "$context/runtimes"
new_enough='const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)'
if ! docker run --rm --entrypoint node "$base" -e "$new_enough" >/dev/null 2>&1; then
  cp "$(node -p process.execPath)" "$context/node/bin/node"
fi
[ -x node_modules/.bin/tsc ] || npm ci >&2
# A run of the tests has built, and its tests use what it has built.
[ "${ROOKERY_TEST_BUILT:-}" = 1 ] || npm run --silent build >&2
cp package.json "$context/server/"
# The dependencies that are here, without those of development: nothing is asked of a registry. One inside of another comes with it.
npm ls --omit=dev --all --parseable 2>/dev/null | sed -n "s|^$PWD/\\(node_modules/.*\\)|\\1|p" | sort -u >"$work/dependencies"
[ -s "$work/dependencies" ] || { echo 'npm does not tell what the dependencies are' >&2; exit 1; }
tar -c --files-from="$work/dependencies" | tar -x -C "$context/server"
cp -a dist openapi runtimes examples LICENSE "$context/server/"
node --import tsx -e 'import("./scripts/built-files.ts").then(({ keepLastBuild }) => keepLastBuild(process.argv[1]))' "$context/server/dist"
find "$context/server" -depth -name '__pycache__' -exec rm -rf {} +
rm -rf "$context/server/runtimes/python" && cp -a runtimes/python "$context/runtimes/"
find "$context/runtimes" -depth \( -name '__pycache__' -o -name 'tests*' -o -name '*.egg-info' \) -exec rm -rf {} +
# Readable for the image's user, whatever the mask of whoever builds.
chmod -R a+rX "$context"
cp deploy/Dockerfile "$context/Dockerfile"

DOCKER_BUILDKIT=0 docker build --network host --build-arg "BASE=$base" --tag "$name" "$context" >"$work/build.log" 2>&1 || {
  tail -n 40 "$work/build.log" >&2
  exit 1
}
echo "$name"
