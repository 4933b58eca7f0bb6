# "make check" is exactly what continuous integration runs. "make help" lists
# everything else.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

FUZZTIME ?= 10s
BENCH ?= .
PEERS ?=
KILLS ?= 200
SURVIVALS ?= 100
LOSSES ?= 5m
CHANGES ?= 320
RACELESS := internal/(arch|bucket|kernel|match|member|plan|settings/table)|examples(/train/(curve|digits|mlp|sgd))?
EVERYWHERE := linux/amd64 linux/arm64 linux/riscv64 darwin/arm64 windows/amd64 freebsd/amd64
PLATFORMS ?= darwin/arm64 windows/amd64
MODULES := $(patsubst %/go.mod,%,$(shell find . -name go.mod -not -path '*/testdata/*'))

# The quick and the strict come first, the tests last.
STEPS := tidy fmt generate vet staticcheck cross static race

# Nothing here needs a C compiler, except for the race detector.
export CGO_ENABLED := 0

.PHONY: help check build test race fuzz bench bench-peers cover netns kills footprint conformance worlds survivals changes losses proofs tidy fmt generate vet staticcheck cross static

help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

check: ## all that has to pass before a commit, which takes some minutes
	@for step in $(STEPS); do \
	  echo "== $$step"; began=$$SECONDS; \
	  $(MAKE) --no-print-directory $$step; \
	  echo "-- $$step: $$((SECONDS - began)) s"; \
	done

build: ## the command, as ./nexar
	go build -o nexar ./cmd/nexar

test: ## all tests
	go test ./...

# Left out are those that read the source, those that build programs and run them, and
# those whose tests have one goroutine: the race detector would see nothing there
# but the test itself.
race: ## tests, shuffled, under the race detector, which needs a C compiler
	CGO_ENABLED=1 go test -race -shuffle=on -timeout 30m $$(go list ./... | grep -vE '/($(RACELESS))$$')

fuzz: ## every fuzz target in turn, each for FUZZTIME=10s
	@grep -rlE --include='*_test.go' '^func Fuzz' . | sort | while read -r file; do \
	  for name in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*).*/\1/p' "$$file"); do \
	    echo "== $$name in $${file%/*}"; \
	    go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$${file%/*}"; \
	  done; \
	done

bench: ## all benchmarks, or those that match BENCH=regexp
	go test -run '^$$' -bench '$(BENCH)' -benchmem ./...

bench-peers: ## nexar beside other systems (bench/README.md); PEERS="-quick" gives flags
	cd bench && go run ./cmd/peers $(PEERS)

cover: ## how much of each package its tests reach
	go test -cover ./...

netns: ## the tests of whole clusters, some on hosts of their own (network namespaces): run it as root
	NEXAR_REQUIRE=netns go test -count=1 -v ./internal/clustertest

kills: ## kill -9 of KILLS=200 processes of as many worlds, and docs/results/kills.txt
	@cd internal/clustertest && KILLS=$(KILLS) REPORT=$(CURDIR)/docs/results/kills.txt go test -count=1 -timeout 2h -run '^TestKill$$'

conformance: ## all trials of the tests of collectives, of which others make a part
	TRIALS=all go test -count=1 -timeout 2h .

worlds: ## a million simulated worlds in which nodes, hosts and links fail
	WORLDS=1000000 go test -count=1 -timeout 1h -run '^TestSimulatedWorlds$$' ./internal/member

survivals: ## kill -9 in SURVIVALS=100 worlds that go on, and docs/results/survivals.txt
	@cd internal/clustertest && SURVIVALS=$(SURVIVALS) REPORT=$(CURDIR)/docs/results/survivals.txt go test -count=1 -timeout 2h -run '^TestSurvive$$'

changes: ## CHANGES=320 of worlds that grow, shrink and lose nodes, and a quarter as many with seeds; docs/results/changes.txt and seeds.txt
	@cd internal/clustertest && CHANGES=$(CHANGES) REPORT=$(CURDIR)/docs/results/changes.txt go test -count=1 -timeout 2h -run '^TestChanges$$'
	@cd internal/clustertest && CHANGES=$(CHANGES) REPORT=$(CURDIR)/docs/results/seeds.txt go test -count=1 -timeout 2h -run '^TestChangesOfSeeds$$'

losses: ## all collectives over TCP for LOSSES=5m where 10 % of the packets get lost: run it as root
	LOSSES=$(LOSSES) NEXAR_REQUIRE=netns,root go test -count=1 -timeout 2h -v -run '^TestLossyTCP$$' ./internal/clustertest

proofs: ## all algorithms for every size up to 130 at every root, which takes some minutes
	go test -count=1 -tags proofs -timeout 1h -run '^TestEveryAlgorithmIsRight$$' ./internal/plan

footprint: ## memory and time that ranks take, against their limits, and docs/results/footprint.txt
	@cd internal/clustertest && REPORT=$(CURDIR)/docs/results/footprint.txt go test -count=1 -timeout 1h -run '^TestFootprint$$'

tidy: ## what go mod tidy would change
	@for m in $(MODULES); do (cd $$m && go mod tidy -diff); done

fmt: ## which files gofmt would change
	@out=$$(gofmt -l .); [ -z "$$out" ] || { echo "gofmt would change:"; echo "$$out"; exit 1; }

generate: ## what go generate would change, in a copy of the tree
	@if ! grep -rqE --include='*.go' '^//go:generate' .; then echo "nothing is generated"; exit 0; fi; \
	copy=$$(mktemp -d); trap 'rm -rf "$$copy"' EXIT; \
	cp -R . "$$copy"; (cd "$$copy" && go generate ./...); diff -r -x .git . "$$copy"

vet: ## go vet
	@for m in $(MODULES); do (cd $$m && go vet ./...); done

staticcheck: ## staticcheck, in the version of go.mod
	go tool staticcheck ./...

cross: ## go vet, which compiles, for platforms of other kinds; PLATFORMS="$(EVERYWHERE)" takes all
	@for p in $(PLATFORMS); do echo "$$p"; GOOS=$${p%/*} GOARCH=$${p#*/} go vet -gcflags='all=-N -l' ./...; done

static: ## whether the command runs without any library
	go test -count=1 -run '^TestCommandIsStatic$$' ./internal/arch
