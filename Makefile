# The front door; CMake does the building.
#
#   make           build the library, the command line and the examples
#   make demo      answer a prompt with SmolLM2-135M (downloaded the first time): PROMPT="..." for another
#   make check     build and run every test, also with sanitizers
#   make install   into /usr/local, or PREFIX=...
#   make fuzz      run each fuzz target for FUZZ_SECONDS (60)
#   make format    clang-format of all C files
#   make clean     remove the build folder
#
# What is missing of scripts/packages.txt is installed first.
BUILD ?= build
PREFIX ?= /usr/local
PROMPT ?= What is gravity? Answer in two or three sentences.
FUZZ_SECONDS ?= 60
FUZZ_CC ?= clang-14

PYTHON = $(BUILD)/venv/bin/python
# Tests that start threads: these run under ThreadSanitizer, too.
THREADED = $(basename $(notdir $(shell grep -lE 'mt_machine_open|pthread_create' tests/test_*.c 2>/dev/null)))
CONFIGURE = cmake -S . -G Ninja -Wno-dev --log-level=NOTICE

.PHONY: all packages demo check install fuzz format clean
.NOTPARALLEL:

all: packages
	@$(CONFIGURE) -B $(BUILD) -DMONOTILE_TESTS=OFF
	@cmake --build $(BUILD)

packages:
	@scripts/packages.sh

demo: all
	@scripts/venv.sh $(BUILD)/venv
	@model=$$($(PYTHON) scripts/model.py) && echo "> $(PROMPT)" && $(BUILD)/monotile run "$$model" -p "$(PROMPT)" -n 200

check: packages
	@$(CONFIGURE) -B $(BUILD) -DMONOTILE_TESTS=ON
	@cmake --build $(BUILD)
	@$(CONFIGURE) -B $(BUILD)/address -DMONOTILE_SANITIZE=address,undefined
	@cmake --build $(BUILD)/address
	@$(CONFIGURE) -B $(BUILD)/thread -DMONOTILE_SANITIZE=thread
	@$(if $(THREADED),cmake --build $(BUILD)/thread --target $(THREADED))
	@python3 tests/run.py --build $(BUILD) --address $(BUILD)/address --thread $(BUILD)/thread --threaded "$(THREADED)"

install: all
	@cmake --install $(BUILD) --prefix $(PREFIX)

fuzz: packages
	@$(CONFIGURE) -B $(BUILD)/fuzz -DCMAKE_C_COMPILER=$(FUZZ_CC) -DMONOTILE_TESTS=OFF -DMONOTILE_FUZZ=ON
	@cmake --build $(BUILD)/fuzz
	@for target in $(basename $(notdir $(wildcard tests/fuzz_*.c))); do \
	    echo "==== $$target"; mkdir -p $(BUILD)/fuzz/corpus/$$target; \
	    $(BUILD)/fuzz/$$target -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 \
	        -artifact_prefix=$(BUILD)/fuzz/ $(BUILD)/fuzz/corpus/$$target || exit 1; \
	done

format:
	@clang-format -i $(wildcard include/monotile/*.h src/*/*.[ch] src/*/*/*.[ch] tests/*.[ch] examples/*.c bench/*.[ch])

clean:
	@rm -rf $(BUILD)
