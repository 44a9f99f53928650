# The daily commands; `make` lists them. What takes more than a line lives in scripts/.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

TARGET := $(or $(CARGO_TARGET_DIR),target)
LAB := $(TARGET)/debug/lab

.PHONY: help
help: ## List the commands
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{ printf "  make %-11s %s\n", $$1, $$2 }'

.PHONY: demo
demo: ## A real Kubernetes, the operator and a healthy etcd cluster on this machine
	@scripts/demo

.PHONY: check
check: ## Before every commit: format, lints, units, docs, dependencies, scripts, chart (no root)
	@scripts/check

.PHONY: test
test: ## Before a merge: all tests, with a real Kubernetes and all broken operators (needs root)
	@scripts/test

.PHONY: test-long
test-long: ## Before a release: what takes long, such as thousands of days and the models against the real things
	@scripts/test-long

.PHONY: simulation
simulation: ## All of the simulation: broken operators, more seeds, the models against the real things (minutes)
	cargo test --locked --workspace --exclude e2e --features simulation/long,simulation/conformance \
		--test mutations --test seeds --test real --test protocol --test apiserver_conformance --test etcd_conformance

.PHONY: soak
soak: ## Simulated days with faults until stopped: seeds a second, steps, faults, coverage
	@cargo build --quiet --profile soak --package simulation
	@$(TARGET)/soak/simulation --forever --coverage --jobs $$(nproc)

.PHONY: up
up: lab ## Start the lab, NODES=1 by default
	@$(LAB) up --nodes $(or $(NODES),1)

.PHONY: deploy
deploy: up ## Install the operator of this checkout into the lab
	@scripts/deploy

.PHONY: down
down: lab ## Remove the lab and everything in it
	@$(LAB) down

.PHONY: status
status: lab ## What runs in the lab
	@$(LAB) status

.PHONY: env
env: lab ## Shell lines for kubectl, helm and KUBECONFIG: eval "$(make --silent env)"
	@$(LAB) env

.PHONY: lab
lab: ## Build the lab program
	@cargo build --quiet --workspace --bin lab

.PHONY: image
image: ## Build the operator's binary (dist/manager) and image archive; prints the tag
	@scripts/image

.PHONY: bench
bench: ## How fast it is, beside what is possible here: real clusters, 45 minutes (needs root)
	@scripts/bench clusters $(BENCH)

.PHONY: bench-fleet
bench-fleet: ## What 100, 300 and 1,000 clusters cost the operator, 20 minutes (needs root)
	@scripts/bench fleet $(BENCH)

.PHONY: crds
crds: ## Generate the CRDs into the Helm chart
	cargo run --quiet --package api --bin crdgen

.PHONY: fmt
fmt: ## Format the code
	cargo fmt --all

.PHONY: clean
clean: ## Remove build results of this checkout; the cache of tools and images stays
	cargo clean
	rm -rf dist
