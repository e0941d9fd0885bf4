# libdlc. `make help` lists what there is to do and the variables.

# ---- settings ------------------------------------------------------------------------------------------------------

MODE        ?= release
BUILD       ?= build
TARGETS     ?= cpu cuda interp null
LLVM_CONFIG ?= llvm-config-19
LLVM        ?= static
ONNX        ?= yes
PREFIX      ?= /usr/local
DESTDIR     ?=
LIBDIR      ?= $(PREFIX)/lib
INCLUDEDIR  ?= $(PREFIX)/include
BINDIR      ?= $(PREFIX)/bin
MANDIR      ?= $(PREFIX)/share/man
DOCDIR      ?= $(PREFIX)/share/doc/libdlc
CC          ?= cc
CXX         ?= c++
AR          ?= ar
CLANG_FORMAT ?= clang-format-14
CUDA_HOME   ?= /usr/local/cuda
TEST_SECONDS ?= 600

OUT := $(BUILD)/$(MODE)
GEN := $(OUT)/gen

# All processors, unless -j says otherwise.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)
endif
MAKEFLAGS += --no-print-directory

version_part = $(shell awk '$$2 == "DLC_VERSION_$(1)" { print $$3 }' include/dlc/dlc.h)
SOVERSION   := $(call version_part,MAJOR)
VERSION     := $(SOVERSION).$(call version_part,MINOR).$(call version_part,PATCH)

# ---- flags ---------------------------------------------------------------------------------------------------------

WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wconversion
# What AddressSanitizer reports as well takes a tenth of the time to compile.
SANITIZE_asan  := -fsanitize=address,undefined -fno-sanitize=null,object-size -fno-sanitize-recover=undefined
SANITIZE_tsan  := -fsanitize=thread
SANITIZE_coverage := --coverage
SANITIZE_libfuzzer := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
CFLAGS_release := -O2 -g1
CFLAGS_debug   := -O0 -g -DDLC_DEBUG_BUILD=1
CFLAGS_asan    := -Og -g1 -DDLC_DEBUG_BUILD=1 $(SANITIZE_asan) -fno-omit-frame-pointer
CFLAGS_coverage := -O1 -g -DDLC_DEBUG_BUILD=1 $(SANITIZE_coverage)
CFLAGS_libfuzzer := -O1 -g -DDLC_DEBUG_BUILD=1 $(SANITIZE_libfuzzer) -fno-omit-frame-pointer
CFLAGS_tsan    := -Og -g1 -DDLC_DEBUG_BUILD=1 $(SANITIZE_tsan) -fno-omit-frame-pointer

include_targets := $(sort interp $(TARGETS))
CPPFLAGS_ALL = -I. -Iinclude -I$(GEN) -D_GNU_SOURCE $(foreach t,$(include_targets),-DDLC_TARGET_$(t)=1) $(if $(filter no,$(ONNX)),,-DDLC_ONNX=1) $(CPPFLAGS)
CFLAGS_ALL   = -std=c11 $(WARNINGS) $(CFLAGS_$(MODE)) -fPIC -fvisibility=hidden -ffp-contract=off -ffunction-sections \
               -fdata-sections $(CFLAGS)
LDFLAGS_ALL  = $(SANITIZE_$(MODE)) -Wl,--gc-sections -Wl,--as-needed $(LDFLAGS)
LDLIBS_ALL   = $(FILE_LIBS) -lm -lpthread -ldl $(LDLIBS)

# lib$(1).a by its path where there is one, else -l$(1): what the library needs beside libc comes inside it.
comma := ,
archive_or_shared = $(or $(filter /%,$(shell $(CC) -print-file-name=lib$(1).a 2>/dev/null)),-l$(1))
FFI_LIBS  := $(call archive_or_shared,ffi)
FILE_LIBS := $(foreach l,minizip z,$(call archive_or_shared,$(l)))

# LLVM: the code generator and the linker of its JIT; not its pass library, which is a third of the size.
# libz3 and libxml2 in --system-libs belong to components that are not linked.
ifneq ($(filter cpu,$(TARGETS)),)
LLVM_COMPONENTS := x86codegen x86desc x86info x86asmparser orcjit
LLVM_INCLUDE    := $(shell $(LLVM_CONFIG) --includedir 2>/dev/null)
LLVM_LIBDIR     := $(shell $(LLVM_CONFIG) --libdir 2>/dev/null)
LLVM_SHARED     := $(shell $(LLVM_CONFIG) --link-shared --ldflags --libs 2>/dev/null)
ifeq ($(LLVM),static)
ifeq ($(wildcard $(LLVM_LIBDIR)/libLLVMOrcJIT.a),)
LLVM_NOTE       := no static LLVM in $(LLVM_LIBDIR): libdlc will need the shared one at run time
LLVM_LIBS       := $(LLVM_SHARED)
else
LLVM_ARCHIVES   := $(shell $(LLVM_CONFIG) --link-static --libs $(LLVM_COMPONENTS) 2>/dev/null)
LLVM_BESIDE     := $(call archive_or_shared,z) $(call archive_or_shared,zstd)
LLVM_STDCXX     := $(call archive_or_shared,stdc++)
LLVM_LIBS       := -L$(LLVM_LIBDIR) $(LLVM_ARCHIVES) $(LLVM_BESIDE) $(LLVM_STDCXX) -ldl -lrt
# __gnu_cxx::__freeres of the C++ library that lies in libdlc.so (targets/cpu/compile.c).
own_stdcxx      := $(if $(filter %.a,$(LLVM_STDCXX)),-Wl$(comma)--defsym=cpu_release_exceptions=_ZN9__gnu_cxx9__freeresEv)
endif
else
LLVM_LIBS       := $(LLVM_SHARED)
endif
# Programs that see inside take LLVM shared where there is one: they link in a fraction of the time.
LLVM_TEST_LIBS  := $(or $(LLVM_SHARED),$(LLVM_LIBS))
endif

# ---- sources -------------------------------------------------------------------------------------------------------

lib_src    := $(wildcard lib/*.c)
tir_src    := $(wildcard tir/*.c)
gen_onnx   := $(wildcard graph/onnx/gen_*.c)
onnx_src   := $(if $(filter no,$(ONNX)),,$(filter-out $(gen_onnx),$(wildcard graph/onnx/*.c)))
graph_src  := $(filter-out graph/gen_ops.c graph/bound%.c,$(wildcard graph/*.c)) $(onnx_src)
jit_src    := $(wildcard jit/*.c)
target_src := $(wildcard targets/*.c) $(foreach t,$(include_targets),$(wildcard targets/$(t)/*.c))
sources    := $(lib_src) $(tir_src) $(graph_src) $(target_src) $(jit_src)
objects    := $(sources:%.c=$(OUT)/%.o) $(OUT)/gen/ops_api.o $(OUT)/gen/build_id.o

# test/<layer>/x.c is a program, unless x.h stands beside it: then it is linked into the programs of its folder.
all_test_src := $(filter-out test/fuzz/% test/libfuzzer/%,$(wildcard test/*/*.c))
test_support := $(foreach f,$(all_test_src),$(if $(wildcard $(f:.c=.h)),$(f)))
test_src     := $(filter-out $(test_support),$(all_test_src))
ifeq ($(filter cpu,$(TARGETS)),)
test_src     := $(filter-out test/cpu/%,$(test_src))
endif
ifeq ($(filter cuda,$(TARGETS)),)
test_src     := $(filter-out test/cuda/%,$(test_src))
endif
ifeq ($(ONNX),no)
test_src     := $(filter-out test/onnx/%,$(test_src))
endif
# Conformance takes long: it runs in parts, which are links to one program.
conformance_parts := $(foreach i,1 2 3 4 5 6 7 8,$(OUT)/test/conformance/part$(i)of8)
test_bins    := $(filter-out $(OUT)/test/conformance/conformance,$(test_src:%.c=$(OUT)/%)) $(conformance_parts) $(OUT)/test/api/header_test_cxx
test_scripts := $(wildcard test/*/*.sh)
# Programs that spend their time in generated code, which sanitizers do not see, or compare what other programs compute, too.
generated    := $(addprefix $(OUT)/test/,$(addprefix api/,cast_test factor_test gradient_f32_test growth_test long_sums_test map_ulp_test matrix_test sample_test unaligned_test weights_test winograd_test) \
                determinism/determinism determinism/rules golden/cycles golden/cuda_choices golden/cuda_mutants tir/math_ulp)
# Without a target that generates code, these take long on the interpreter or repeat what they do with one.
with_code    := $(generated) $(addprefix $(OUT)/test/,api/digits_test api/names_test determinism/% golden/% onnx/conformance)
not_run      := $(if $(SANITIZE_$(MODE)),$(generated)) $(if $(filter cpu,$(TARGETS)),,$(with_code))
# What has threads, its own or the library's: of these programs those whose sources speak of them, but for training_memory_test, which spends its
# time on compiling large graphs (train_test runs steps on threads).
of_threads   := $(filter $(addprefix test/,cpu/orc% cuda/async% cuda/batch% cuda/run% jit/% lib/pool% lib/memory% api/% onnx/host% onnx/runner% onnx/lists% onnx/states%),$(test_src))
tsan_bins    := $(filter-out $(generated) $(OUT)/test/api/training_memory_test,$(patsubst %.c,$(OUT)/%,\
                $(shell grep -l 'pthread_create\|start_thread\|threads\|parallel_for\|background_compile' $(of_threads) /dev/null)))

# examples/x.c, examples/x.cpp or examples/x/*.c; ocr reads .png files.
png_header    := \#include <png.h>
without_png   := $(if $(shell echo '$(png_header)' | $(CC) -E -x c - >/dev/null 2>&1 && echo yes),,ocr)
example_names := $(filter-out $(without_png),$(sort $(notdir $(basename $(wildcard examples/*.c examples/*.cpp))) $(notdir $(patsubst %/,%,$(dir $(wildcard examples/*/*.c))))))
example_src   := $(filter-out $(without_png:%=examples/%/%),$(wildcard examples/*.c examples/*/*.c))
example_cxx   := $(wildcard examples/*.cpp)
example_bins  := $(example_names:%=$(OUT)/bin/%)
bench_src     := $(wildcard bench/*.c bench/models/*.c)

# ---- how to say it -------------------------------------------------------------------------------------------------

ifdef V
say =
Q :=
else
say = @printf '  %-6s %s\n' '$(1)' '$(2)'
Q := @
endif
megabytes = awk '{ printf "%.1f MB", $$1 / 1e6 }'

.DEFAULT_GOAL := lib
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: FORCE
FORCE:

# ---- objects -------------------------------------------------------------------------------------------------------

# Everything is rebuilt when the way to build it changes.
configuration := $(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) $(LDFLAGS_ALL) LLVM: $(LLVM_LIBS)
$(OUT)/configuration: FORCE
ifneq ($(filter cpu,$(TARGETS)),)
	@$(LLVM_CONFIG) --version >/dev/null 2>&1 || { echo "$(LLVM_CONFIG) is missing: 'make setup' installs it," \
	    "LLVM_CONFIG=... names another one, TARGETS=cuda or TARGETS=interp builds without LLVM." >&2; exit 1; }
endif
	@mkdir -p $(@D)
	@printf '%s\n' '$(configuration)' | cmp -s - $@ || printf '%s\n' '$(configuration)' > $@

$(OUT)/%.o: %.c $(OUT)/configuration
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) -MMD -MP -c $< -o $@

# LLVM's headers are not ours to warn about.
$(OUT)/targets/cpu/%.o: CPPFLAGS_ALL += $(if $(LLVM_INCLUDE),-isystem $(LLVM_INCLUDE)) $(if $(LLVM_ARCHIVES),-DDLC_LLVM_STATIC=1)

# Rows of operators and imports run once for a node of a graph: their size counts (0.14 MB), not their time.
ifeq ($(MODE),release)
$(patsubst %.c,$(OUT)/%.o,$(wildcard graph/ops_*.c) $(onnx_src)) $(OUT)/gen/ops_api.o: private CFLAGS_ALL += -Os
endif

# The operators' public header, the functions behind it and the reference come from the operator table. Their files keep
# their times when nothing in them changed.
gen_objects := $(patsubst %.c,$(OUT)/%.o,$(lib_src) $(tir_src) $(filter-out graph/api%.c,$(graph_src)) graph/gen_ops.c $(if $(onnx_src),$(gen_onnx)))
$(OUT)/gen_ops: $(gen_objects)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ $(LDLIBS_ALL) -o $@
$(OUT)/gen_ops.done: $(OUT)/gen_ops $(wildcard include/dlc/*.h)
	$(call say,GEN,$(GEN))
	@mkdir -p $(GEN)/dlc
	$(Q)set -e; $< names $(wildcard include/dlc/*.h); for pair in header:dlc/ops.h cxx:dlc/ops.hpp source:ops_api.c reference:operators.md; do \
	    to=$(GEN)/$${pair#*:}; $< $${pair%%:*} > $$to.new; \
	    if cmp -s $$to.new $$to; then rm $$to.new; else mv $$to.new $$to; fi; done
	@touch $@
$(GEN)/dlc/ops.h $(GEN)/dlc/ops.hpp $(GEN)/ops_api.c $(GEN)/operators.md: $(OUT)/gen_ops.done ;
$(OUT)/gen/ops_api.o: $(GEN)/ops_api.c $(OUT)/configuration
	$(call say,CC,$<)
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) -MMD -MP -c $< -o $@
$(filter-out $(gen_objects),$(objects)): | $(GEN)/dlc/ops.h

# What tells builds of the library from each other: a hash over its sources and over how they are compiled.
build_inputs := $(sort $(sources) $(foreach d,lib tir graph graph/onnx jit targets targets/* include/dlc,$(wildcard $(d)/*.h)))
$(GEN)/build_id.c: $(build_inputs) $(OUT)/configuration
	@mkdir -p $(@D)
	$(call say,GEN,$@)
	$(Q)printf '#include "lib/lib.h"\nconst char lib_build_id[] = "%s";\n' "$$(cat $^ | sha256sum | cut -d ' ' -f 1)" > $@
$(OUT)/gen/build_id.o: $(GEN)/build_id.c
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) -MMD -MP -c $< -o $@

# Everything compiled, nothing linked.
.PHONY: objects
objects: $(objects) $(all_test_src:%.c=$(OUT)/%.o) $(example_src:%.c=$(OUT)/%.o) $(example_cxx:%.cpp=$(OUT)/%.o)

# ---- libraries -----------------------------------------------------------------------------------------------------

.PHONY: lib
lib: $(OUT)/libdlc.so $(OUT)/libdlc.a $(OUT)/libdlc-compiler

# LLVM's symbols stay inside: a host may have an LLVM of its own.
$(OUT)/libdlc.map: $(OUT)/configuration
	@printf '{ global: dlc_*; local: *; };\n' > $@
ifeq ($(filter asan tsan libfuzzer coverage,$(MODE)),)
no_undefined := -Wl,-z,defs
endif
# Packed relocations save 2 MB where linker and C library know them.
packed_relocations := $(shell echo 'int main(void) { return 0; }' | $(CC) -x c - -Wl,--fatal-warnings \
                        -Wl,-z,pack-relative-relocs -o /dev/null 2>/dev/null && echo -Wl,-z,pack-relative-relocs)
$(OUT)/libdlc.so: $(objects) $(OUT)/libdlc.map
	$(if $(LLVM_NOTE),@echo '  note   $(LLVM_NOTE)')
	$(call say,LINK,$@)
	$(Q)start=$$(date +%s%N); set -e; \
	$(CC) -shared $(LDFLAGS_ALL) -Wl,-soname,libdlc.so.$(SOVERSION) -Wl,--version-script=$(OUT)/libdlc.map \
	    -Wl,--exclude-libs,ALL $(no_undefined) $(packed_relocations) $(own_stdcxx) $(objects) $(LLVM_LIBS) $(FFI_LIBS) $(LDLIBS_ALL) -o $@.$(VERSION); \
	milliseconds=$$((($$(date +%s%N) - start) / 1000000)); \
	ln -sf libdlc.so.$(VERSION) $(OUT)/libdlc.so.$(SOVERSION); ln -sf libdlc.so.$(SOVERSION) $@; \
	strip -o $@.stripped $@; \
	printf '  size   libdlc.so %s stripped, linked in %s ms\n' \
	    "$$(stat -c %s $@.stripped | $(megabytes))" $$milliseconds; rm $@.stripped

# One relocatable object, so that only dlc_* can be global in it. Groups are flattened: their signatures would otherwise
# be merged with those of a host's own LLVM.
$(OUT)/libdlc.a: $(objects)
	$(call say,LINK,$@)
	$(Q)start=$$(date +%s%N); set -e; \
	roots=$$(nm -g --defined-only $(objects) | awk '$$3 ~ /^dlc_/ { print "-u", $$3 }'); \
	ld -r --gc-sections --force-group-allocation $$roots $(objects) \
	    $(if $(LLVM_ARCHIVES),-L$(LLVM_LIBDIR) $(LLVM_ARCHIVES)) $(filter %.a,$(LLVM_BESIDE) $(FFI_LIBS) $(FILE_LIBS)) -o $@.o; \
	objcopy --wildcard --keep-global-symbol='dlc_*' $@.o $(OUT)/libdlc.o; \
	rm -f $@ $@.o; $(AR) rcs $@ $(OUT)/libdlc.o; rm $(OUT)/libdlc.o; \
	printf '  size   libdlc.a %s, linked in %s ms\n' \
	    "$$(stat -c %s $@ | $(megabytes))" $$((($$(date +%s%N) - start) / 1000000))

# The process of isolate_compiler: the library and a main function, beside the library.
$(OUT)/compiler/main.o: | $(GEN)/dlc/ops.h
$(OUT)/libdlc-compiler: $(OUT)/compiler/main.o $(OUT)/libdlc.so
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $< -L$(OUT) -ldlc -Wl,-rpath,'$$ORIGIN' $(LDLIBS_ALL) -o $@

# An archive for each layer, for programs that see inside: a layer's tests link with it and what lies below.
$(OUT)/layer-lib.a:     $(lib_src:%.c=$(OUT)/%.o) $(OUT)/gen/build_id.o
$(OUT)/layer-tir.a:     $(tir_src:%.c=$(OUT)/%.o)
$(OUT)/layer-graph.a:   $(graph_src:%.c=$(OUT)/%.o) $(OUT)/gen/ops_api.o
$(OUT)/layer-targets.a: $(target_src:%.c=$(OUT)/%.o)
$(OUT)/layer-jit.a:     $(jit_src:%.c=$(OUT)/%.o)
layers = $(foreach l,$(1),$(OUT)/layer-$(l).a)
all_layers := $(call layers,jit graph targets tir lib)
$(all_layers):
	@rm -f $@
	$(call say,AR,$@)
	$(Q)$(AR) rcs $@ $^

# ---- tests ---------------------------------------------------------------------------------------------------------

# The operator table again, with the operators' f64 references and rules of bounds, which only tests have.
reference_objects := $(patsubst %.c,$(OUT)/reference/%.o,$(wildcard graph/ops_*.c graph/bound*.c))
$(OUT)/reference/%.o: %.c $(OUT)/configuration
	@mkdir -p $(@D)
	$(call say,CC,$< (reference))
	$(Q)$(CC) $(CPPFLAGS_ALL) -DDLC_REFERENCE=1 $(CFLAGS_ALL) -MMD -MP -c $< -o $@

program_objects := $(patsubst %.c,$(OUT)/%.o,$(all_test_src) $(wildcard test/fuzz/*.c test/libfuzzer/*.c test/cuda/fake/*.c) $(example_src) $(bench_src))
$(program_objects): | $(GEN)/dlc/ops.h
$(OUT)/test/%.o: CPPFLAGS_ALL += -Itest
$(OUT)/test/%.o: CFLAGS_ALL += -Wno-conversion
# Tests of the library spend their time in it; without optimisation they compile in half the time.
$(OUT)/test/%_test.o: private CFLAGS_ALL += -Wno-conversion -O0 -Wno-format-truncation
$(OUT)/reference/%.o: private CFLAGS_ALL += -O1
# Under sanitizers, most time of most tests is the interpreter's.
ifneq ($(filter asan tsan,$(MODE)),)
$(patsubst %.c,$(OUT)/%.o,$(wildcard tir/interpret*.c)): private CFLAGS_ALL += -O2
endif
$(patsubst %,$(OUT)/test/%,api/isolate_test api/memory_test api/process_memory_test api/soak_test api/untouched_test determinism/determinism): | $(OUT)/libdlc-compiler
$(patsubst %,$(OUT)/test/cpu/%.o,isolate isolate_host orc image machine): CPPFLAGS_ALL += $(if $(LLVM_INCLUDE),-isystem $(LLVM_INCLUDE))
$(OUT)/test/api/digits_test: $(OUT)/examples/digits/network.o
$(OUT)/test/onnx/states_test: $(OUT)/examples/generate/decoder.o
$(OUT)/test/cuda/tile: $(OUT)/test/tir/scheduled.o

# A hundred programs see inside, each with all the library in it: lld links one in a tenth of the time that ld takes. (gold makes programs that crash.)
lld := -fuse-ld=lld $(addprefix -B,$(shell $(LLVM_CONFIG) --bindir 2>/dev/null))
fast_linker := $(if $(filter clean help,$(MAKECMDGOALS)),,$(shell echo 'int main(void) { return 0; }' | $(CC) -x c - $(lld) -o /dev/null 2>/dev/null && echo '$(lld)'))
# A program from its prerequisites that are objects, with further libraries $(1); seeing inside, or through the public header.
link_internal = $(CC) $(fast_linker) $(LDFLAGS_ALL) $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group \
                $(LLVM_TEST_LIBS) -lffi $(1) $(LDLIBS_ALL) -o $@
link_public   = $(CC) $(LDFLAGS_ALL) $(filter %.o,$^) -L$(OUT) -ldlc -Wl,-rpath,'$$ORIGIN/..:$$ORIGIN/../..' $(1) $(LDLIBS_ALL) -o $@

support_of = $(patsubst %.c,$(OUT)/%.o,$(filter $(dir $(1))%,$(test_support)))
define test_rule
$(OUT)/$(basename $(1)): $(OUT)/$(1:.c=.o) $(call support_of,$(1)) $(2)
	$$(call say,LINK,$$@)
	$$(Q)$$(call $(3),-lcmocka)
endef
# What the tests of each folder link with, or single programs; of the folders not named here: everything.
needs_lib     := $(call layers,lib)
needs_tir     := $(call layers,tir lib)
needs_targets := $(call layers,targets tir lib)
needs_cpu     := $(call layers,targets tir lib)
needs_graph   := $(reference_objects) $(call layers,graph tir lib)
needs_onnx    := $(call layers,graph tir lib)
needs_program_export_test  := $(all_layers)
needs_program_mutated_test := $(reference_objects) $(all_layers)
needs_bench   := $(patsubst %,$(OUT)/bench/%.o,elements last random random_lines shape stats)
folder_of      = $(word 2,$(subst /, ,$(1)))
needs_of       = $(or $(needs_program_$(basename $(notdir $(1)))),$(needs_$(call folder_of,$(1))),$(reference_objects) $(all_layers))
onnx_public   := attention_test conformance corners_test external_test extremes_test host_test in_place_test lists_test model_test nodes_test runner_test spelled_test states_test \
                 text_test tool_test walk_test
public_tests  := $(filter test/api/% $(onnx_public:%=test/onnx/%.c),$(test_src))
$(foreach f,$(public_tests),$(eval $(call test_rule,$(f),$(OUT)/libdlc.so,link_public)))
$(foreach f,$(filter-out $(public_tests),$(test_src)),$(eval $(call test_rule,$(f),$(call needs_of,$(f)),link_internal)))
$(OUT)/test/onnx/tool_test: | $(OUT)/bin/dlc-run $(OUT)/bin/dlc-opt
# What makes cases and runs them, on the whole library.
$(OUT)/test/bench/blocks: $(patsubst %,$(OUT)/bench/%.o,block_graphs blocks cases measure ours train) $(all_layers)
$(conformance_parts): $(OUT)/test/conformance/conformance
	$(Q)ln -sf conformance $@
# One program of several files.
$(OUT)/test/fuzz/fuzz: $(patsubst %.c,$(OUT)/%.o,$(wildcard test/fuzz/*.c)) $(reference_objects) $(all_layers)
	$(call say,LINK,$@)
	$(Q)$(call link_internal,-lcmocka)

# Shared objects that stand for the CUDA driver and NVRTC in tests, over host memory (test/cuda/fake/fake.h).
fakes := $(patsubst %,$(OUT)/test/cuda/libfake-%.so,driver nvrtc)
$(OUT)/test/cuda/libfake-driver.so: $(call layers,tir lib)
$(fakes): $(OUT)/test/cuda/libfake-%.so: $(OUT)/test/cuda/fake/%.o
	$(call say,LINK,$@)
	$(Q)$(CC) -shared $(LDFLAGS_ALL) $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LDLIBS_ALL) -o $@
$(patsubst %.c,$(OUT)/%,$(filter test/cuda/%,$(test_src))): | $(fakes)
$(OUT)/test/golden/cuda $(OUT)/test/golden/cuda_choices: $(OUT)/test/tir/scheduled.o
$(OUT)/test/golden/cycles: $(patsubst %,$(OUT)/bench/%.o,block_graphs blocks cases elements random_graphs shape train)
# The real headers are compared with our declarations where they are installed.
$(OUT)/test/cuda/declarations.o: CPPFLAGS_ALL += $(if $(wildcard $(CUDA_HOME)/include/cuda.h),-isystem $(CUDA_HOME)/include)

# The public header from C++.
$(OUT)/test/api/header_test_cxx.o: test/api/header_test.c $(GEN)/dlc/ops.h $(OUT)/configuration
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(Q)$(CXX) -x c++ -std=c++17 -Iinclude -I$(GEN) -Wall -Wextra -Wpedantic -Wshadow -Wconversion $(CFLAGS_$(MODE)) \
	    -MMD -MP -c $< -o $@
$(OUT)/test/api/header_test_cxx: $(OUT)/test/api/header_test_cxx.o $(OUT)/libdlc.so
	$(call say,LINK,$@)
	$(Q)$(call link_public,-lcmocka -lstdc++)

run_tests = OUT=$(OUT) CC='$(CC)' CXX='$(CXX)' MAKE='$(MAKE)' SANITIZE='$(SANITIZE_$(MODE))' SECONDS_EACH=$(TEST_SECONDS) test/run

.PHONY: tests check check-long
tests: $(test_bins) $(example_bins)
# What takes longest goes first, so that no processor waits at the end.
long_first := $(test_scripts) $(conformance_parts) $(filter-out $(conformance_parts),$(test_bins))
check: tests lib
	@$(run_tests) $(long_first)
check-long: tests lib
	@DLC_TEST_LONG=1 $(run_tests) $(long_first) test/golden/mutants test/conformance/gradient_mutants

.PHONY: test test-long asan tsan fuzz fuzz-onnx mutants bless
# Every 24th sample of each operator; test-long takes all.
test: | setup-test
	@DLC_TEST_SHARE=$(or $(DLC_TEST_SHARE),24) $(MAKE) check
test-long: | setup-test
	@$(MAKE) check-long TEST_SECONDS=3600
	@$(MAKE) coverage
	@$(MAKE) fuzz T=600
asan: | setup-test
	@DLC_TEST_SHARE=$(or $(DLC_TEST_SHARE),10) $(MAKE) MODE=asan check-programs TEST_SECONDS=1200
tsan: | setup-test
	@$(MAKE) MODE=tsan check-tsan TEST_SECONDS=1200

# Scripts test the build, not the code: sanitizers have nothing to say about them.
.PHONY: check-programs check-whole check-tsan
check-programs: tests
	@$(run_tests) $(filter-out $(not_run),$(test_bins))
# Of these, those that have all of the library in them.
whole := $(filter-out $(not_run) $(foreach f,lib tir targets graph bench,$(OUT)/test/$(f)/%),$(test_bins))
check-whole: $(whole) $(example_bins)
	@$(run_tests) $(whole)
check-tsan: $(tsan_bins) $(OUT)/bin/threads
	@$(run_tests) $(tsan_bins) $(OUT)/bin/threads

# Which lines of the library the tests run, by layer: at least COVERAGE percent. Some ten minutes; DLC_TEST_SHARE: every n-th sample.
COVERAGE ?= 95
.PHONY: coverage check-coverage
coverage: | setup-test
	@DLC_TEST_SHARE=$(or $(DLC_TEST_SHARE),4) $(MAKE) MODE=coverage check-coverage TEST_SECONDS=1200
check-coverage: tests lib
	@find $(OUT) -name '*.gcda' -delete
	@$(run_tests) $(test_bins) $(wildcard test/cuda/*.sh)
	@test/coverage $(OUT) $(COVERAGE)

# ONNX's own cases from its wheel, on cpu: results by operator. FILTER=text: those with it in their paths.
CACHE_DIR  ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/libdlc
onnx_wheel := $(CACHE_DIR)/onnx-1.22.0
onnx_cases := $(patsubst %,$(onnx_wheel)/onnx/backend/test/data/%,node simple pytorch-converted pytorch-operator light)
.PHONY: conformance
conformance: $(OUT)/test/onnx/conformance
	@.ci/wheels test/onnx/requirements.txt '19 MB to download, 81 MB on disk' $(onnx_wheel)
	$(Q)$< $(if $(FILTER),--filter '$(FILTER)',--table $(BUILD)/conformance.md) $(onnx_cases)
	$(if $(FILTER),,@cat $(BUILD)/conformance.md)
	$(if $(FILTER),,$(Q)$< --symbols $(onnx_cases) && $< --export $(onnx_cases))

# Shapes that no program has seen, through small caches: resident memory must not grow.
.PHONY: soak
soak: $(OUT)/test/api/soak_test $(OUT)/libdlc-compiler
	DLC_SOAK=$(or $(SHAPES),100000) $<

# Random graphs, interp against cpu, for T seconds from SEED.
T    ?= 60
SEED ?= 1
fuzz: $(OUT)/test/fuzz/fuzz
	DLC_SEED=$(SEED) $(OUT)/test/fuzz/fuzz $(T)

# The same graphs exported as ONNX models, imported and run on interp: equal bits.
fuzz-onnx: $(OUT)/test/fuzz/fuzz
	DLC_SEED=$(SEED) DLC_TEST_TARGET=onnx $(OUT)/test/fuzz/fuzz $(T)

# The same graphs on the cuda target, with the fake driver of the tests.
fuzz-cuda: $(OUT)/test/fuzz/fuzz $(OUT)/test/cuda/libfake-driver.so $(OUT)/test/cuda/libfake-nvrtc.so
	DLC_SEED=$(SEED) DLC_CUDA=$(OUT)/test/cuda/libfake-driver.so DLC_NVRTC=$(OUT)/test/cuda/libfake-nvrtc.so FAKE_CUDA_STRICT=1 \
	    DLC_TEST_TARGET=cuda $(OUT)/test/fuzz/fuzz $(T)

# Mutated models, imported and run on interp under ASan and UBSan: COUNT of them from FIRST on, also of the folder DLC_MODELS.
COUNT ?= 100000
FIRST ?= 0
mutants:
	@$(MAKE) MODE=asan $(BUILD)/asan/test/onnx/mutated_test
	DLC_SEED=$(SEED) $(BUILD)/asan/test/onnx/mutated_test $(COUNT) $(FIRST)

# libFuzzer on what reads bytes of others, T seconds each; all of it is built by clang, with coverage and sanitizers.
CLANG ?= clang-19
libfuzzer_bins := $(patsubst %.c,$(OUT)/%,$(filter-out $(if $(onnx_src),,test/libfuzzer/onnx%),$(wildcard test/libfuzzer/*.c)))
$(libfuzzer_bins): $(OUT)/%: $(OUT)/%.o $(all_layers)
	$(call say,LINK,$@)
	$(Q)$(call link_internal,-fsanitize=fuzzer)
.PHONY: libfuzzer libfuzzer-run
libfuzzer:
	@command -v $(firstword $(CLANG)) >/dev/null || { echo "$(CLANG) is missing: the packages clang-19 and libclang-rt-19-dev have it," \
	    "CLANG=... names another clang with libFuzzer." >&2; exit 1; }
	@$(MAKE) MODE=libfuzzer CC='$(CLANG)' T=$(T) libfuzzer-run
libfuzzer-run: $(libfuzzer_bins)
	@test/libfuzzer/run $(OUT)/libfuzzer $(T) $(GEN)/operators.md $^

# Golden tests rewrite what they expect. Review the difference like code.
bless: $(filter $(OUT)/test/golden/%,$(test_bins))
	@for test in $^; do DLC_BLESS=1 $$test || exit 1; done
	@git diff --stat -- test/golden

# ---- examples, benchmarks ------------------------------------------------------------------------------------------

define example_rule
$(OUT)/bin/$(1): $(patsubst %.c,$(OUT)/%.o,$(wildcard examples/$(1).c examples/$(1)/*.c)) $(2)
	@mkdir -p $$(@D)
	$$(call say,LINK,$$@)
	$$(Q)$$(call $(3),$(4))
endef
$(example_cxx:%.cpp=$(OUT)/%.o): $(OUT)/%.o: %.cpp $(OUT)/configuration | $(GEN)/dlc/ops.h
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(Q)$(CXX) -std=c++17 -Iinclude -I$(GEN) -Wall -Wextra -Wpedantic -Wshadow -Wconversion $(CFLAGS_$(MODE)) -MMD -MP -c $< -o $@
$(example_cxx:examples/%.cpp=$(OUT)/bin/%): $(OUT)/bin/%: $(OUT)/examples/%.o $(OUT)/libdlc.so
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(call link_public,-lstdc++)
example_libs_ocr := -lpng
$(patsubst %,$(OUT)/bin/%,classify fashion train): $(OUT)/examples/digits/network.o
$(foreach e,$(filter-out dlc-opt $(basename $(notdir $(example_cxx))),$(example_names)),$(eval $(call example_rule,$(e),$(OUT)/libdlc.so,link_public,$(example_libs_$(e)))))
# dlc-opt runs programs by the library and has the passes over graphs, which no header offers, in itself.
dlc_opt_needs := $(OUT)/libdlc.so $(call layers,graph tir lib)
link_opt = $(CC) $(LDFLAGS_ALL) $(filter %.o,$^) -L$(OUT) -ldlc -Wl,--start-group $(filter %.a,$^) -Wl,--end-group \
           -Wl,-rpath,$(1) $(LDLIBS_ALL) -o $@
$(eval $(call example_rule,dlc-opt,$(dlc_opt_needs),link_opt,'$$$$ORIGIN/..'))
# The tools as they are installed.
tools           := dlc-opt dlc-run
installed_rpath = '$(patsubst $(PREFIX)/%,$$ORIGIN/../%,$(LIBDIR))'
$(OUT)/dlc-opt: $(patsubst %.c,$(OUT)/%.o,$(wildcard examples/dlc-opt/*.c)) $(dlc_opt_needs) FORCE
	$(call say,LINK,$@)
	$(Q)$(call link_opt,$(installed_rpath))
$(OUT)/dlc-run: $(patsubst %.c,$(OUT)/%.o,$(wildcard examples/dlc-run/*.c)) $(OUT)/libdlc.so FORCE
	$(call say,LINK,$@)
	$(Q)$(call link_opt,$(installed_rpath))

.PHONY: examples examples-data demo demo-train
examples: $(example_bins)
# Outside of the tree: models and data that the examples on real data read, and their test.
EXAMPLES_DATA ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/libdlc/examples
examples-data:
	@examples/data/fetch '$(EXAMPLES_DATA)'
demo: | setup-build
	@$(MAKE) $(OUT)/bin/digits
	@$(OUT)/bin/digits examples/data
# The shipped weights: WEIGHTS=examples/data/digits_weights.safetensors.
WEIGHTS ?= $(OUT)/digits_weights.safetensors
demo-train: | setup-build
	@$(MAKE) $(OUT)/bin/train
	@$(OUT)/bin/train examples/data $(WEIGHTS)

# What bench/gpu.sh needs, in a folder that can be carried to a machine without compilers: no LLVM, no CUDA in it.
gpu_programs := libdlc.so test/conformance/conformance test/cuda/hardware bench/bench bench/models/models bench/models/libmodels.so bin/digits
.PHONY: gpu-build gpu-programs gpu-check gpu-kernels gpu-models gpu-sanitize
gpu-build:
	@$(MAKE) TARGETS='cuda interp null' LLVM_CONFIG=none MODE=release BUILD=$(BUILD)/gpu-objects gpu-programs
	@rm -rf $(BUILD)/gpu
	$(Q)set -e; from=$(BUILD)/gpu-objects/release; to=$(BUILD)/gpu; mkdir -p $$to/lib; \
	for program in $(gpu_programs); do mkdir -p $$to/$$(dirname $$program); strip -o $$to/$$program $$from/$$program; done; \
	ln -s libdlc.so $$to/libdlc.so.$(SOVERSION); \
	ldd $$to/test/conformance/conformance | awk '/cmocka|ffi/ { print $$3 }' | xargs -I{} cp {} $$to/lib; du -sh $$to
gpu-programs: $(gpu_programs:%=$(OUT)/%)
# GPU_OUT: where results go.
GPU_OUT ?= $(BUILD)/gpu-results
gpu-check gpu-kernels gpu-models gpu-sanitize:
	@bench/gpu.sh $(@:gpu-%=%) $(GPU_OUT)

# Only then, since it looks for the peers. `check` compiles the bench, so that it follows the public header.
ifneq ($(filter bench% choices cliffs model% peers% plots train-curves check gpu-programs $(OUT)/bench/% $(BUILD)/models/%,$(MAKECMDGOALS)),)
include bench/bench.mk
endif

# ---- set-up, checks ------------------------------------------------------------------------------------------------

.PHONY: setup setup-build setup-test setup-check format format-check check-layers ci
setup: setup-check
setup-build setup-test setup-check:
	@CC='$(CC)' CLANG='$(CLANG)' LLVM_CONFIG='$(LLVM_CONFIG)' TARGETS='$(TARGETS)' LLVM='$(LLVM)' .ci/setup $(@:setup-%=%)

formatted := $(foreach d,include/dlc lib tir graph graph/onnx jit compiler targets targets/* test test/* test/cuda/fake bench bench/models \
               examples examples/*,$(wildcard $(d)/*.c $(d)/*.h $(d)/*.cpp $(d)/*.hpp))
format:
	$(Q)$(CLANG_FORMAT) -i $(sort $(formatted))
format-check:
	$(Q)$(CLANG_FORMAT) --dry-run -Werror $(sort $(formatted))
check-layers:
	@.ci/check-layers
ci:
	@.ci/run

# ---- installation --------------------------------------------------------------------------------------------------

# What a program linked with the archive needs beside it.
private_libs  = $(strip $(if $(LLVM_ARCHIVES),-lstdc++ -ldl -lrt,$(LLVM_LIBS)) $(filter -l%,$(LLVM_BESIDE) $(FFI_LIBS)) \
                $(filter-out %.a,$(LDLIBS_ALL)))
space  := $(subst ,, )
fill_in = sed -e 's|@PREFIX@|$(PREFIX)|g' -e 's|@LIBDIR@|$(LIBDIR)|g' -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|g' \
              -e 's|@VERSION@|$(VERSION)|g' -e 's|@SOVERSION@|$(SOVERSION)|g' -e 's|@PRIVATE_LIBS@|$(private_libs)|g' \
              -e 's|@PRIVATE_LIST@|$(subst $(space),;,$(private_libs))|g'
to := $(DESTDIR)$(LIBDIR)

documents := README.md LICENSE $(GEN)/operators.md graph/adding-an-operator.md graph/onnx/adding-an-import-row.md tir/writing-a-schedule.md targets/porting.md

.PHONY: install uninstall
install: lib $(tools:%=$(OUT)/%)
	@mkdir -p $(to)/pkgconfig $(to)/cmake/libdlc $(DESTDIR)$(INCLUDEDIR)/dlc $(DESTDIR)$(BINDIR) $(DESTDIR)$(MANDIR)/man1 $(DESTDIR)$(DOCDIR)
	$(Q)install -m 644 include/dlc/* $(wildcard $(GEN)/dlc/*) $(DESTDIR)$(INCLUDEDIR)/dlc/
	$(Q)install -m 755 $(if $(filter release,$(MODE)),-s) $(tools:%=$(OUT)/%) $(DESTDIR)$(BINDIR)/
	$(Q)install -m 644 $(foreach t,$(tools),examples/$(t)/$(t).1) $(DESTDIR)$(MANDIR)/man1/
	$(Q)install -m 644 $(documents) $(DESTDIR)$(DOCDIR)/
	$(Q)install -m 755 $(if $(filter release,$(MODE)),-s) $(OUT)/libdlc.so.$(VERSION) $(to)/
	$(Q)ln -sf libdlc.so.$(VERSION) $(to)/libdlc.so.$(SOVERSION)
	$(Q)ln -sf libdlc.so.$(SOVERSION) $(to)/libdlc.so
	$(Q)install -m 644 $(OUT)/libdlc.a $(to)/
	$(Q)install -m 755 $(if $(filter release,$(MODE)),-s) $(OUT)/libdlc-compiler $(to)/
	$(Q)$(fill_in) lib/libdlc.pc.in > $(to)/pkgconfig/libdlc.pc
	$(Q)$(fill_in) lib/libdlc-config.cmake.in > $(to)/cmake/libdlc/libdlc-config.cmake
	$(Q)$(fill_in) lib/libdlc-config-version.cmake.in > $(to)/cmake/libdlc/libdlc-config-version.cmake
	@echo '  installed in $(DESTDIR)$(PREFIX)'
uninstall:
	rm -rf $(DESTDIR)$(INCLUDEDIR)/dlc $(to)/libdlc.so* $(to)/libdlc.a $(to)/libdlc-compiler $(to)/pkgconfig/libdlc.pc $(to)/cmake/libdlc \
	    $(foreach t,$(tools),$(DESTDIR)$(BINDIR)/$(t) $(DESTDIR)$(MANDIR)/man1/$(t).1) $(DESTDIR)$(DOCDIR)

.PHONY: clean help
clean:
	rm -rf $(BUILD)

define help_text
  make                libdlc.so and libdlc.a            make demo      set up, build, classify real digits
  make demo-train     set up, build, train the network of the digits, WEIGHTS=$(WEIGHTS)
  make test           set up, build, run the tests      make test-long everything that takes longer
  make check          the tests, nothing is set up: all samples of each operator, with DLC_TEST_SHARE=24 every 24th as make test takes
  make asan, tsan     tests under sanitizers            make fuzz      T=60 seconds of random graphs, SEED=1
  make fuzz-onnx      T=60 seconds of the same graphs as ONNX models and back: equal bits
  make fuzz-cuda      T=60 seconds of the same graphs on the cuda target, with the tests' driver in place of NVIDIA's
  make mutants        COUNT=100000 ONNX models with mistakes from FIRST=0 on, SEED=1, under ASan and UBSan; more models: DLC_MODELS=folder
  make coverage       lines of the library that the tests run, COVERAGE=95 percent at least; those that they do not: $(BUILD)/coverage/uncovered.txt
  make conformance    ONNX's 1,914 cases from its wheel (19 MB, kept in CACHE_DIR=~/.cache/libdlc), FILTER=text
  make soak           SHAPES=100000 through small caches: memory does not grow, results are right
  make libfuzzer      T=60 seconds of bytes for each of what reads them, CLANG=clang-19
  make examples       build/release/bin/*
  make examples-data  models and data of the examples ocr, vad, filetype, fashion, for EXAMPLES_DATA ($(EXAMPLES_DATA))
  make bench          measure, FILTER=text THREADS=1,2 SAMPLES=15 SEED=1 PEERS=openblas,onednn|none; bench-short: a sample
  make bench-random   N=500 random lines from SEED beside the peers: where sizes that no list has are slower
  make plots          of the last make bench
  make cliffs         N=2000 random graphs from SEED=1, FILTER=text: those much slower than their parts, the roof, an exact size, SCHEDULES=50 random ones
  make choices        each choice of the schedule rules changed alone, measured; FILTER=text, LONGEST=3 (ms of a run), ALL=1, FROM=earlier output
  make models         measure whole ONNX models; models-short: small ones; model-files: fetches those that are not built
  make peers          what to compare with in make bench and make models; make peers-torch: PyTorch, too (4 GB)
  make train-curves   a transformer of characters learns here and in the peers, losses side by side; TEXT=file, STEPS=300
  make bench-keep     the last run is what make bench compares with from now on (bench/last.txt)
  make gpu-build      what bench/gpu.sh needs           make gpu-check, gpu-kernels, gpu-models, gpu-sanitize, GPU_OUT=folder of results
  make install        libraries, headers, dlc-opt, dlc-run, man pages, guides; PREFIX DESTDIR LIBDIR INCLUDEDIR BINDIR MANDIR DOCDIR
  make uninstall
  make setup          install what is missing (apt)     make ci        what is run before a change is taken
  make format         clang-format 14                   make format-check, check-layers
  make bless          golden tests take what they got   make clean

  MODE=release|debug|asan|tsan|coverage  TARGETS="cpu cuda interp null" (cpu alone needs LLVM)     BUILD=build
  ONNX=no builds without the reader of ONNX files
  LLVM_CONFIG=llvm-config-19         LLVM=static|shared        NO_INSTALL=1 installs nothing, ever
  CC, CXX, AR, CPPFLAGS, CFLAGS, LDFLAGS, LDLIBS, CLANG_FORMAT=clang-format-14, CUDA_HOME=/usr/local/cuda (tests compare its headers)
  V=1 (shows commands), TEST_SECONDS=600 (limit of each test program)
endef
help:
	$(info $(help_text))
	@:

-include $(example_cxx:%.cpp=$(OUT)/%.d) $(objects:.o=.d) $(program_objects:.o=.d) $(reference_objects:.o=.d) $(OUT)/graph/gen_ops.d $(gen_onnx:%.c=$(OUT)/%.d) \
         $(OUT)/test/api/header_test_cxx.d
