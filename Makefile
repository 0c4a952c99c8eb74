# make help lists the targets. What the gate runs, and in which order: .ci/run.
SHELL := bash
.DEFAULT_GOAL := help

FUZZTIME ?= 10s
BENCH ?= .
COUNT ?= 1

tools := internal/tools/bin

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: test
test: ## run all tests, those of nested modules in short form
	@.ci/each root go test ./...
	@.ci/each nested go test -short ./...

.PHONY: race
race: ## run the tests under the race detector, in short form
	@.ci/each work go test -race -short ./...

.PHONY: invariants
invariants: ## run the tests with every internal assertion compiled in
	@.ci/each root go test -tags invariants ./...

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
	@.ci/each all go vet ./...

.PHONY: staticcheck
staticcheck: $(tools)/staticcheck
	@.ci/each all "$(CURDIR)/$(tools)/staticcheck" ./...

# Over 500 lines a file usually holds two things. This warns; it does not fail.
.PHONY: sizes
sizes:
	@find . -name '*.go' ! -name '*_test.go' ! -path './.git/*' -exec wc -l {} + | \
		awk '$$1 > 500 && $$2 != "total" { print "warning: " $$2 " has " $$1 " lines, 500 is the aim" }'

$(tools)/staticcheck: internal/tools/go.mod internal/tools/go.sum
	@cd internal/tools && GOWORK=off go build -o bin/ tool && touch bin/*

.PHONY: tools
tools: $(tools)/staticcheck ## build staticcheck, apidiff and benchstat into internal/tools/bin

.PHONY: e2e
e2e: ## run the node IPAM controller against a real kube-apiserver (builds it first: 13 minutes of CPU time)
	@cd examples/node-ipam-controller && go test -tags e2e -timeout 60m -v ./e2e

.PHONY: torture
torture: ## kill, tear, fill and cut off the stores at length (some 20 minutes)
	@cd bench/torture && GOWORK=off go run ./bolt && GOWORK=off go run ./etcd -duration 10m -kills 100

.PHONY: bench
bench: ## run our benchmarks that match BENCH (default all), COUNT times
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) ./bench/...

.PHONY: bench-peers
bench-peers: ## measure the peers beside us and refresh the tables in bench/peers
	cd bench/peers && GOWORK=off go run . -readme README.md
	cd bench/peers/calico && GOWORK=off go run . -etcd -readme README.md

.PHONY: bench-cni
bench-cni: ## measure examples/cni-ipam beside the real host-local, from start to exit
	@cd examples/cni-ipam && go run ./compare

.PHONY: bench-guard
bench-guard: ## check what benchmarks must not lose: ratios and allocation counts
	go test ./bench/... -run Guard -count=1 -v

.PHONY: release
release: ## prepare release VERSION: write go.mod and go.sum of the nested modules, prove that it can be fetched
	@cd internal/tools && GOWORK=off go run ./release -version '$(VERSION)' -write

.PHONY: pin
pin: ## have the nested modules require their siblings as they are at HEAD
	@cd internal/tools && GOWORK=off go run ./release -pin

.PHONY: doc
doc: ## print the documentation of every package that can be imported
	@for p in $$(go list -f '{{if ne .Name "main"}}{{.ImportPath}}{{end}}' ./... | grep -v -e /internal/ -e /fuzz -e /bench); do \
		echo "==== $$p"; go doc -all "$$p"; done

.PHONY: ci
ci: ## run the whole gate, as on a clean clone
	@.ci/run
