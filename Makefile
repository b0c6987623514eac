# urMQTT: `make run` builds and boots the image, `make test` tests everything, `make help` lists the rest.

ARCH ?= x86_64
PORT ?= 8883
SMP ?= 1
MEM ?= 256M
BOOT ?= direct
CERTS ?= certs
# Absolute: cargo runs tests in the folders of their crates.
override CERTS := $(abspath $(CERTS))
ARCHES := x86_64 aarch64

TARGET := $(or $(CARGO_TARGET_DIR),target)
export URMQTT := $(abspath $(TARGET)/release/urmqtt)
export CERTS

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := run
.PHONY: help setup run test check cli certs artifacts images host bench bench-tool coverage sanitize graph $(ARCHES:%=artifacts-%) $(ARCHES:%=images-%)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile
	@echo 'Variables: ARCH=x86_64|aarch64 PORT=8883 SMP=1 MEM=256M BOOT=direct|uefi CERTS=certs'

setup: ## install what is missing
	@image/setup.sh

# Only what is booted: firmware's loader takes more than a minute on its own.
run: cli certs ## build, boot in QEMU and serve MQTT on 127.0.0.1:PORT until Ctrl-C
	@$(URMQTT) key >/dev/null
	@image/artifacts.sh $(ARCH) supervisor nic tcp tls broker console kernel loader $(if $(filter uefi,$(BOOT)),loader.efi)
	@exec $(URMQTT) run --arch $(ARCH) --port $(PORT) --smp $(SMP) --memory $(MEM) --boot $(BOOT)

test: cli host $(ARCHES:%=images-%) ## host tests, then whole images in QEMU
	@image/test.sh

check: setup ## format, lints, licences and sources of dependencies, spelling
	@image/check.sh

# The host command is small and waits for disks and QEMU: no link-time optimisation. It knows the services' limits, so it is
# built again after each change in one: incrementally, in seconds.
cli: setup ## the host command, target/release/urmqtt
	@. image/env.sh; CARGO_INCREMENTAL=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_DEBUG=0 \
		$$CARGO build --quiet --release -p urmqtt

certs: cli ## CA, server, operator and ten devices in CERTS
	@$(URMQTT) certs --dir $(CERTS) --if-needed

# The loader has the public key compiled in.
$(ARCHES:%=artifacts-%): artifacts-%: cli
	@$(URMQTT) key >/dev/null
	@image/artifacts.sh $*

artifacts: artifacts-$(ARCH) ## kernel, tasks and loaders of ARCH, in out/ARCH/artifacts

# The product, its development image, and the graphs that tests and benchmarks boot.
$(ARCHES:%=images-%): images-%: artifacts-% certs
	@$(URMQTT) build --arch $*
	@$(URMQTT) build --arch $* --dev
	@$(URMQTT) build --arch $* --system probe --dev
	@$(URMQTT) build --arch $* --system pingpong

images: images-$(ARCH) ## all images of ARCH

bench-tool: cli ## `urmqtt bench`: load for any broker, comparison of brokers
	@. image/env.sh; CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG=0 $$CARGO build --quiet --release -p bench

bench: cli $(ARCHES:%=images-%) ## guest instructions, times and memory, beside those of a Linux guest
	@. image/env.sh; $$CARGO run --quiet --release -p smoke --bin bench -- $(BENCH)
	@. image/env.sh; $$CARGO test --quiet --release -p smoke --test idle_memory -- --nocapture | grep '^idle'

host: cli certs ## the tasks as Linux programs, for `urmqtt host`
	@image/host.sh

sanitize: setup ## host tests under AddressSanitizer, rings under ThreadSanitizer
	@image/sanitize.sh address
	@image/sanitize.sh thread

coverage: setup ## line coverage of the host tests, in out/coverage
	@image/coverage.sh

graph: artifacts-x86_64 ## docs/graph.svg from the task graph
	@$(URMQTT) audit --graph docs/graph.svg >/dev/null
