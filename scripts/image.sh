#!/bin/sh
# Builds the image of the server and of its pods (deploy/Dockerfile) without an image registry.
# Usage: scripts/image.sh [--base IMAGE] [NAME]. The last line of the output is the name of the image.
# Without --base it makes a Debian base image with debootstrap, and uses it again in the next build.
set -eu
cd "$(dirname "$0")/.."

packages=python3,python3-venv,openssl,ca-certificates,patchelf
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

# The name of the base contains a hash of its suite and packages, so that the next build finds it.
if [ -z "$base" ]; then
  base="rookery-base:$(echo "$suite $packages 2" | sha256sum | cut -c1-12)"
  if ! docker image inspect "$base" >/dev/null 2>&1; then
    echo "making $base with debootstrap, which takes a minute" >&2
    command -v debootstrap >/dev/null || { echo 'debootstrap is needed, or --base IMAGE' >&2; exit 1; }
    debootstrap --variant=minbase --include="$packages" "$suite" "$work/base" >"$work/debootstrap.log" 2>&1 || {
      tail -n 20 "$work/debootstrap.log" >&2
      exit 1
    }
    rm -rf "$work/base/var/lib/apt/lists/"* "$work/base/var/cache/apt/"* "$work/base/var/log/"* \
      "$work/base/usr/share/man/"* "$work/base/usr/share/locale/"* "$work/base/usr/share/info/"*
    # Licence files of Debian's packages stay.
    find "$work/base/usr/share/doc" -type f ! -name copyright -delete
    tar -C "$work/base" -c . | docker import -c 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' - "$base" >/dev/null
    rm -rf "$work/base"
  fi
fi

context="$work/context"
mkdir -p "$context/node" "$context/runtimes"
[ -x node_modules/.bin/tsx ] || npm ci --no-fund --no-audit --loglevel=error >&2
# The image contains the same tree as the other packages, and the same Node.js as the Debian package.
node --import tsx -e '
  Promise.all([import("./scripts/staged-package.ts"), import("./scripts/bundled-node.ts")]).then(async ([staged, bundled]) => {
    const [context] = process.argv.slice(1);
    await staged.stagePackage(`${context}/server`);
    await bundled.fetchNode(`${context}/node/bin`);
  });
' "$context" >&2
mv "$context/node/bin/LICENSE" "$context/server/LICENSE.node"
rm -rf "$context/server/runtimes/python" && cp -a runtimes/python "$context/runtimes/"
find "$context/runtimes" -depth \( -name '__pycache__' -o -name 'tests*' -o -name '*.egg-info' \) -exec rm -rf {} +
# The image's user must be able to read all files, whatever the umask of the build.
chmod -R a+rX "$context"
cp deploy/Dockerfile "$context/Dockerfile"
install -m 755 deploy/serve.sh "$context/serve.sh"

DOCKER_BUILDKIT=0 docker build --network host --build-arg "BASE=$base" --tag "$name" "$context" >"$work/build.log" 2>&1 || {
  tail -n 40 "$work/build.log" >&2
  exit 1
}
echo "$name"
