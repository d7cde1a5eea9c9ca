# LeaseQueue. Both main commands set up all they need; caches live outside the checkout (LEASEQUEUE_CACHE, default ~/.cache/leasequeue).
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo test lint unit postgres operator chart cluster mutants faults bench bench-short sim docs lock fmt generate venv alerts sbom
RUN := venv=$$(scripts/bootstrap.sh) && PATH="$$venv/bin:$$PATH"

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t12

demo: ## the main job on a real Kubernetes, from nothing to a checked summary
	@$(RUN) python -m demo

test: ## every test: lint, types, unit, postgres, operator, chart, cluster; ends with a table
	@$(RUN) python -m devtools.testrun

lint unit postgres operator chart cluster: ## one layer of the tests
	@$(RUN) python -m devtools.testrun $@

mutants: ## take each guarantee out of a copy of the engine and see its test go red
	@$(RUN) python -m devtools.mutants

faults: ## 20,000 items under every fault we can make; lost 0, doubled 0
	@$(RUN) python -m devtools.faultrun

bench: ## LeaseQueue beside its peers, and what stays flat: tables, plots in build/bench (up to 20 minutes on two idle cores)
	@$(RUN) python -m benchmarks.peers --out build/bench

bench-short: ## two minutes: is the drain through the worker at least half of raw?
	@$(RUN) python -m benchmarks.peers --only leasequeue,raw --parts drain --drain-n 20000 --calibrate 0 --rounds 3 --of-raw 0.5 --strict

sim: ## the scaling beside KEDA's on simulated loads: table, and plots in build/sim (half a minute)
	@$(RUN) && python -m benchmarks.autoscaling

docs: ## build the documentation, strictly, into build/site
	@venv=$$(scripts/bootstrap.sh docs) && NO_MKDOCS_2_WARNING=1 "$$venv/bin/mkdocs" build --strict

fmt: ## format the Python sources
	@$(RUN) ruff format . && ruff check --fix .

lock: ## resolve the dependencies again into requirements/*.lock (hashes, no addresses)
	@$(RUN) && for extra in worker reclaimer operator dev docs; do \
	  case $$extra in worker|reclaimer) more="--extra tracing";; *) more="";; esac; \
	  uv pip compile -q pyproject.toml --extra $$extra $$more --python-version 3.11 --generate-hashes --no-annotate --no-header \
	    --upgrade -o requirements/$$extra.lock; done

sbom: ## what the images are made of: a CycloneDX file each, in build/sbom
	@$(RUN) python -m devcluster sbom

alerts: ## fire and resolve every alert on a real Kubernetes with Prometheus and Alertmanager; a table (about five minutes)
	@$(RUN) python -m devtools.alertrun

generate: ## rewrite what is derived: the chart's CRD copy and README, deploy/, docs/reference/
	@$(RUN) python -m devtools.sync

venv: ## print the directory of the Python environment
	@scripts/bootstrap.sh
