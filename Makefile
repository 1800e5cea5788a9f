# Counterfoil: build, check, test, measure. `make` alone prints the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

GO ?= go
FUZZTIME ?= 10s
GOLANGCI_VERSION := v2.15.0
GOLANGCI := .bin/golangci-lint
RESULTS := .bin/results

# --- Groups of packages -------------------------------------------------------------------------------------------------
# `make test` runs each group with its own flags and time limit; every package belongs to exactly one. A package that no
# group names falls into `unit`, so that a new one is never left out.
GROUPS := unit race servers crash linear faults process clients

# Where goroutines share memory: the race detector pays.
race_packages := ./store/... ./engine/... ./guard/... ./internal/clock/... ./internal/testserver/...
race_flags := -race
race_timeout := 8m

# Suites against real Redis, Valkey and PostgreSQL servers.
servers_packages := ./engine/redis/... ./engine/postgres/...
servers_flags := -race
servers_timeout := 8m

crash_packages := ./tests/crash/...
crash_flags :=
crash_timeout := 8m

linear_packages := ./tests/linear/...
linear_flags :=
linear_timeout := 8m

faults_packages := ./tests/faults/...
faults_flags :=
faults_timeout := 8m

process_packages := ./tests/process/...
process_flags :=
process_timeout := 8m

# Clients and servers from npm, and Stripe's mock; what is missing is installed first.
clients_packages := ./tests/clients/...
clients_flags :=
clients_timeout := 8m

unit_flags :=
unit_timeout := 5m

# What `make check` leaves to `make test`: it needs servers, processes, other builds or minutes.
slow_packages := $(servers_packages) ./internal/planted/... ./internal/testserver/... ./tests/crash/... ./tests/linear/... ./tests/faults/... ./tests/process/... ./tests/clients/...

# $(call list,PATTERNS): the packages of those patterns whose folders exist.
list = $(if $(call existing,$(1)),$(shell $(GO) list $(call existing,$(1))))
existing = $(strip $(foreach pattern,$(1),$(if $(wildcard $(patsubst %/...,%,$(pattern))),$(pattern))))

all = $(call list,./...)
crash = $(call list,$(crash_packages))
linear = $(call list,$(linear_packages))
faults = $(call list,$(faults_packages))
process = $(call list,$(process_packages))
clients = $(call list,$(clients_packages))
servers = $(call list,$(servers_packages))
race = $(filter-out $(servers),$(call list,$(race_packages)))
unit = $(filter-out $(race) $(servers) $(crash) $(linear) $(faults) $(process) $(clients),$(all))

# --- Targets ------------------------------------------------------------------------------------------------------------
.PHONY: help
help: ## Print the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: check
check: lint ## Format, vet, lint, import rules and short unit tests: under 90 s with warm caches
	$(GO) test -short -timeout 80s $(filter-out $(call list,$(slow_packages)),$(all))

.PHONY: lint
lint: $(GOLANGCI)-$(GOLANGCI_VERSION) ## Format, vet, lint and import rules only
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "not formatted, run gofmt -w:" $$unformatted >&2; exit 1; fi
	$(GO) vet ./...
	$(GOLANGCI) run
	$(GO) test -count=1 ./tests/imports/...

$(GOLANGCI)-$(GOLANGCI_VERSION):
	GOBIN=$(CURDIR)/.bin $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@ln -f $(GOLANGCI) $@

.PHONY: setup
setup: ## Install what the tests start: Redis, Valkey, PostgreSQL, faketime, node (Debian; idempotent)
	@scripts/setup.sh

.PHONY: test
test: setup lint ## Everything, on every engine; fails if a required suite did not run
	@rm -rf $(RESULTS)
	@code=0; $(MAKE) --keep-going $(addprefix test-,$(GROUPS)) || code=$$?; \
	$(GO) run ./tests/report -require tests/required.txt $(RESULTS)/*.json; exit $$code

# One group alone: make test-unit, test-race, test-servers, test-crash, …
.PHONY: $(addprefix test-,$(GROUPS))
$(addprefix test-,$(GROUPS)): test-%:
	@mkdir -p $(RESULTS); packages="$($*)"; [ -n "$$packages" ] || exit 0; \
	echo "== $*: go test $($*_flags) ($$(wc -w <<<"$$packages") packages, at most $($*_timeout))"; \
	$(GO) test -json -count=1 $($*_flags) -timeout $($*_timeout) $$packages \
		| tee $(RESULTS)/$*.json | $(GO) run ./tests/report -live

.PHONY: bench
bench: setup ## Measure against the bare loop and the bare servers, one table
	$(GO) run ./bench

.PHONY: bench-large
bench-large: setup ## The same with 10 million live records
	$(GO) run ./bench -large

.PHONY: fuzz
fuzz: ## Run each fuzzer for FUZZTIME (10s)
	@scripts/fuzz.sh $(FUZZTIME)

.PHONY: run
run: ## Start a server on the embedded store in .data/
	$(GO) run ./cmd/counterfoil serve --data .data --init

.PHONY: demo
demo: ## Pay 2,000 orders through crashes and retries, and count
	$(GO) run ./examples/payments/demo
