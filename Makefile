# Everything here needs only Go, make and a POSIX shell; lint fetches its
# linter through the Go proxy, race needs a C compiler.

GO        ?= go
FUZZTIME  ?= 30s
CHAOS_SECONDS ?= 20
# One version for everybody: a newer linter is a change of its own.
GOLANGCI_VERSION := v2.15.0
GOLANGCI  := bin/golangci-lint-$(GOLANGCI_VERSION)
TESTFLAGS ?= -count=1 -timeout 10m
PKGS      ?= ./...

.DEFAULT_GOAL := help
.PHONY: help build test race fuzz lint bench chaos check fmt generate

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build the commands into bin/
	$(GO) build -trimpath -o bin/ ./cmd/...

# Packages whose tests run whole deployments under leases of a second or so. They
# run after the others, one at a time: beside a busy compiler a lease lapses.
TIMED := cmd/entail chaos internal/scenario

# Takes root and programs that make test does not: see confined.
CONFINED := internal/confined

# Tests that build others with a rule taken out, which must fail then: see guards.
GUARDS := ^TestRules.*AreGuarded$$

# Many tests wait for time to pass, so more packages than processors run at once;
# the three that take longest begin first.
test: ## run every test
	$(GO) test -p 4 -skip '$(GUARDS)' $(TESTFLAGS) $$($(GO) list $(PKGS) | grep -vE '/($(subst $() ,|,$(TIMED) $(CONFINED)))$$' | \
		awk '/\/(agent|sandbox|stream)$$/ { print; next } { rest = rest $$0 "\n" } END { printf "%s", rest }')
	$(GO) test -p 1 $(TESTFLAGS) -skip '^TestChaosRaces' $(addprefix ./,$(TIMED))

# What test leaves out, too; a -skip of TESTFLAGS comes in its place.
race: ## run the tests under the race detector
	CGO_ENABLED=1 $(GO) test -race -skip '^Test(ChaosRaces|Confined)|$(GUARDS)' $(TESTFLAGS) $(PKGS)

# go test fuzzes one target of one package at a time. The list is of lines
# "FuzzName" followed by the "ok package" they belong to.
fuzz: ## run each fuzz target for FUZZTIME (30s)
	@list=$$($(GO) test -list '^Fuzz' $(PKGS)) || { echo "$$list"; exit 1; }; \
	echo "$$list" | awk '/^Fuzz/ { f[n++] = $$1 } /^(ok|\?)/ { for (i = 0; i < n; i++) print $$2, f[i]; n = 0 }' | \
	while read -r pkg target; do \
		echo "fuzz $$pkg $$target"; \
		$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "$$pkg" </dev/null || exit 1; \
	done

lint: $(GOLANGCI) ## go vet, golangci-lint, gofumpt and goimports
	$(GO) vet $(PKGS)
	$(GOLANGCI) run $(PKGS)

bench: ## print our figures beside the raw library's
	$(GO) run ./cmd/entail bench

# Repeat a run with CHAOS_SEED, as the run before prints it.
chaos: ## kill and race for CHAOS_SECONDS (20) each, damage a leader, judge the logs
	CHAOS_SECONDS=$(CHAOS_SECONDS) $(GO) test -count=1 -v -timeout $$(( 3 * $(CHAOS_SECONDS) + 900 ))s -run Chaos ./chaos
	CHAOS_SECONDS=$(CHAOS_SECONDS) $(GO) test -count=1 -v -timeout 10m -run TestDamageOfALeader ./coordinator
	CHAOS_SECONDS=$(CHAOS_SECONDS) $(GO) test -count=1 -v -timeout 10m -run '^TestClusterFaults$$/^F4$$' ./stream
	CHAOS_SECONDS=$(CHAOS_SECONDS) $(GO) test -count=1 -v -timeout 10m -run '^TestNobodyFencesItselfForALeader$$' ./agent

.PHONY: guards kills
guards: ## take each rule out and see that its test notices
	$(GO) test -p 1 -count=1 -timeout 20m -run '$(GUARDS)' $$($(GO) list $(PKGS))

# Each named point once by SIGKILL and once by SIGSTOP takes 28.
KILLS ?= 1000
kills: ## stop workers at named and at random moments KILLS (1000) times
	KILLS=$(KILLS) $(GO) test -count=1 -v -timeout 90m -parallel 4 -tags failpoints -run '^TestKills' ./cmd/worker

.PHONY: confined confined-engine
confined: ## run the sandbox's tests as other users and in containers (root, runc)
	$(GO) test -count=1 -v -timeout 10m -skip '^TestConfinedEngine$$' ./$(CONFINED)

confined-engine: ## run them in containers of this machine's Docker engine
	$(GO) test -count=1 -v -timeout 10m -run '^TestConfinedEngine$$' ./$(CONFINED)

.PHONY: programs
programs: ## run git, compilers, databases and more behind the fence (they must be installed)
	$(GO) test -count=1 -v -timeout 15m -run '^Test(Programs|B[56]_.*)$$' ./sandbox -programs

# The default run of internal/scale, with many sessions. docs/limits.md has figures.
SCALE_SESSIONS ?= 100000
SCALE_EVENTS ?= 20
SCALE_TREE ?= 5000
SCALE_PARKED ?= 10000
.PHONY: scale
scale: ## measure many sessions, one large tree and parked sessions
	SCALE_SESSIONS=$(SCALE_SESSIONS) SCALE_EVENTS=$(SCALE_EVENTS) SCALE_TREE=$(SCALE_TREE) SCALE_PARKED=$(SCALE_PARKED) \
		$(GO) test -count=1 -v -timeout 90m ./internal/scale

check: lint test race ## what a change must pass

fmt: $(GOLANGCI) ## format the tree
	$(GOLANGCI) fmt $(PKGS)

generate: ## write the generated files again
	$(GO) generate $(PKGS)

$(GOLANGCI):
	GOBIN=$(CURDIR)/bin $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv bin/golangci-lint $@
