#!/bin/sh
# Command of the image: serves on every address of the container, with authentication. The first start on an
# empty volume creates the signing key and a token, and prints the token. `docker exec CONTAINER rookery …`
# reads the token from the data directory.
set -eu

: "${ROOKERY_HOST:=0.0.0.0}" "${ROOKERY_META_HOST:=0.0.0.0}"
export ROOKERY_HOST ROOKERY_META_HOST

# With arguments (such as --config FILE) or one of these variables, the operator configures authentication.
if [ $# -gt 0 ] || [ -n "${ROOKERY_ENABLE_FUNC_TOKEN_AUTH:-}${ROOKERY_INSECURE:-}" ]; then exec rookery serve "$@"; fi

export ROOKERY_ENABLE_FUNC_TOKEN_AUTH=true
# Requests may name only these directories of the container. /code is for a volume with code.
: "${ROOKERY_MOUNTS_ALLOW:=/opt/rookery/examples,/code}"
export ROOKERY_MOUNTS_ALLOW
if [ -z "${ROOKERY_JWT_SECRET:-}${ROOKERY_JWT_SECRET_FILE:-}${ROOKERY_JWT_PUBLIC_KEY_FILE:-}${ROOKERY_JWT_JWKS_URL:-}" ]; then
  state=/var/lib/rookery mask="$(umask)"
  umask 077
  export ROOKERY_JWT_SECRET_FILE="$state/jwt.secret"
  if [ ! -s "$ROOKERY_JWT_SECRET_FILE" ]; then
    head -c 48 /dev/urandom | base64 -w 0 >"$state/jwt.secret.new"
    mv "$state/jwt.secret.new" "$ROOKERY_JWT_SECRET_FILE"
  fi
  # The command line reads the token of a service on the same machine from the data directory.
  data="${ROOKERY_DATA_DIR:-${XDG_DATA_HOME:-${HOME:-$state}/.local/share}/rookery}"
  mkdir -p "$data"
  if [ ! -s "$data/local-token" ] || [ -n "$(find "$data/local-token" -mtime +300)" ]; then
    rookery token create --tenant default --role developer --ttl 365d >"$data/local-token.new"
    mv "$data/local-token.new" "$data/local-token"
    echo "address: http://localhost:${ROOKERY_PORT:-8888} (as published with -p 8888:8888)"
    echo "token: $(cat "$data/local-token")"
    echo 'The token expires after 365 days. It is printed only once.'
  fi
  umask "$mask"
fi
exec rookery serve
