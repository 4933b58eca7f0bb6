# "make check" and "make test" have to pass before a commit. Continuous integration
# runs both, part by part, and more (.ci/run). "make help" lists all targets.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

FUZZTIME ?= 10s
BENCH ?= .
PEERS ?=
BASE ?= HEAD
ROUNDS ?= 10
VERSIONS ?=
KILLS ?= 200
SURVIVALS ?= 100
LOSSES ?= 5m
CHANGES ?= 320
BLAMES ?= 1000
DAMAGES ?= 1000
ATTACK_TIME ?= 20m
ATTACK_SEED ?=
ATTACK_ONLY ?=
RACELESS := test/(attack|cluster)|internal/(arch|bucket|host|inspect|kernel|p2p|membership|overlap|ntstore|affinity|plan|require|settings(/table)?|wire)|device(/host)?|transport|examples(/train/(curve|digits|mlp|sgd))?|cmd/nexar(/internal/report)?
ARM64 := ./internal/kernel ./internal/wire ./compress ./internal/rpc ./internal/link
RACELESSTESTS := ^(TestReadmeQuickStart|TestVastMessage|TestOneWayRingOfNodes|TestWhatIsKeptIsBounded|TestKeptFramesAreCountedOff|TestRepliesPileUp|TestDepthBeyond|TestSingle|TestChooseKeepsTheRules|TestMeasureMakesFewPlans|TestConvergence|TestSelectionOfLongVectors)$$
RACEBRIEF ?= -short -skip='$(RACELESSTESTS)'
# LONGFIRST lists packages, those first whose tests take longest: then the others run beside
# them on the other processors.
LONGFIRST := awk '/\/(test\/(conformance|faults)|transport\/tcp|internal\/engine|cmd\/nexar)$$/ { print; next } { rest = rest $$0 "\n" } END { printf "%s", rest }'
EVERYWHERE := linux/amd64 linux/arm64 linux/riscv64 darwin/arm64 windows/amd64 freebsd/amd64
PLATFORMS ?= darwin/arm64 windows/amd64
MODULES := $(patsubst %/go.mod,%,$(shell find . -name go.mod -not -path '*/testdata/*'))

# GOTEST is what runs tests. Continuous integration replaces it by one that runs a
# failing test once more; here every failure is a failure.
GOTEST ?= go test
# TOOL runs a command of the module in tools, in the version that its go.mod pins.
TOOL := go tool -modfile=tools/go.mod

# GOLANGCI runs golangci-lint. The first build from source takes minutes; where a binary of this
# version is installed, "make check GOLANGCI=golangci-lint" uses that.
GOLANGCI_VERSION := v2.15.0
GOLANGCI ?= go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
ACTIONLINT := go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

# The fast and strict steps come first, the tests last. "make check WITHOUT=race" leaves
# a step out, "make check STEPS=race" runs only that one.
WITHOUT ?=
STEPS := $(filter-out $(WITHOUT),tidy fmt generate lint vet staticcheck golangci cross static race)

# Nothing here needs a C compiler, except for the race detector.
export CGO_ENABLED := 0

.PHONY: help check build manual test unit modules race race-clusters fuzz bench bench-base bench-peers cover netns arm64 attack attack-ci kills blame footprint conformance worlds survivals changes losses damage proofs tidy fmt generate lint vet staticcheck golangci workflows cross static

help: ## list the targets
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

check: ## checks and the tests under the race detector, before a commit, which takes some minutes
	@for step in $(STEPS); do \
	  echo "== $$step"; began=$$SECONDS; \
	  $(MAKE) --no-print-directory $$step; \
	  echo "-- $$step: $$((SECONDS - began)) s"; \
	done

build: ## the command, as ./nexar
	go build -o nexar ./cmd/nexar

manual: ## man pages and shell completions of the command, in ./manual
	rm -rf manual
	go run -tags manual ./cmd/nexar manual manual

test: ## all tests
	go test ./...

# TESTFLAGS are flags for "make unit" and "make race", which run the packages that take longest
# first.
TESTFLAGS ?=

unit: ## all tests but those of whole clusters and attacks
	$(GOTEST) $(TESTFLAGS) $$(go list ./... | grep -vE '/test/(cluster|attack)$$' | $(LONGFIRST))

modules: ## the tests of the other modules: the comparison with other systems, and a transport of a program
	@for m in bench examples/transport_unix; do (cd $$m && $(GOTEST) $(TESTFLAGS) ./...); done

# RACELESS are the packages in which the race detector would find nothing: they read the
# source, or neither they nor their tests start a goroutine, or, as cmd/nexar, test/cluster and
# attack do, they start processes: "make race-clusters" takes the tests of clusters.
# RACELESSTESTS compile programs without the race detector, copy gigabytes, count up to a
# limit, compute on one goroutine, or repeat what others do in many orders. "TRIALS=all make
# race RACEBRIEF=" runs them too, and every trial of the others. A process under the race
# detector ends atexit_sleep_ms later than it could, for other threads to report; the default
# is a second.
race: ## tests, shuffled, under the race detector, which needs a C compiler
	CGO_ENABLED=1 GORACE=atexit_sleep_ms=50 $(GOTEST) -race -shuffle=on -timeout=20m $(RACEBRIEF) $(TESTFLAGS) \
	  $$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... | grep -vE '/($(RACELESS))$$' | $(LONGFIRST))

race-clusters: ## the tests of whole clusters under the race detector
	CGO_ENABLED=1 $(GOTEST) -race -timeout=30m ./test/cluster

fuzz: ## every fuzz target in turn, each for FUZZTIME=10s
	@grep -rlE --include='*_test.go' '^func Fuzz' . | sort | while read -r file; do \
	  for name in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*).*/\1/p' "$$file"); do \
	    echo "== $$name in $${file%/*}"; \
	    go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$${file%/*}"; \
	  done; \
	done

bench: ## all benchmarks, or those that match BENCH=regexp
	go test -run '^$$' -bench '$(BENCH)' -benchmem ./...

bench-base: ## the working tree beside the revision BASE=HEAD, in turn, ROUNDS=10 times; VERSIONS="-settings shm:2" gives flags
	cd bench && go run ./cmd/versions -base '$(BASE)' -rounds $(ROUNDS) $(VERSIONS)

bench-peers: ## nexar beside other systems (bench/README.md); PEERS="-quick" gives flags
	cd bench && go run ./cmd/peers $(PEERS)

cover: ## how much of each package its tests reach
	go test -cover ./...

netns: ## the tests of whole clusters, some on hosts of their own (network namespaces): run it as root
	NEXAR_REQUIRE=netns go test -count=1 -v ./test/cluster

arm64: ## the packages with code for a processor, and those below the API, on an emulated arm64: qemu-aarch64-static
	GOARCH=arm64 $(GOTEST) -short -exec=qemu-aarch64-static $(ARM64)

attack: ## attacks on worlds for ATTACK_TIME=20m, and docs/results/attack.txt: run it as root; ATTACK_SEED repeats a run, ATTACK_ONLY=regexp picks attacks
	@cd test/attack && ATTACK=$(ATTACK_TIME) ATTACK_SEED=$(ATTACK_SEED) ATTACK_ONLY='$(ATTACK_ONLY)' REPORT=$(CURDIR)/docs/results/attack.txt go test -count=1 -timeout 2h -v -run '^TestAttack$$' | grep --line-buffered -vE '^(=== |    --- PASS)'

attack-ci: ## 100 seconds of attacks, without a report
	@cd test/attack && ATTACK=100s ATTACK_SEED=$(ATTACK_SEED) go test -count=1 -timeout 5m -v -run '^TestAttack$$' | grep --line-buffered -vE '^(=== |    --- PASS)'

kills: ## kill -9 of KILLS=200 processes of as many worlds, and docs/results/kills.txt
	@cd test/cluster && KILLS=$(KILLS) REPORT=$(CURDIR)/docs/results/kills.txt go test -count=1 -timeout 2h -run '^TestKill$$'

blame: ## BLAMES=1000 worlds in which one rank ends early: which rank the errors of the others name, and docs/results/blame.txt
	@cd test/cluster && BLAMES=$(BLAMES) REPORT=$(CURDIR)/docs/results/blame.txt go test -count=1 -timeout 2h -run '^TestBlame$$'

conformance: ## all trials of the tests of collectives, of which others make a part
	TRIALS=all go test -count=1 -timeout 2h ./test/conformance

worlds: ## a million simulated worlds in which nodes, hosts and links fail
	WORLDS=1000000 go test -count=1 -timeout 1h -run '^TestSimulatedWorlds$$' ./internal/membership

survivals: ## kill -9 in SURVIVALS=100 worlds that go on, and docs/results/survivals.txt
	@cd test/cluster && SURVIVALS=$(SURVIVALS) REPORT=$(CURDIR)/docs/results/survivals.txt go test -count=1 -timeout 2h -run '^TestSurvive$$'

changes: ## CHANGES=320 of worlds that grow, shrink and lose nodes, and a quarter as many with seeds; docs/results/changes.txt and seeds.txt
	@cd test/cluster && CHANGES=$(CHANGES) REPORT=$(CURDIR)/docs/results/changes.txt go test -count=1 -timeout 2h -run '^TestChanges$$'
	@cd test/cluster && CHANGES=$(CHANGES) REPORT=$(CURDIR)/docs/results/seeds.txt go test -count=1 -timeout 2h -run '^TestChangesOfSeeds$$'

losses: ## all collectives over TCP for LOSSES=5m where 10 % of the packets get lost: run it as root
	LOSSES=$(LOSSES) NEXAR_REQUIRE=netns,root go test -count=1 -timeout 2h -v -run '^TestLossyTCP$$' ./test/cluster

damage: ## DAMAGES=1000 random damages of the files of a seed: an error or the right state; DAMAGE_SEED=n repeats a run
	DAMAGES=$(DAMAGES) go test -count=1 -timeout 30m -v -run '^TestDamage$$' ./internal/rendezvous/raftlog

proofs: ## all algorithms for every size up to 130 at every root, and more mutants, which takes some minutes
	go test -count=1 -tags proofs -timeout 1h ./internal/plan

footprint: ## memory and time that ranks take, against their limits, and docs/results/footprint.txt
	@cd test/cluster && REPORT=$(CURDIR)/docs/results/footprint.txt go test -count=1 -timeout 1h -run '^TestFootprint$$'

tidy: ## what go mod tidy would change
	@for m in $(MODULES); do (cd $$m && go mod tidy -diff); done

fmt: ## which files gofmt would change
	@out=$$(gofmt -l .); [ -z "$$out" ] || { echo "gofmt would change:"; echo "$$out"; exit 1; }

generate: ## what go generate would change, in a copy of the tree
	@if ! grep -rqE --include='*.go' '^//go:generate' .; then echo "nothing is generated"; exit 0; fi; \
	copy=$$(mktemp -d); trap 'rm -rf "$$copy"' EXIT; \
	cp -R . "$$copy"; (cd "$$copy" && go generate ./...); diff -r -x .git . "$$copy"

lint: ## the import rules of .golangci.yml
	@cd tools && go run ./depguard ..

vet: ## go vet
	@for m in $(MODULES); do (cd $$m && go vet ./...); done
	@go vet -tags manual ./cmd/nexar

staticcheck: ## staticcheck, in the version of tools/go.mod
	$(TOOL) staticcheck ./...

golangci: ## golangci-lint with the linters of .golangci.yml, for this platform
	@for m in $(MODULES); do (cd $$m && $(GOLANGCI) run ./...); done

workflows: ## actionlint on .github/workflows
	$(ACTIONLINT)

cross: ## type-check for platforms of other kinds; PLATFORMS="$(EVERYWHERE)" takes all
	@cd tools && go test ./... && go run ./crosscheck -C .. -platforms='$(PLATFORMS)' ./...

static: ## whether the command runs without any library, and its size
	go test -count=1 -run '^TestCommandIsStatic$$' ./internal/arch
