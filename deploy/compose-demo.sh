#!/usr/bin/env bash
# Bring up the fleet of docker-compose.yml, have a read-only parent's child refused
# on the disk while the worker that drives it is killed, verify the logs, and take
# everything down again. It ends by itself, and fails if any step is not as it must
# be.
set -euo pipefail
cd "$(dirname "$0")/.."

# Every wait together ends by then.
readonly until=$((SECONDS + ${DEMO_SECONDS:-480}))

work=$(mktemp -d)
export FLEET_KEYS=$work/keys FLEET_PARTITIONS=2 FLEET_LEASE=5s
fleet() { docker-compose --project-name entail-demo "$@"; }
cli() { fleet run --rm -T cli "$@" </dev/null; }

down() {
	local status=$?
	if [ "$status" -ne 0 ]; then fleet logs --tail=15 || true; fi
	fleet down --volumes --remove-orphans --timeout 5 >"$work/down.log" 2>&1 || cat "$work/down.log"
	rm -rf "$work"
	exit "$status"
}
trap down EXIT

step() { printf '\n== %s\n' "$*"; }
die() {
	printf 'compose-demo: %s\n' "$*" >&2
	exit 1
}

# await WHAT COMMAND...: run COMMAND until it succeeds.
await() {
	local what=$1
	shift
	until "$@"; do
		[ "$SECONDS" -lt "$until" ] || die "not in time: $what"
		sleep 1
	done
}

answers() { cli config get >"$work/config" 2>"$work/config.err"; }
root() { root=$(awk '$1 == "session" { print $2; exit }' "$work/run"); [ -n "$root" ]; }
# driven finds the child and the worker that drives its shell call.
driven() {
	child=$(cli session tree "$root" 2>/dev/null | awk '$1 == "child" { print $2; exit }')
	[ -n "$child" ] || return 1
	cli session tail "$child" 2>/dev/null | grep -q 'tool/decision' || return 1
	worker=$(cli session show "$child" 2>/dev/null | awk '$1 == "worker" { print $2; exit }')
	[ -n "$worker" ]
}

step 'build the images'
deploy/build-images.sh
dist/images/entail keys init "$FLEET_KEYS" --partitions "$FLEET_PARTITIONS"

step 'bring up three nats-servers, two coordinators, three workers'
fleet up --detach
await 'a coordinator answers' answers

step 'a read-only parent hands over'
timeout 300 docker-compose --project-name entail-demo run --rm -T cli run --model scripted:/scripts/demo.yaml \
	--sandbox read-only --cwd /workspace 'hand over' </dev/null >"$work/run" 2>&1 &
run=$!
await 'the session has an id' root
await 'a worker drives the child' driven

step "kill $worker, which drives $child"
fleet kill -s SIGKILL "worker${worker#w}"

step 'the run ends: 3 says done with denials'
status=0
wait "$run" || status=$?
cat "$work/run"
[ "$status" -eq 3 ] || die "the run ended with $status, want 3"
cli session tail "$child"
cli session tail "$child" | grep 'tool/result' | grep -q SANDBOX_DENIED || die 'no call of the child was refused'
docker run --rm --volume entail-demo_workspace:/workspace --entrypoint /usr/bin/test entail-worker:local ! -e /workspace/blocked.txt ||
	die 'the child wrote blocked.txt'

step 'verify the logs'
cli verify
step 'ok'
