# make help lists the targets. What the gate runs, and in which order: .ci/run.
SHELL := bash
.DEFAULT_GOAL := help

FUZZTIME ?= 10s
BENCH ?= .
COUNT ?= 1
LAYOUT ?= 1
PROVE ?= 10m

tools := internal/tools/bin

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

# The gate runs the tests with a program that records the skipped ones.
gotest := $(if $(CI_GOTEST),"$(CI_GOTEST)",go test)

.PHONY: test
test: ## test the root module and ipset/boltstore in short form, in some four minutes with an empty build cache; builds no other program
	@IPALLOC_ETCD=$${IPALLOC_ETCD:-skip} .ci/each light $(gotest) -short -timeout 30m ./...
	@echo "make test: passed"

# The step vet has vetted what these run.
.PHONY: test-full
test-full: ## the same in full
	@IPALLOC_ETCD=$${IPALLOC_ETCD:-skip} .ci/each light $(gotest) -vet=off -timeout 60m ./...

# Modules in internal test files of other modules, which the cache of test results does
# not see change.
.PHONY: test-heavy
test-heavy: ## run what test leaves out: builds etcd, a kube-apiserver and the CNI plugins, compiles Kubernetes, Calico and Cilium
	@.ci/each root $(gotest) ./internal/test/servers
	@.ci/each heavy bash -c 'case $$PWD in */internal/*) again=-count=1 ;; esac; exec $(gotest) -short -timeout 25m $$again ./...'

.PHONY: test-all
test-all: test-full test-heavy ## run all tests, those of heavy modules in short form

# Tests in which one goroutine does all, by what their names say: comparisons with a model, exhaustive worlds, counts of allocations
# and steps, seeds of fuzz targets, a fault at every call of a suite. The race detector has nothing to see there, and makes them ten
# times as long. So it is with the long ones that are named. TestFair and TestFairness compare the turns that writers get; what they
# run, the other tests of their stores run too.
one_goroutine = ^(Fuzz.*|TestFair|TestFairness|Test.*(Exhaustively|AgainstTwin|AgainstModel|NotAllocate|Cost|AtEveryRequest)|$(alone))$$|$\
	^Test(Engine|Prefixes)(SQLite|Postgres)?$$/AtEvery|^Test(Store|SQLite|Postgres)$$/^Model$$|^TestStore$$/^[0-9]+$$/^Model$$
alone = Test(IndexFollowsEveryCall|DryRunAnswersAsTheCall|AffinityDoesNotDecay|ReservedRoomIsNotWalkedThrough|EndedWhateverTheLimits|$\
	FlippedKeys|RestartReadsLittle|Documents|LongList|LongListOfDamage|InterruptedImport|MapInChromium)

# Tests that repeat what others do in the same goroutines: the contract in a space of a store (race runs it in one of the memory), a
# failure of a later request than the first, a command whose calls fail (race runs those that only read, with a signal during each
# call), the same commands on a third store.
repeated = ^TestInSpace(SQLite|Postgres)?$$|^TestEveryRequestFails$$/./^later|^TestEveryCallFails$$/^fails|^TestChanges$$/^sqlite$$

# Packages in which neither code nor tests start a goroutine. A line that could start one fails the target.
no_goroutine = bitmap internal/addrmap internal/test/protocol internal/test/world ipset/internal/block ipset/internal/holder examples/cluster
starts = (^|[[:space:]])go (func|[[:alnum:]_.]+)\(|\.Go\(|AfterFunc\(|RunParallel|synctest

# The package whose tests run the CNI plugin as a process of its own. Of them race runs those in which a process has several
# goroutines, and the detector is in these processes too.
process = cmd/cni-ipam/internal/plugin
within = ^Test(Busy|ParallelAdds|SharedNetwork|OrderOfAttachment|EveryCallOfTheStoreFails)$$

apart = /ipalloc/ipalloc/($(subst $() ,|,$(no_goroutine) $(process)))$$

.PHONY: race
race: ## run the tests under the race detector, in short form, without tests of one goroutine, tests of other processes, and repetitions
	@! git grep -nE '$(starts)' -- $(no_goroutine:%='%/*.go') || { echo 'race: it has to run these packages'; exit 1; }
	@.ci/each $(or $(MODULES),work) bash -c 'status=0; \
		$(gotest) -race -vet=off -short -timeout 60m -skip "$$0" $$(go list ./... | grep -vE "$(apart)") || status=1; \
		process=$$(go list ./... | grep -E "/$(process)$$" || true); \
		[ -z "$$process" ] || $(gotest) -race -vet=off -short -timeout 60m -run "$$1" $$process || status=1; \
		exit $$status' '$(one_goroutine)|$(repeated)' '$(within)'

.PHONY: test-unraced
test-unraced: ## run what test-heavy runs and race does not: modules outside of go.work, and the tests that race leaves out
	@.ci/each root $(gotest) ./internal/test/servers
	@.ci/each heavy bash -c 'case $$PWD in */internal/*) again=-count=1 ;; esac; \
		[ "$${GOWORK:-}" != off ] || exec $(gotest) -short -timeout 60m $$again ./...; \
		whole=$$(go list ./... | grep -E "$(apart)" || true); \
		[ -z "$$whole" ] || $(gotest) -short -timeout 60m $$whole || exit 1; \
		exec $(gotest) -short -timeout 60m -run "$$0" $$(go list ./... | grep -vE "$(apart)")' '$(one_goroutine)|$(repeated)'

.PHONY: invariants
invariants: ## run the tests of the root module in short form with every internal assertion compiled in
	@IPALLOC_ETCD=$${IPALLOC_ETCD:-skip} .ci/each root $(gotest) -tags invariants -short -timeout 60m ./...

.PHONY: invariants-full
invariants-full: ## the same in full
	@IPALLOC_ETCD=$${IPALLOC_ETCD:-skip} .ci/each root $(gotest) -tags invariants -timeout 60m ./...

.PHONY: prove
prove: ## run the proofs of PROOF.md once, then those with seeds for PROVE (default 10m)
	@.ci/prove '$(PROVE)'

.PHONY: fuzz
fuzz: ## fuzz every target for FUZZTIME (default 10s)
	@.ci/each work "$(CURDIR)/.ci/fuzz" $(FUZZTIME)

.PHONY: lint
lint: format vet staticcheck sizes ## check format, vet, staticcheck, and name files that grew long

.PHONY: format
format:
	@out=$$(gofmt -l .); [ -z "$$out" ] || { printf 'gofmt would change:\n%s\n' "$$out"; exit 1; }

.PHONY: vet
vet:
	@.ci/each $(or $(MODULES),all) go vet ./...

.PHONY: staticcheck
staticcheck: $(tools)/staticcheck
	@.ci/each $(or $(MODULES),all) "$(CURDIR)/$(tools)/staticcheck" ./...

# Over 500 lines a file usually holds two things. This warns; it does not fail.
.PHONY: sizes
sizes:
	@find . -name '*.go' ! -name '*_test.go' ! -path './.git/*' -exec wc -l {} + | \
		awk '$$1 > 500 && $$2 != "total" { print "warning: " $$2 " has " $$1 " lines, 500 is the aim" }'

$(tools)/staticcheck: internal/tools/go.mod internal/tools/go.sum
	@cd internal/tools && GOWORK=off go build -o bin/ tool && touch bin/*

.PHONY: tools
tools: $(tools)/staticcheck ## build staticcheck, apidiff, benchstat, gotestsum and govulncheck into internal/tools/bin

.PHONY: e2e
e2e: ## run the node IPAM controller against a real kube-apiserver and beside kube-controller-manager (builds both first: 15 minutes of CPU time)
	@cd cmd/node-ipam-controller && $(gotest) -count=1 -tags e2e -timeout 60m -v ./e2e

.PHONY: torture
torture: ## kill, tear, fill and cut off the stores at length (some 30 minutes)
	@cd bench/torture && GOWORK=off go run ./stores -duration 5m -commits 20000

.PHONY: bench
bench: ## run our benchmarks that match BENCH (default all), COUNT times
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) ./bench/...

.PHONY: bench-peers
bench-peers: ## measure the peers beside us and refresh the tables in bench/peers
	cd bench/peers && GOWORK=off go run . -readme README.md
	cd bench/peers/goipam && GOWORK=off go run . -servers -readme ../README.md
	cd bench/peers/calico && GOWORK=off go run . -etcd -readme README.md
	cd bench/peers && GOWORK=off go run ./picture

.PHONY: bench-cni
bench-cni: ## measure cmd/cni-ipam beside the real host-local, from start to exit
	@cd cmd/cni-ipam && go test -run '^$$' -bench Beside ./internal/plugin

.PHONY: bench-guard
bench-guard: ## check what benchmarks must not lose: instructions, steps, allocations, bytes, stable ratios in two link orders
	@$(gotest) ./bench -run Guard -ratios -count=1 -v
	@$(gotest) -ldflags=-randlayout=$(LAYOUT) ./bench -run GuardRatios -ratios -count=1 -v
	@$(gotest) ./bench -run GuardSteps -tags invariants -count=1 -v

.PHONY: bench-planted
bench-planted: ## plant regressions and see that the guard notices each
	go test ./bench -run Planted -planted -count=1 -v

.PHONY: release
release: ## make the commits and tags of release VERSION, and push nothing
	@.ci/release '$(VERSION)'

.PHONY: pin
pin: ## have the nested modules require their siblings as they are at HEAD: the last commit of a piece of work
	@.ci/pin

.PHONY: programs
programs: ## build the programs of release VERSION for linux amd64 and arm64 into DIR, with checksums
	@.ci/build '$(VERSION)' '$(DIR)'

.PHONY: api
api: ## write api.txt of every package that others import: what it exports
	@cd internal/tools && GOWORK=off go run ./api

.PHONY: doc
doc: ## print the documentation of every package that can be imported
	@for p in $$(go list -f '{{if ne .Name "main"}}{{.ImportPath}}{{end}}' ./... | grep -v -e /internal/ -e /fuzz -e /bench); do \
		echo "==== $$p"; go doc -all "$$p"; done

.PHONY: check
check: ## run the steps that a change of a library in the root module needs, within 8 minutes on two cores
	@MODULES=light .ci/run format words sizes documents vet staticcheck alone api test race invariants guard untouched

.PHONY: ci
ci: ## run the whole gate, as on a clean clone
	@.ci/run
