#!/usr/bin/env bash
# Tell the demo's ten steps on the fleet of docker-compose.yml: build its images,
# bring it up, let `entail demo` stop, start and kill what it must, verify every
# log, and take everything down again. It ends by itself, and fails if a step is
# not as it must be. It takes root and a Docker engine on this machine.
set -euo pipefail
cd "$(dirname "$0")/.."

# Everything but taking down has ended by then.
readonly deadline=${DEMO_SECONDS:-480}
readonly steps=10

work=$(mktemp -d)
export FLEET_KEYS=$work/keys FLEET_PARTITIONS=2 FLEET_LEASE=5s
fleet=(docker-compose --project-name entail-demo)
if docker compose version >/dev/null 2>&1; then fleet=(docker compose --project-name entail-demo); fi

# within COMMAND...: run COMMAND in what is left of the time.
within() {
	local left=$((deadline - SECONDS))
	[ "$left" -gt 0 ] || die 'out of time'
	timeout --kill-after=10 "$left" "$@"
}

take_down() { timeout --kill-after=10 60 "${fleet[@]}" down --volumes --remove-orphans --timeout 5 >"$work/down.log" 2>&1; }

finish() {
	local status=$?
	trap '' INT TERM
	if [ "$status" -ne 0 ]; then timeout 30 "${fleet[@]}" logs --tail=15 || true; fi
	if ! take_down; then
		cat "$work/down.log"
		status=1
	fi
	rm -rf "$work"
	exit "$status"
}
trap finish EXIT
trap 'exit 143' INT TERM

step() { printf '\n== %s (after %d s)\n' "$*" "$SECONDS"; }
die() {
	printf 'compose-demo: %s\n' "$*" >&2
	exit 1
}

step 'build the images'
within deploy/build-images.sh

step 'bring up three nats-servers, two coordinators, three workers'
take_down # what a run that was killed has left
dist/images/entail keys init "$FLEET_KEYS" --partitions "$FLEET_PARTITIONS"
within "${fleet[@]}" up --detach

step 'tell the story'
within dist/images/entail demo --fleet "$FLEET_KEYS" | tee "$work/story"
told=$(grep -c '^    ok ' "$work/story" || true)
[ "$told" -eq "$steps" ] || die "$told steps are as they must be, want $steps"

step 'verify every log'
within "${fleet[@]}" run --rm -T cli verify </dev/null

step 'ok'
