#!/usr/bin/env bash
# Build the images of docker-compose.yml from this tree. It needs Go, a Docker
# engine and, the first time, Debian's packages for the base of the workers; no
# image registry.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly context=dist/images

# base: Debian's smallest system, the ground that confined calls stand on.
base() {
	if docker image inspect entail-base:bookworm >/dev/null 2>&1; then return; fi
	if ! command -v debootstrap >/dev/null; then
		apt-get update -qq
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap
	fi
	root=$(mktemp -d)
	trap 'rm -rf "$root"' EXIT
	debootstrap --variant=minbase bookworm "$root" >"$context/debootstrap.log" || {
		tail -n 20 "$context/debootstrap.log" >&2
		return 1
	}
	rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
	tar -C "$root" -c . | docker import - entail-base:bookworm
}

# Static, so that an image needs nothing else in it.
binaries() {
	CGO_ENABLED=0 go build -o "$context/" ./cmd/coordinator ./cmd/worker ./cmd/entail
	CGO_ENABLED=0 go build -o "$context/nats-server" github.com/nats-io/nats-server/v2
	cp deploy/nats.conf "$context/"
}

mkdir -p "$context"
base
binaries
for image in nats coordinator cli worker; do
	docker build --quiet --file deploy/Dockerfile --target "$image" --tag "entail-$image:local" "$context"
done
