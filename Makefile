# SPDX-License-Identifier: Apache-2.0
# The only build truth: installs what is missing, builds the C parts into build/, makes .venv, runs demo and tests.

SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules
# bpftool and depmod are there on Debian, and users that are not root have neither in their path.
export PATH := $(PATH):/usr/sbin:/sbin

V ?= 0
ifeq ($(V),0)
say = @printf '  %-7s %s\n' '$(1)' '$(2)';
else
say =
endif

SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
ARCH := $(shell uname -m | sed 's/x86_64/x86/;s/aarch64/arm64/')
CC := gcc
CLANG := clang
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
CFLAGS := -O2 -g -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Werror -D_GNU_SOURCE -DFLEXTRACE_VERSION='"$(VERSION)"' -I. -Ibuild
BPF_CFLAGS := -O2 -g -Wall -Werror -target bpf -mcpu=v3 -D__TARGET_ARCH_$(ARCH) -DFLEXTRACE_BPF_PROGRAM -I. -Ibpf
PYTHON := .venv/bin/python

APT_PACKAGES := gcc make pkg-config clang llvm libbpf-dev bpftool libelf-dev libblkid-dev zlib1g-dev linux-libc-dev libc6-dev \
	python3 python3-venv libsqlite3-dev liburing-dev
APT_TEST_PACKAGES := fio strace blktrace bpftrace e2fsprogs xfsprogs btrfs-progs zstd
APT_BENCH_PACKAGES := linux-perf rocksdb-tools postgresql
APT_LINT_PACKAGES := clang-format shellcheck
APT_VM_PACKAGES := qemu-system-x86 kmod busybox-static file e2fsprogs dmsetup mdadm python3-bpfcc

##@ Use
.PHONY: build
build: install build/flextrace-record build/flextrace-replay build/.kernels ## build everything, installing what is missing

.PHONY: demo
demo: build build/tests/debit_credit ## the whole pipeline on GNU sort and on SQLite; ends with a table and an HTML report
	$(SUDO) $(PYTHON) -m tests.demo.demo --output demo-output

.PHONY: help
help: ## this text
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Check
.PHONY: test
test: build build/.apt-test build/test-programs ## run all tests (as root: the recorder needs it)
	@$(call pytest,-m parallel --numprocesses auto --dist loadfile); beside=$$?; \
		$(call pytest,-m 'not parallel') && exit $$beside

# What nobody can disturb runs side by side; then what depends on times, or on who else does something, runs alone. Where
# PYTEST_ARGS chooses tests, a part may have none of them (5).
pytest = $(SUDO) env $(if $(CI),CI=$(CI)) $(PYTHON) -m pytest $(1) $(PYTEST_ARGS) || [ $$? = 5 ]

VM_KERNELS := 6.1 6.12

.PHONY: test-vm
test-vm: build build/.apt-test build/.apt-vm build/test-programs build/vm/virtme/.installed $(VM_KERNELS:%=build/vm/%/release) ## what depends on the kernel, here and on Debian's kernels in QEMU: docs/support_matrix.md
	$(SUDO) $(PYTHON) -m tests.vm.run_tests $(VM_KERNELS) --pytest-args='$(PYTEST_ARGS)' $(VM_ARGS)

# One boot is part of make test. Where QEMU or the kernel cannot be had, that part is skipped and says why.
test: vm

.PHONY: vm
vm: | build
	@mkdir -p build/vm
	@$(MAKE) --no-print-directory build/.apt-vm build/vm/virtme/.installed build/vm/$(firstword $(VM_KERNELS))/release \
		2>&1 | tee build/vm/$(firstword $(VM_KERNELS)).log

.PHONY: lint
lint: build build/.apt-lint ## ruff, mypy, clang-format, shellcheck
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	clang-format --dry-run --Werror $(filter-out bpf/trace_format.h,$(wildcard bpf/*.[ch] replayer/engine/*.[ch] tests/programs/*.[ch] tests/bench/*.c))
	shellcheck .ci/run tests/vm/fetch_kernel tests/vm/guest.sh

##@ Measure (BENCH_ARGS=--help says with which options)

BENCH_PROGRAMS := build/tests/debit_credit build/tests/system_calls build/bench/attach_probes build/bench/empty_probes.bpf.o

.PHONY: bench-record
bench-record: build build/.apt-test build/.apt-bench $(BENCH_PROGRAMS) ## what recording costs, beside its targets and other tracers
	$(SUDO) $(PYTHON) -m tests.bench.bench_record $(BENCH_ARGS)

build/bench/%.bpf.o: tests/bench/%.bpf.c | build/.apt
	@mkdir -p $(@D)
	$(call say,BPF,$<) $(CLANG) $(BPF_CFLAGS) -c $< -o $@

build/bench/attach_probes: tests/bench/attach_probes.c | build/.apt
	@mkdir -p $(@D)
	$(call say,CC,$<) $(CC) $(CFLAGS) $< -o $@ -lbpf -lelf -lz

.PHONY: bench-replay
bench-replay: build build/.apt-test build/.apt-bench build/tests/debit_credit ## lateness, throughput and fidelity of replays, beside their targets and fio
	$(SUDO) $(PYTHON) -m tests.bench.bench_replay $(BENCH_ARGS)

.PHONY: bench-replay-large
bench-replay-large: build ## how soon the engine starts a trace of 100 M records (6.4 GB), and its memory
	$(PYTHON) -m tests.bench.bench_replay_large $(BENCH_ARGS)

.PHONY: bench-alter
bench-alter: build build/.apt-test build/tests/debit_credit ## how well flexible traces meet and hold the parameters
	$(SUDO) $(PYTHON) -m tests.bench.bench_alter $(BENCH_ARGS)

.PHONY: bench-archive
bench-archive: build build/tests/debit_credit ## how small archives of traces are, and how fast they load
	$(SUDO) $(PYTHON) -m tests.bench.bench_archive $(BENCH_ARGS)

.PHONY: bench-import
bench-import: build ## how many lines of other tools' traces are read a second, and with how much memory
	$(PYTHON) -m tests.bench.bench_import $(BENCH_ARGS)

.PHONY: bench-characterize
bench-characterize: build ## how fast traces are characterized, samples' errors, memory; a trace of 100 M records (6.4 GB)
	$(PYTHON) -m tests.bench.bench_characterize $(BENCH_ARGS)

.PHONY: bench-cluster
bench-cluster: build ## elapsed time of characterize on 1 and 2 worker processes, and their ratio
	$(PYTHON) -m tests.bench.bench_cluster $(BENCH_ARGS)

.PHONY: bench-predict
bench-predict: build build/.apt-test build/.apt-bench build/tests/debit_credit ## predictions of four lab machines, and of applications on them, beside their targets (2 h)
	$(SUDO) $(PYTHON) -m tests.bench.bench_predict $(BENCH_ARGS)

.PHONY: bench-traffic
bench-traffic: build ## storage's traffic as simulated, beside what bench-predict measured (1 min)
	$(PYTHON) -m tests.bench.bench_traffic $(BENCH_ARGS)

.PHONY: bench-step
bench-step: build build/.apt-test ## how far measurements of one workload lie apart, with processes that keep step and without (8 min)
	$(SUDO) $(PYTHON) -m tests.bench.bench_step $(BENCH_ARGS)

.PHONY: bench-warm
bench-warm: build build/.apt-test ## how fast workloads are that begin with their files cached, beside those that have read them (15 min)
	$(SUDO) $(PYTHON) -m tests.bench.bench_warm $(BENCH_ARGS)

.PHONY: bench-models
bench-models: build ## every model's error on machines that are formulas, with equal points
	$(PYTHON) -m tests.bench.bench_models $(BENCH_ARGS)

##@ Clean
.PHONY: clean
clean: ## remove everything that was built (not .venv)
	$(SUDO) rm -rf build demo-output
	$(SUDO) $(delete_kernels)

.PHONY: distclean
distclean: clean ## remove .venv as well, and what Python and the tools keep
	$(SUDO) rm -rf .venv .hypothesis .mypy_cache .pytest_cache .ruff_cache
	$(SUDO) find . -name __pycache__ -prune -exec rm -rf {} +

# ---- what has to be installed ----

.PHONY: install
install: build/.apt .venv/.installed

# Asks dpkg first, so that a machine without network but with the packages works. One at a time: apt does not wait for
# another one. Without LC_ALL dpkg says in other languages what it does not know.
define apt_install
	@mkdir -p build
	@exec 9>build/apt.lock; flock 9; \
	missing=$$(LC_ALL=C dpkg-query -W -f '$${Package} $${db:Status-Status}\n' $(1) 2>&1 | \
		awk '/no packages found matching/ {print $$NF; next} NF == 2 && $$2 != "installed" {print $$1}'); \
	if [ -n "$$missing" ]; then \
		printf '  %-7s %s\n' APT "$$(echo $$missing)"; \
		$(SUDO) apt-get update -q >build/apt.log 2>&1 && \
		$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $$missing >>build/apt.log 2>&1 || \
		{ tail -20 build/apt.log; exit 1; }; \
	fi
	@touch $@
endef

build/.apt: Makefile
	$(call apt_install,$(APT_PACKAGES))

build/.apt-test: Makefile
	$(call apt_install,$(APT_TEST_PACKAGES))

build/.apt-bench: Makefile
	$(call apt_install,$(APT_BENCH_PACKAGES))

build/.apt-lint: Makefile
	$(call apt_install,$(APT_LINT_PACKAGES))

build/.apt-vm: Makefile
	$(call apt_install,$(APT_VM_PACKAGES))

.venv/.installed: pyproject.toml | build/.apt
	$(call say,VENV,.venv) python3 -m venv .venv
	$(call say,PIP,flextrace[dev]) .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# numba keeps what it compiled beside each file and does not see when another file that it was compiled from changes.
KERNEL_PLACES := characterize replayer selfscale
delete_kernels = find $(KERNEL_PLACES) -name '*.nb[ic]' -delete

build/.kernels: $(shell grep -rlE 'numba|import kernel$$' --include='*.py' $(KERNEL_PLACES)) \
		flextrace/compile_kernels.py .venv/.installed | build/.apt
	@$(delete_kernels) 2>/dev/null || $(SUDO) $(delete_kernels)
	$(call say,NUMBA,kernels) $(PYTHON) -m flextrace.compile_kernels
	@touch $@

# ---- what a VM consists of ----

build/vm/virtme/.installed: | build/.apt
	@mkdir -p $(@D)
	$(call say,VENV,$(@D)) python3 -m venv $(@D)
	$(call say,PIP,virtme-ng) $(@D)/bin/python -m pip install --quiet --disable-pip-version-check virtme-ng
	@touch $@

build/vm/%/release: tests/vm/fetch_kernel | build/.apt-vm
	@mkdir -p $(@D)
	$(call say,KERNEL,$*) tests/vm/fetch_kernel $* $(@D)

# ---- the recorder: bpf/*.bpf.c are linked into one BPF object, embedded through its skeleton ----

RECORD_OBJECTS := $(patsubst %.c,build/%.o,$(filter-out %.bpf.c,$(wildcard bpf/*.c)))
BPF_OBJECTS := $(patsubst %.c,build/%.o,$(wildcard bpf/*.bpf.c))
BPF_LIBRARIES := -lbpf -lelf -lz

# The version and the flags are in every object.
BUILT_BY := Makefile pyproject.toml

build/bpf/%.bpf.o: bpf/%.bpf.c $(wildcard bpf/*.h) $(BUILT_BY) | build/.apt
	@mkdir -p $(@D)
	$(call say,BPF,$<) $(CLANG) $(BPF_CFLAGS) -c $< -o $@

build/record.bpf.o: $(BPF_OBJECTS)
	$(call say,LINK,$@) bpftool gen object $@ $^

build/record.skel.h: build/record.bpf.o
	$(call say,SKEL,$@) bpftool gen skeleton $< name record_bpf >$@

build/bpf/%.o: bpf/%.c $(wildcard bpf/*.h) build/record.skel.h $(BUILT_BY)
	@mkdir -p $(@D)
	$(call say,CC,$<) $(CC) $(CFLAGS) -c $< -o $@

build/flextrace-record: $(RECORD_OBJECTS)
	$(call say,LD,$@) $(CC) $(CFLAGS) $^ -o $@ $(BPF_LIBRARIES)

# ---- the replay engine ----

ENGINE_LIBRARIES := -luring -lblkid -lpthread -lm
ENGINE_OBJECTS := $(patsubst %.c,build/%.o,$(wildcard replayer/engine/*.c))

build/replayer/engine/%.o: replayer/engine/%.c $(wildcard replayer/engine/*.h bpf/*.h) $(BUILT_BY) | build/.apt
	@mkdir -p $(@D)
	$(call say,CC,$<) $(CC) $(CFLAGS) -c $< -o $@

build/flextrace-replay: $(ENGINE_OBJECTS)
	$(call say,LD,$@) $(CC) $(CFLAGS) -static $^ -o $@ $(ENGINE_LIBRARIES)

# ---- programs that tests trace: each does a known number of operations ----

TEST_PROGRAMS := $(patsubst tests/programs/%.c,build/tests/%,$(wildcard tests/programs/*.c))
ifneq ($(ARCH),x86)
TEST_PROGRAMS := $(filter-out build/tests/compat,$(TEST_PROGRAMS))
endif
TEST_PROGRAMS += build/tests/replay_small_segments

.PHONY: build/test-programs
build/test-programs: $(TEST_PROGRAMS)

build/tests/debit_credit: PROGRAM_LIBRARIES := -lsqlite3
build/tests/burst: PROGRAM_LIBRARIES := -static
build/tests/refuse_program: PROGRAM_LIBRARIES := -shared -fPIC
RING_PROGRAMS := $(patsubst %,build/tests/%,alike closed_in_batch interrupted io_uring load many_rings \
	opened_meanwhile stores_beside_request stores_by_requests)
$(RING_PROGRAMS): PROGRAM_LIBRARIES := -luring

# Traces of some hundred operations become many segments. Tests replay them, and look at the schedule alone.
SMALL_SEGMENTS := -DSEGMENT_OPERATIONS=8u -DWHOLE_RECORDS_MAX=64u -DTRACE_BLOCK_RECORDS=4 -DPIECES_MAX=1024u -DANSWER_SECONDS_MAX=2
SCHEDULE_SOURCES := $(patsubst %,replayer/engine/%.c,schedule segment plan causes conflicts access files file_list file_moment file_paths file_ranges path_owners \
	system_path feed order trace_loss trace_reader timing message)

# What a program is made of beside its own file: parts of the engine, and of the recorder.
build/tests/computing: replayer/engine/others.c replayer/engine/timing.c
build/tests/segments: $(SCHEDULE_SOURCES)
build/tests/verdicts: replayer/engine/accuracy.c
build/tests/computing: PROGRAM_LIBRARIES := -lm
build/tests/segments: PROGRAM_LIBRARIES := $(SMALL_SEGMENTS)

build/tests/known_names: bpf/names.c
build/tests/quantities: bpf/quantity.c
build/tests/ring_plans: bpf/ring_plan.c
build/tests/shared_offsets: bpf/shared_offset.c
RECORDING_PROGRAMS := $(patsubst %,build/tests/%,late_records short_tracing trace_limits unnoted_offsets waiting_files)
$(RECORDING_PROGRAMS): $(filter-out build/bpf/record.o,$(RECORD_OBJECTS))
$(RECORDING_PROGRAMS): PROGRAM_LIBRARIES := $(BPF_LIBRARIES) -luring

build/tests/replay_small_segments: $(wildcard replayer/engine/*.[ch]) $(wildcard bpf/*.h) $(BUILT_BY) | build/.apt
	@mkdir -p $(@D)
	$(call say,CC,$@) $(CC) $(CFLAGS) $(SMALL_SEGMENTS) -static $(filter %.c,$^) -o $@ $(ENGINE_LIBRARIES)

build/tests/%: tests/programs/%.c $(wildcard tests/programs/*.h replayer/engine/*.h bpf/*.h) $(BUILT_BY) | build/.apt
	@mkdir -p $(@D)
	$(call say,CC,$<) $(CC) $(CFLAGS) $(filter %.c %.o,$^) -o $@ -lpthread $(PROGRAM_LIBRARIES)
