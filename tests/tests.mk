# Set-up, tests, benches and fuzzing. Included by the Makefile; tests/README.md tells how they are written.
#
# check runs in three steps, since what a step installs decides what the next one's make finds: packages; programs,
# unit tests and fuzzers, in a build with and one without sanitizers; tests/run.py on what was built.

# Sub-makes use all processors unless the caller chose.
PARALLEL = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc))
SUBMAKE   = +$(MAKE) --no-print-directory $(PARALLEL)

# What to run, and a word that cases' names must hold: make check SUITES="unit lint" MATCH=frame
SUITES       ?= unit lint fuzz integration boot
MATCH        ?=
FUZZ_SECONDS ?= 30

STAGE_RELEASE  := $(CURDIR)/build/stage-release
STAGE_SANITIZE := $(CURDIR)/build/stage-sanitize

deps:
	@tools/install-deps.sh build

deps-test:
	@tools/install-deps.sh build test

check: deps-test
	$(SUBMAKE) check-build WERROR=1
	$(SUBMAKE) check-run WERROR=1

# Everything that tests run on, without running anything. The fuzzers are built by another compiler, whose warnings
# are not the contract.
check-build:
	$(SUBMAKE) B=build/release all man unit-tests test-helpers
	$(SUBMAKE) B=build/sanitize SANITIZE=1 all man unit-tests test-helpers
	$(SUBMAKE) B=build/release stage STAGE=$(STAGE_RELEASE)
	$(SUBMAKE) B=build/sanitize SANITIZE=1 stage STAGE=$(STAGE_SANITIZE)
	$(SUBMAKE) fuzz-build

# The programs as a package would install them, in a directory of their own.
stage:
	@rm -rf $(STAGE)
	@$(MAKE) --no-print-directory B=$(B) SANITIZE=$(SANITIZE) install DESTDIR=$(STAGE) PREFIX=/usr >/dev/null

# Exported, since quotes in it would not survive another pair around them.
check-run: export LINT_CPPFLAGS = $(ALL_CPPFLAGS)
check-run:
	@ILOADER_STAGE_RELEASE=$(STAGE_RELEASE) ILOADER_STAGE_SANITIZE=$(STAGE_SANITIZE) \
		FUZZ_SECONDS=$(FUZZ_SECONDS) $(PYTHON) tests/run.py $(if $(MATCH),--match '$(MATCH)') $(SUITES)

# Small programs that integration tests need beside the product's, for example to make a system call fail.
TEST_HELPERS := $(patsubst tests/helpers/%.c,$(B)/helpers/%,$(wildcard tests/helpers/*.c))
test-helpers: $(TEST_HELPERS)
$(B)/helpers/%.so: tests/helpers/%.so.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CPPFLAGS) -std=gnu11 -O1 -g $(WARN) -fPIC -shared -o $@ $<
$(B)/helpers/%: tests/helpers/%.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CPPFLAGS) -std=gnu11 -O1 -g $(WARN) -o $@ $<

# Fuzzers: tests/fuzz/fuzz-NAME.c with clang's libFuzzer, corpora in tests/fuzz/corpus/fuzz-NAME/. The seeded builds
# hold a fault (FUZZ_SEEDED_FAULT) that the fuzzer must find, as proof that it gets that far.
FUZZERS := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz-*.c))
FUZZ_MAKE = $(SUBMAKE) CC=clang WERROR= CI= \
	OPT='-O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer' \
	LDOPT='-fsanitize=fuzzer,address,undefined'

fuzz-build:
	$(FUZZ_MAKE) B=build/fuzz fuzzers
fuzzers: $(addprefix $(B)/fuzz/,$(FUZZERS)) $(addprefix build/fuzz-seeded/fuzz/,$(FUZZERS))
# The fault is in the fuzzer's own file: all else is shared.
$(B)/seeded/fuzz-%.o: tests/fuzz/fuzz-%.c | $(B)/gen/wire/manager-interface.h
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(ALL_CPPFLAGS) -DFUZZ_SEEDED_FAULT $(ALL_CFLAGS) -MMD -MP -c -o $@ $<
build/fuzz-seeded/fuzz/%: $(B)/seeded/%.o $(ARCHIVES) $(B)/libdaemon.a
	@mkdir -p $(@D)
	$(link) $(LIBS)
$(B)/fuzz/%: $(B)/tests/fuzz/%.o $(ARCHIVES) $(B)/libdaemon.a
	@mkdir -p $(@D)
	$(link) $(LIBS)

# Longer fuzzing than check's: make fuzz FUZZ_SECONDS=3600
fuzz: FUZZ_SECONDS = 300
fuzz: deps-test
	$(SUBMAKE) fuzz-build
	@FUZZ_SECONDS=$(FUZZ_SECONDS) $(PYTHON) tests/run.py fuzz

bench: deps
	$(SUBMAKE) B=build/release all man
	$(SUBMAKE) B=build/release stage STAGE=$(STAGE_RELEASE)
	@ILOADER_STAGE=$(STAGE_RELEASE) $(PYTHON) bench/run.py $(BENCH)

# The tour of the README on a sample, or on a checkpoint of the caller's: make quickstart MODEL=/models/Qwen3-8B
quickstart: deps
	$(SUBMAKE) B=build/release all
	@tools/quickstart.sh build/release $(MODEL)

# Root file systems for the boot tests, ahead of time (check makes what is missing).
boot-roots: deps-test
	tests/boot/make-root bookworm trixie sid-llama sid-torch

.PHONY: deps-test check-build check-run stage test-helpers fuzz-build fuzzers boot-roots
