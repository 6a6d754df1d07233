# These commands do everything on a fresh machine, in a private environment (.venv):
#
#   make study    install, run the digits study, write its table and plot into $(OUT)
#   make studies  install, run every study that has checks into studies, and a page about them: studies/report.html
#   make docs     build the documentation site into build/site, in an environment of its own (make docs-serve: show it)
#   make test     install, run all tests (make test-long: and those of the long run, and compile every GPU kernel)
#   make wheels   build the sdist and the wheels for Linux, on x86-64 and 64-bit Arm, into wheelhouse
#
# Needed beforehand: Python >= 3.10 and, unless a wheel fits, a C++ compiler. The build fetches CMake when the system has none.
#
#   make study OUT=elsewhere          make test PYTEST_ARGS="-x -k formats"
#   make PYTHON=python3.12 ...        the interpreter .venv is made with
#   make PIP_ARGS="..." ...           passed to pip as it is (for example --index-url, for a CPU-only build of PyTorch)
#   make GEMMSIM_ISAS=all ...         kernels for AVX2 and AVX-512, not for this machine's widest set alone; twice the time
#   make WHEELS=folder ...            where a wheel of these sources may be, which spares the compilation (WHEELS=: compile)
#   make TORCH=2.15.0 ...             another PyTorch (TORCH=newest: the last one), in .venv-2.15.0, without gemmsim[cuda]

PYTHON ?= python3
TORCH ?=
# Wheels compile all; here the machine's own set and the baseline suffice (cutlass_kernels/cpu/CMakeLists.txt).
GEMMSIM_ISAS ?= native
export GEMMSIM_ISAS
VENV ?= .venv$(if $(TORCH),-$(TORCH))
OUT ?= study_digits
PIP_ARGS ?=
PYTEST_ARGS ?= -n auto --dist worksteal
KERNELS_ARGS ?=
WHEELS ?= wheelhouse
WHEELS_ARGS ?=
PYTHON_VERSION ?= 3.12
ARCH ?= sm_90a
GPU_ARGS ?=

BIN := $(VENV)/bin
STAMP := $(VENV)/.gemmsim-installed$(if $(TORCH),-$(TORCH))-$(GEMMSIM_ISAS)
# The install is editable: only these files ask for it to be done again, a changed .py file does not.
INSTALL_INPUTS := pyproject.toml constraints.txt CMakeLists.txt \
    $(shell find cutlass_kernels -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.txt' -o -name '*.cmake' -o -name '*.in' \))

CXX_FILES = $(shell find cutlass_kernels examples/cute tests/cpp -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' \))

# Another PyTorch brings other versions of what it asks for, so its part of the constraints is left out. The compiler of
# GPU kernels has exact versions, which other builds of PyTorch exclude.
CONSTRAINTS := $(if $(TORCH),$(VENV)/constraints.txt,constraints.txt)
EXTRA := $(if $(TORCH),checks,test)
TORCH_REQUIREMENT := $(if $(TORCH),$(if $(filter newest,$(TORCH)),torch,torch==$(TORCH)))

.DEFAULT_GOAL := help
.PHONY: help install study studies test test-long aarch64 lint format kernels gpu-check gpu-bundle bench bench-peers docs \
    docs-serve notebooks wheels check-wheels clean check-python check-compiler

help:
	@sed -n '/^#/!q;s/^# \{0,1\}//p' Makefile

check-python:
	@command -v "$(PYTHON)" >/dev/null 2>&1 || { \
	    echo "error: '$(PYTHON)' not found. gemmsim needs Python 3.10 or newer; name one with make PYTHON=..." >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	    echo "error: $$("$(PYTHON)" --version) is too old. gemmsim needs Python 3.10 or newer; name one with make PYTHON=..." >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
	    echo "error: $(PYTHON) cannot make virtual environments. Install its venv module (Debian, Ubuntu: apt-get install python3-venv)." >&2; exit 1; }

check-compiler:
	@for cxx in "$${CXX:-c++}" g++ clang++; do command -v "$${cxx%% *}" >/dev/null 2>&1 && exit 0; done; { \
	    echo "error: no C++ compiler found (looked for \$$CXX, c++, g++ and clang++). gemmsim builds a small C++ library."; \
	    echo "  Debian, Ubuntu: apt-get install g++    Fedora: dnf install gcc-c++    macOS: xcode-select --install"; \
	    echo "  Or name one you have: make CXX=/path/to/compiler ..."; } >&2; exit 1

$(STAMP): $(INSTALL_INPUTS)
	@$(MAKE) --no-print-directory check-python
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	@test -z "$(TORCH)" || sed '/^# PyTorch and what it asks for/,$$d' constraints.txt > $(CONSTRAINTS)
	@$(if $(WHEELS),"$(PYTHON)" packaging/prebuilt.py "$(WHEELS)" build/prebuilt) > $(VENV)/prebuilt
	@test -s $(VENV)/prebuilt || $(MAKE) --no-print-directory check-compiler
	GEMMSIM_PREBUILT="$$(cat $(VENV)/prebuilt)" $(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) $(PIP_ARGS) \
	    $(TORCH_REQUIREMENT) --editable '.[$(EXTRA)]'
	@rm -f $(VENV)/.gemmsim-installed*
	@touch $@

install: $(STAMP)

study: $(STAMP)
	$(BIN)/gemmsim study run digits --out $(OUT)

# The page is written whatever the checks say; the exit code is theirs.
studies: $(STAMP)
	$(BIN)/gemmsim study run all --out studies; code=$$?; \
	    $(BIN)/gemmsim study report studies --out studies/report.html && exit $$code

test: $(STAMP)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# All that the tests and the check of the kernels leave out where a digest or a smaller case stands for it.
test-long: $(STAMP)
	$(BIN)/python benchmarks/kernels.py --check --all $(KERNELS_ARGS)
	$(BIN)/python -m pytest --long $(PYTEST_ARGS)

# The CPU library for 64-bit Arm: compiled, and calls recorded here made again under qemu-user, bit for bit.
aarch64: $(STAMP)
	bash tests/cpp/install_aarch64.sh
	$(BIN)/python -m pytest tests/backends/test_aarch64.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(CXX_FILES)
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)

# GPU kernels without a GPU: compile those that changed since the baseline for four architectures, look at the machine
# code, compare. KERNELS_ARGS=--update writes the baseline, KERNELS_ARGS=--all compiles every one.
kernels: $(STAMP)
	$(BIN)/python benchmarks/kernels.py --check $(KERNELS_ARGS)

# Everything that only a GPU can show: bits, the chip's own arithmetic, speed. Results in gpu_results.
gpu-check: $(STAMP)
	$(BIN)/python benchmarks/gpu_check.py $(GPU_ARGS)

# The same for a machine without internet: one folder, to be copied there (docs/howto/gpu.md).
gpu-bundle: $(STAMP)
	GEMMSIM_ISAS=all $(BIN)/python benchmarks/gpu_bundle.py --python $(PYTHON_VERSION) --arch $(ARCH) $(GPU_ARGS) $(if $(PIP_ARGS),--pip $(PIP_ARGS))

bench: $(STAMP)
	$(BIN)/python -m benchmarks

# The site needs neither PyTorch nor an installed gemmsim: the API reference is read from the source (docs/hooks).
DOCS_VENV ?= .venv-docs
DOCS_STAMP := $(DOCS_VENV)/.gemmsim-docs-installed
# The line about another project that the theme prints at each build is left out.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/python -m mkdocs

$(DOCS_STAMP): docs/requirements.txt
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "error: make docs needs Python 3.11 or newer; name one with make PYTHON=..." >&2; exit 1; }
	@test -x $(DOCS_VENV)/bin/python || "$(PYTHON)" -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --quiet $(PIP_ARGS) --requirement docs/requirements.txt
	@touch $@

# Strict: a broken link or anchor, a page outside the navigation or any other warning is an error.
docs: $(DOCS_STAMP)
	$(MKDOCS) build --strict --clean

docs-serve: $(DOCS_STAMP)
	$(MKDOCS) serve

# Environments on top of $(VENV), which they see: $(call above,FOLDER,REQUIREMENTS).
define above
	@test -x $(1)/bin/python || $(BIN)/python -m venv $(1)
	$(1)/bin/python -m pip install --quiet $(PIP_ARGS) --requirement $(2)
	@$(BIN)/python -c "import sysconfig; print(f'import site; site.addsitedir({sysconfig.get_path(\"purelib\")!r})')" \
	    > "$$($(1)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/zz_gemmsim.pth"
endef

# Other packages on the same operands: results, and docs/measurements/peers.md.
bench-peers: $(STAMP)
	$(call above,.venv-peers,benchmarks/peers/requirements.txt --no-deps)
	.venv-peers/bin/python benchmarks/peers/compare.py
	$(BIN)/python benchmarks/peers/page.py

# Runs docs/notebooks and stores their outputs.
notebooks: $(STAMP)
	$(call above,.venv-notebooks,docs/notebooks/requirements.txt)
	.venv-notebooks/bin/python -m ipykernel install --prefix .venv-notebooks --name python3
	PATH="$(CURDIR)/.venv-notebooks/bin:$$PATH" .venv-notebooks/bin/python docs/notebooks/execute.py

# What a release uploads (docs/contributing/release.md). WHEELS_ARGS=x86_64 builds one platform alone.
build/wheel_tools/.installed: packaging/requirements.txt
	@$(MAKE) --no-print-directory check-python
	"$(PYTHON)" -m venv build/wheel_tools
	build/wheel_tools/bin/python -m pip install --quiet --requirement packaging/requirements.txt
	@touch $@

wheels: build/wheel_tools/.installed
	build/wheel_tools/bin/python packaging/wheels.py $(WHEELS_ARGS)

# The x86-64 wheel in a new environment without a compiler, and its bits against this tree's installation; the library of
# the aarch64 wheel under qemu-user.
check-wheels: $(STAMP)
	cd wheelhouse && sha256sum --quiet --check SHA256SUMS
	$(BIN)/python packaging/check_wheel.py --pip="$(PIP_ARGS)" wheelhouse/gemmsim-*_x86_64.whl
	bash tests/cpp/install_aarch64.sh
	$(BIN)/python packaging/check_aarch64.py wheelhouse/gemmsim-*_aarch64.whl

clean:
	rm -rf build .pytest_cache .mypy_cache .ruff_cache .hypothesis $(VENV)/.gemmsim-installed*
