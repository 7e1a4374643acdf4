#!/bin/sh
# Runs one of the project's TypeScript programs: `sh scripts/run.sh scripts/test.ts …`.
# Installs missing dependencies first, so that every `npm run` command works on a fresh clone.
# Checks the version of Node.js itself, because no program of the project runs in an older one.
set -eu
cd "$(dirname "$0")/.."

node -e '
  const [major, minor] = process.versions.node.split(".").map(Number);
  if (major < 20 || (major === 20 && minor < 19)) {
    console.error(`Rookery needs Node 20.19 or newer; this is ${process.version}.`);
    process.exit(1);
  }'

if [ ! -x node_modules/.bin/tsx ]; then
  echo 'installing dependencies (npm ci) …' >&2
  npm ci --no-fund --no-audit --loglevel=error >&2
fi

exec node --import tsx "$@"
