# Rules of bench/: one program, a plug-in for each peer whose headers are there, and programs that see inside.

# ---- peers from wheels -------------------------------------------------------------------------------------------------

# What `make peers` unpacks; used when it is there. ONEDNN=PREFIX: another oneDNN 3, with include/ and lib/ (built with OpenMP).
PEERS_DIR     ?= $(BUILD)/peers
peers_size    := 415 MB to download (ONNX Runtime, OpenVINO, OpenBLAS, oneDNN, JAX), 640 MB on disk
# The wheels that file $(1) lists, into folder $(2).
wheels_of      = python3 -m pip download --quiet --no-deps --require-hashes --only-binary=:all: --python-version 3.11 \
                 --implementation cp --abi cp311 --abi none --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
                 --platform manylinux1_x86_64 -r $(1) -d $(2)
peers_wheels   = $(call wheels_of,bench/requirements.txt,$(PEERS_DIR)/wheels)
peers_jax      = python3 -m pip install --quiet --no-deps --require-hashes --only-binary=:all: --target $(PEERS_DIR)/jax -r bench/requirements_jax.txt

# ONEDNN_SOURCE=FOLDER of oneDNN's source: built (many minutes) instead of taking the wheel's.
peers_onednn   = cmake -S $(ONEDNN_SOURCE) -B $(PEERS_DIR)/onednn-build -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_LIBDIR=lib \
                 -DONEDNN_CPU_RUNTIME=OMP -DONEDNN_GPU_RUNTIME=NONE -DONEDNN_ENABLE_WORKLOAD=INFERENCE \
                 -DONEDNN_BUILD_TESTS=OFF -DONEDNN_BUILD_EXAMPLES=OFF -DONEDNN_BUILD_DOC=OFF \
                 -DCMAKE_INSTALL_PREFIX=$(abspath $(PEERS_DIR)/onednn) && cmake --build $(PEERS_DIR)/onednn-build --target install

.PHONY: peers
peers:
	@CC='$(CC)' .ci/setup peers || echo 'Going on: of these, what is missing is not measured.'
	@echo 'Wheels for $(PEERS_DIR): $(peers_size)'
	@echo 'Command: $(peers_wheels)'
	@echo 'Command: $(peers_jax)'
	$(if $(ONEDNN_SOURCE),@echo 'Command: $(peers_onednn)')
	@if [ -n '$(NO_INSTALL)' ]; then echo 'NO_INSTALL is set: nothing was installed.' >&2; exit 1; fi
	@mkdir -p $(PEERS_DIR)/wheels
	$(Q)$(peers_wheels)
	$(Q)rm -rf $(foreach p,onnxruntime openvino openblas onednn,$(PEERS_DIR)/$(p))
	$(Q)python3 bench/unpack_wheels.py peers $(PEERS_DIR)/wheels $(PEERS_DIR)
	$(Q)rm -rf $(PEERS_DIR)/wheels $(PEERS_DIR)/jax
	$(Q)$(peers_jax) || echo 'Going on: JAX is not measured.'
	$(if $(ONEDNN_SOURCE),$(Q)rm -rf $(PEERS_DIR)/onednn; $(peers_onednn))
	@du -sh $(PEERS_DIR)

# PyTorch is gigabytes, since its package brings, and loads, libraries of CUDA.
peers_torch    = python3 -m pip install --quiet --no-deps --require-hashes --only-binary=:all: --no-compile --target $(PEERS_DIR)/torch -r bench/requirements_torch.txt
.PHONY: peers-torch
peers-torch:
	@echo 'PyTorch for $(PEERS_DIR): about 2 GB to download, 4 GB on disk'
	@echo 'Command: $(peers_torch)'
	@if [ -n '$(NO_INSTALL)' ]; then echo 'NO_INSTALL is set: nothing was installed.' >&2; exit 1; fi
	$(Q)rm -rf $(PEERS_DIR)/torch
	$(Q)$(peers_torch)

# ---- the plug-ins ------------------------------------------------------------------------------------------------------

ONEDNN       ?= $(PEERS_DIR)/onednn
bench_hash   := \#
# $(1) is what the compiler's preprocessor finds in header $(2).
bench_has     = $(shell echo '$(bench_hash)include <$(2)>' | $(CC) -E -dD -x c - 2>/dev/null | grep -m1 '$(1)')

# Those of `make peers` first, then the distribution's. Each has its objects, and flags to compile and to link them.
bench_peers  :=
ifneq ($(wildcard $(ONEDNN)/include/oneapi/dnnl/dnnl.h),)
bench_peers  += onednn
endif
ifneq ($(wildcard $(PEERS_DIR)/openblas/include/cblas.h),)
bench_peers  += openblas
endif
ifneq ($(wildcard $(PEERS_DIR)/onnxruntime/lib/libonnxruntime.so.1),)
bench_peers  += onnxruntime
endif
ifneq ($(wildcard $(PEERS_DIR)/jax/jax/version.py),)
bench_peers  += jax
endif
# That of `make peers-torch`, or else the user's own; the distribution's is a column of its own.
torch_system := /usr/lib/python3/dist-packages
torch        := $(if $(wildcard $(PEERS_DIR)/torch/torch/version.py),$(abspath $(PEERS_DIR)/torch),$(filter-out $(torch_system),\
                $(shell python3 -c 'import importlib.util as u; s = u.find_spec("torch"); print(s.origin.rsplit("/", 2)[0] if s else "")' 2>/dev/null)))
ifneq ($(torch),)
bench_peers  += torch torch_compile
endif
ifneq ($(wildcard $(torch_system)/torch/version.py),)
bench_peers  += torch_system
endif
ifneq ($(call bench_has,libxsmm_smmdispatch,libxsmm.h),)
bench_peers  += libxsmm
endif
ifneq ($(call bench_has,fftwf_plan_many_dft,fftw3.h),)
bench_peers  += fftw
endif
ifneq ($(call bench_has,VERSION_MAJOR 2$$,oneapi/dnnl/dnnl_version.h),)
bench_peers  += onednn2
endif
ifneq ($(call bench_has,openblas_get_corename,cblas.h),)
bench_peers  += openblas_system
endif

# From a folder: -l:file, found again at run time.
from_folder = -L$(1) -Wl,-rpath,$(abspath $(1)) -Wl,-rpath-link,$(1) -l:$(2)

peer_needs_onednn           := $(ONEDNN)/lib/libdnnl.so.3
peer_source_onednn          := peer_onednn peer_onednn_graph
peer_flags_onednn           := -isystem $(ONEDNN)/include
peer_libs_onednn             = $(call from_folder,$(ONEDNN)/lib,libdnnl.so.3) -l:libgomp.so.1
peer_needs_openblas         := $(PEERS_DIR)/openblas/lib/libscipy_openblas.so
peer_source_openblas        := peer_openblas
peer_flags_openblas         := -isystem $(PEERS_DIR)/openblas/include -DBENCH_OPENBLAS_SCIPY=1
peer_libs_openblas           = $(call from_folder,$(PEERS_DIR)/openblas/lib,libscipy_openblas.so)
peer_needs_onnxruntime      := $(PEERS_DIR)/onnxruntime/lib/libonnxruntime.so.1
peer_source_onnxruntime     := peer_onnxruntime onnxruntime onnx_blocks onnx_cases onnx_model
peer_libs_onnxruntime        = $(call from_folder,$(PEERS_DIR)/onnxruntime/lib,libonnxruntime.so.1)
# Name, interpreter, folder of packages, script, way, kinds of lines.
python_peer                  = -DBENCH_NAME='"$(1)"' -DBENCH_INTERPRETER='"$(2)"' -DBENCH_PACKAGES='"$(3)"' -DBENCH_SCRIPT='"$(abspath bench/$(4))"' \
                               -DBENCH_WAY='"$(5)"' -DBENCH_KINDS='"$(6)"'
peer_source_jax             := peer_python
peer_flags_jax               = $(call python_peer,jax,python3,$(abspath $(PEERS_DIR)/jax),train_jax.py,jit,train)
peer_source_torch           := peer_python
peer_flags_torch             = $(call python_peer,torch,python3,$(torch),train_torch.py,eager,train backward)
peer_source_torch_compile   := peer_python
peer_flags_torch_compile     = $(call python_peer,torch_compile,python3,$(torch),train_torch.py,compile,train backward)
peer_source_torch_system    := peer_python
peer_flags_torch_system      = $(call python_peer,torch_system,/usr/bin/python3,$(torch_system),train_torch.py,eager,train backward)
peer_source_libxsmm         := peer_libxsmm
peer_libs_libxsmm           := -lxsmm -lxsmmnoblas -lrt
peer_source_fftw            := peer_fftw
peer_libs_fftw              := -lfftw3f -lfftw3
# The OpenMP run time that this build of oneDNN uses.
peer_source_onednn2         := peer_onednn
peer_libs_onednn2           := -ldnnl -l:libgomp.so.1
peer_source_openblas_system := peer_openblas
peer_libs_openblas_system   := -lopenblas

bench_plugins := $(bench_peers:%=$(OUT)/bench/peer_%.so)
peer_shared   := $(patsubst %,$(OUT)/bench/%.o,blocks elements peer measure shape stats)
peer_folder    = $(OUT)/bench/plug-in/$(1)
# Built again when the way to build it changes, or the library that it speaks to.
define peer_rule
$(call peer_folder,$(1))/flags: FORCE
	@mkdir -p $$(@D)
	@echo '$(peer_flags_$(1)) $(peer_libs_$(1))' | cmp -s - $$@ || echo '$(peer_flags_$(1)) $(peer_libs_$(1))' > $$@
$(call peer_folder,$(1))/%.o: bench/%.c $(OUT)/configuration $(call peer_folder,$(1))/flags $(peer_needs_$(1))
	$$(call say,CC,$$< ($(1)))
	$$(Q)$$(CC) $$(CPPFLAGS_ALL) $$(peer_flags_$(1)) $$(CFLAGS_ALL) -MMD -MP -c $$< -o $$@
$(OUT)/bench/peer_$(1).so: $(peer_source_$(1):%=$(call peer_folder,$(1))/%.o) $(peer_shared)
	$$(call say,LINK,$$@)
	$$(Q)$$(CC) -shared $$(LDFLAGS_ALL) $$^ $$(peer_libs_$(1)) $$(LDLIBS_ALL) -o $$@
-include $(peer_source_$(1):%=$(call peer_folder,$(1))/%.d)
endef
$(foreach p,$(bench_peers),$(eval $(call peer_rule,$(p))))

# ---- the programs --------------------------------------------------------------------------------------------------------

bench_parts   := bench block_graphs blocks cases contest elements ending figures graphs last levels measure ours peers random random_lines roof sets shape stats summary train varying
bench_objects := $(bench_parts:%=$(OUT)/bench/%.o)
cliff_objects := $(patsubst %,$(OUT)/bench/%.o,choice_list cliffs measure random_graphs roof stats)
choice_objects := $(patsubst %,$(OUT)/bench/%.o,block_graphs blocks cases choice_list choices contest elements graphs measure ours shape stats train)
curve_objects := $(patsubst %,$(OUT)/bench/%.o,block_graphs blocks cases curves elements shape train)
bench_inside  := $(patsubst bench/%.c,$(OUT)/bench/%,$(wildcard bench/overhead.c))

# a*x + b on vectors becomes one instruction.
$(OUT)/bench/roof.o: private CFLAGS_ALL += -ffp-contract=fast
$(bench_objects) $(peer_shared): | $(GEN)/dlc/ops.h
check: $(OUT)/bench/bench $(OUT)/bench/cliffs $(OUT)/bench/choices $(OUT)/bench/curves models-build

$(OUT)/bench/bench: $(bench_objects) $(OUT)/libdlc.so
	$(call say,LINK,$@)
	$(Q)$(call link_public,-ldl)
$(OUT)/bench/cliffs: $(cliff_objects) $(OUT)/libdlc.so
	$(call say,LINK,$@)
	$(Q)$(call link_public)
$(OUT)/bench/choices: $(choice_objects) $(OUT)/libdlc.so
	$(call say,LINK,$@)
	$(Q)$(call link_public)
$(OUT)/bench/curves: $(curve_objects) $(OUT)/libdlc.so
	$(call say,LINK,$@)
	$(Q)$(call link_public)
$(bench_inside): $(OUT)/bench/%: $(OUT)/bench/%.o $(all_layers)
	$(call say,LINK,$@)
	$(Q)$(call link_internal)

# FILTER=text, THREADS=1,2, SAMPLES=15, SEED=1, PEERS=openblas,onednn|none. With a filter only the cases it selects.
THREADS ?= 1
# Compiled code of PyTorch is kept for the run, so that each case's first step is cold.
bench_run = mkdir -p $(BUILD)/bench; rm -rf $(BUILD)/bench/torch; status=0; TORCHINDUCTOR_CACHE_DIR=$(abspath $(BUILD))/bench/torch $(OUT)/bench/bench --json $(BUILD)/bench --threads $(THREADS) --sets \
            $(if $(SAMPLES),--samples $(SAMPLES)) $(if $(SEED),--seed $(SEED)) $(if $(FILTER),--filter '$(FILTER)',--figures) bench/default.txt $(1) || status=1
bench_see_inside = for program in $(if $(FILTER),,$(bench_inside)); do to=$(BUILD)/bench/$$(basename $$program).json; \
                   $$program > $$to || status=1; cat $$to; done; exit $$status

# Everything; a sample and the promised figures; nothing, but built.
.PHONY: bench bench-short bench-build
bench-build: $(OUT)/bench/bench $(bench_plugins) $(bench_inside)
bench: bench-build
	@$(call bench_run,$(if $(FILTER),,--random) bench/shapes.txt bench/variants.txt bench/train.txt); $(bench_see_inside)
bench-short: bench-build
	@$(bench_run); $(bench_see_inside)

# N random lines of all families beside the peers: what is tuned for the lists' lines shows here.
.PHONY: bench-random
bench-random: $(OUT)/bench/bench $(bench_plugins)
	@mkdir -p $(BUILD)/bench; $< --json $(BUILD)/bench --threads $(THREADS) --samples $(or $(SAMPLES),5) $(if $(SEED),--seed $(SEED)) $(if $(FILTER),--filter '$(FILTER)') --draw $(or $(N),500)

# Random graphs: whole against parts, against the roof, varying sizes against exact ones, the rules against SCHEDULES=50 random ones.
.PHONY: cliffs
cliffs: $(OUT)/bench/cliffs
	@$< $(if $(SEED),--seed $(SEED)) $(if $(CASE),--first $(CASE) --count 1,$(if $(N),--count $(N))) $(if $(SCHEDULES),--schedules $(SCHEDULES)) $(if $(FILTER),--filter '$(FILTER)')

# Each choice of the schedule rules changed alone: how good are rules and cost model? FILTER=text, LONGEST=3: milliseconds of a run at most,
# ALL=1: a line for each candidate; FROM=FILE: takes times from the output of an earlier run with ALL=1, to compare predictions alone.
.PHONY: choices
choices: $(OUT)/bench/choices
	@$< $(if $(FILTER),--filter '$(FILTER)') $(if $(LONGEST),--longest $(LONGEST)) $(if $(ALL),--all $(ALL)) $(if $(FROM),--from $(FROM)) bench/shapes.txt

# A transformer of characters trained on TEXT for STEPS by libdlc and by the peers, from the same weights on the same batches: their losses.
TEXT   ?= $(firstword $(wildcard /usr/share/common-licenses/GPL-3 bench/README.md))
STEPS  ?= 300
curves := $(BUILD)/bench/curves
# Of peer $(1), by interpreter $(2), with packages $(3) and script $(4).
learn   = $(if $(filter $(1),$(bench_peers)),PYTHONPATH=$(3) $(2) bench/$(4) --learn < $(curves)/case > $(curves)/$(1) && set -- "$$@" $(curves)/$(1);)
.PHONY: train-curves
train-curves: $(OUT)/bench/curves
	@rm -rf $(curves) && mkdir -p $(curves)
	@$< '$(TEXT)' $(STEPS) $(curves)/case > $(curves)/dlc
	@set -- $(curves)/dlc; $(call learn,jax,python3,$(abspath $(PEERS_DIR)/jax),train_jax.py) $(call learn,torch,python3,$(torch),train_torch.py) \
	$(call learn,torch_system,/usr/bin/python3,$(torch_system),train_torch.py) python3 bench/curves.py $$@

# The last run becomes the one that later ones are compared with; whole runs only.
.PHONY: bench-keep
bench-keep: bench-build
	@test -r $(BUILD)/bench/cases.json || { echo "$(BUILD)/bench/cases.json is missing: 'make bench' writes it." >&2; exit 1; }
	$(Q)$(OUT)/bench/bench --keep $(BUILD)/bench/cases.json > $(BUILD)/bench/last.txt && mv $(BUILD)/bench/last.txt bench/last.txt

# From the JSON lines of the last run.
.PHONY: plots
plots:
	@CC='$(CC)' .ci/setup plots
	@test -r $(BUILD)/bench/cases.json || { echo "$(BUILD)/bench/cases.json is missing: 'make bench' writes it." >&2; exit 1; }
	$(Q)python=python3; $$python -c 'import matplotlib' 2>/dev/null || python=/usr/bin/python3; \
	$$python bench/plots.py $(BUILD)/bench/cases.json $(BUILD)/bench

include bench/models/models.mk

-include $(curve_objects:.o=.d) $(cliff_objects:.o=.d) $(choice_objects:.o=.d) $(bench_objects:.o=.d) $(peer_shared:.o=.d) $(bench_inside:=.d)
