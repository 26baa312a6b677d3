#!/usr/bin/env bash
# Proves the Dockerfile and nginx.conf without a Docker daemon: prove.sh CONTEXT
#
# Makes the base image from Debian's packages, has buildah run the Dockerfile's steps on the wheel and the lock in
# CONTEXT, and starts the image's command as compose.yaml does: as its user, on a read-only root, behind nginx with TLS.
# Then documents are ingested, and a client of the protocol asks. Needs root and Debian's mmdebstrap, buildah, nginx,
# iproute2 and openssl, and a python with refdesk's client libraries as $PYTHON.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
context=$(cd "$1" && pwd)
work=$(mktemp -d)
buildah() { command buildah --root "$work/store" --runroot "$work/run" --storage-driver vfs "$@"; }

if [ "${2:-}" != inside ]; then
  trap 'rm -rf "$work"' EXIT
  mmdebstrap --quiet --variant=minbase trixie "$work/base.tar"
  base=$(buildah from scratch)
  buildah add --quiet "$base" "$work/base.tar" /
  buildah commit --quiet "$base" docker.io/library/debian:trixie-slim
  # Where the machine's certificate store is not the usual one, pip in the build must know it.
  printf '[global]\ncert = /certificates.pem\n' >"$work/pip.conf"
  buildah build --quiet --isolation chroot --pull-never --format docker --file "$here/Dockerfile" --tag refdesk \
    --volume "${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}:/certificates.pem:ro" \
    --volume "$work/pip.conf:/etc/pip.conf:ro" "$context"
  buildah inspect --type image refdesk >"$work/image.json"
  built=$(buildah from --pull-never refdesk)
  root=$(buildah mount "$built")
  unshare --mount --net --pid --fork --kill-child "${BASH_SOURCE[0]}" "$context" inside "$work" "$root"
  exit
fi

work=$3 root=$4
ip link set lo up
ip address add 172.30.83.2/32 dev lo
ip address add 172.30.83.3/32 dev lo
mkdir "$work/data" "$work/documents" "$work/certificates"
chown 10001:10001 "$work/data"
chmod 700 "$work/data"
printf '# Wall clock\n\nThe pendulum swings once a second.\n' >"$work/documents/clock.md"
printf '127.0.0.1 localhost desk.example.com\n' >"$work/hosts"
mount --bind "$work/hosts" /etc/hosts
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=desk.example.com -addext subjectAltName=DNS:desk.example.com \
  -keyout "$work/certificates/desk.key" -out "$work/certificates/desk.pem" 2>/dev/null

mount --bind "$root" "$root"
mkdir -p "$root/documents"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/tmp"
mount --bind "$work/data" "$root/data"
mount --bind "$work/documents" "$root/documents"
mount -o remount,bind,ro "$root"

of_image() { # the lines of a setting of the image
  "$PYTHON" -c 'import json, sys
found = json.load(open(sys.argv[1]))["Docker"]["config"]
for name in sys.argv[2:]:
    found = found[name]
print(*([found] if isinstance(found, str) else found), sep="\n")' "$work/image.json" "$@"
}
mapfile -t environment < <(of_image Env)
mapfile -t start < <(of_image Cmd)
mapfile -t check < <(of_image Healthcheck Test)
user=$(of_image User)
contained() { (
  exec chroot --userspec="$user" "$root" /usr/bin/env -i "${environment[@]}" \
    REFDESK_HTTP_PUBLIC_URL=https://desk.example.com REFDESK_HTTP_TRUSTED_PROXIES=172.30.83.2 "$@"
); }

contained refdesk-admin ingest /documents
key=$(contained refdesk-admin key create --user ann --json | "$PYTHON" -c 'import json, sys; print(json.load(sys.stdin)["key"])')
mount -o remount,bind,ro "$root/data" # as in compose.yaml: servers write nothing
contained "${start[@]}" >"$work/server.log" 2>&1 & # ends with this namespace, as nginx does
for _ in $(seq 300); do contained "${check[@]:1}" 2>/dev/null && break || sleep 0.2; done
contained "${check[@]:1}"

sed "s|/etc/nginx/certificates|$work/certificates|" "$here/nginx.conf" >"$work/refdesk.conf"
printf 'pid %s/nginx.pid;\nevents {}\nhttp { access_log off; include %s/refdesk.conf; }\n' "$work" "$work" >"$work/nginx.conf"
nginx -t -c "$work/nginx.conf"
nginx -c "$work/nginx.conf"

REFDESK_KEY=$key SSL_CERT_FILE=$work/certificates/desk.pem "$PYTHON" - <<'PYTHON'
import os
import ssl

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

URL = "https://desk.example.com/mcp"


async def main() -> None:
    trusted = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
    key = {"Authorization": f"Bearer {os.environ['REFDESK_KEY']}"}
    with anyio.fail_after(120):
        async with httpx2.AsyncClient(verify=trusted) as http:
            assert (await http.post(URL, json={})).status_code == 401
            assert (await http.post(URL, json={}, headers={"Host": "other.example.com"})).status_code == 421
        async with (
            httpx2.AsyncClient(verify=trusted, headers=key) as http,
            Client(streamable_http_client(URL, http_client=http)) as client,
        ):
            result = await client.call_tool("search", {"query": "pendulum"})
    cited = result.structured_content["results"][0]["cite_as"]
    assert cited.startswith("Wall clock")
    print("A client found", cited)


anyio.run(main)
PYTHON
if contained touch /opt/written 2>/dev/null || contained touch /data/written 2>/dev/null; then
  echo "The root or the data can be written." >&2
  exit 1
fi
[ "$(contained id -u)" = 10001 ]
echo "The image serves, as compose.yaml starts it."
