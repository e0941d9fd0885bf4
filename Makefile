# libdlc. `make help` lists what there is to do.
#   BUILD=dir        where everything goes (default build)
#   MODE=release|debug|asan|tsan
#   TARGETS="cpu interp null"   interp is always in; without cpu no LLVM is needed
#   LLVM_CONFIG=...  llvm-config of LLVM 19 ; LLVM=static|shared
#   PREFIX, DESTDIR  for install

MODE        ?= release
BUILD       ?= build
TARGETS     ?= cpu interp null
LLVM_CONFIG ?= llvm-config-19
LLVM        ?= static
PREFIX      ?= /usr/local
CC          ?= cc
PYTHON      ?= python3

VERSION   := 0.1.0
SOVERSION := 0
OUT       := $(BUILD)/$(MODE)
GEN       := $(OUT)/gen

WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wconversion
CFLAGS_release := -O2 -g1
CFLAGS_debug   := -O0 -g -DDLC_DEBUG_BUILD=1
CFLAGS_asan    := -O1 -g -DDLC_DEBUG_BUILD=1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
CFLAGS_tsan    := -O1 -g -DDLC_DEBUG_BUILD=1 -fsanitize=thread -fno-omit-frame-pointer
LDFLAGS_asan   := -fsanitize=address,undefined
LDFLAGS_tsan   := -fsanitize=thread

CPPFLAGS += -I. -Iinclude -I$(GEN) -D_GNU_SOURCE $(foreach t,$(TARGETS),-DDLC_TARGET_$(t)=1)
CFLAGS   += -std=c11 $(WARNINGS) $(CFLAGS_$(MODE)) -fPIC -fvisibility=hidden -ffp-contract=off -ffunction-sections -fdata-sections
LDFLAGS  += $(LDFLAGS_$(MODE))
LDLIBS   += -lm -lpthread

include_targets := $(sort interp $(TARGETS))
lib_src    := $(wildcard lib/*.c)
tir_src    := $(wildcard tir/*.c)
graph_src  := $(filter-out graph/gen_ops.c,$(wildcard graph/*.c))
jit_src    := $(wildcard jit/*.c)
target_src := $(wildcard targets/*.c) $(foreach t,$(include_targets),$(wildcard targets/$(t)/*.c))
sources    := $(lib_src) $(tir_src) $(graph_src) $(target_src) $(jit_src)
objects    := $(sources:%.c=$(OUT)/%.o) $(OUT)/gen/ops_api.o

ifneq ($(filter cpu,$(TARGETS)),)
LLVM_INCLUDE := $(shell $(LLVM_CONFIG) --includedir 2>/dev/null)
$(OUT)/targets/cpu/%.o: CPPFLAGS += -isystem $(LLVM_INCLUDE)
ifeq ($(LLVM),static)
LLVM_LIBS = $(shell $(LLVM_CONFIG) --link-static --ldflags --libs orcjit x86codegen x86desc x86info x86asmparser 2>/dev/null) \
            $(shell $(LLVM_CONFIG) --link-static --system-libs 2>/dev/null) -lstdc++
else
LLVM_LIBS = $(shell $(LLVM_CONFIG) --link-shared --ldflags --libs 2>/dev/null)
endif
endif
FFI_LIBS := -lffi

.DEFAULT_GOAL := lib
.DELETE_ON_ERROR:

$(OUT)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

# Headers of the operators come from the operator table.
gen_objects := $(patsubst %.c,$(OUT)/%.o,$(lib_src) $(tir_src) $(filter-out graph/api%.c,$(graph_src)))
$(OUT)/gen_ops: $(OUT)/graph/gen_ops.o $(gen_objects)
	$(CC) $(LDFLAGS) $^ $(LDLIBS) -o $@
$(GEN)/dlc/ops.h: $(OUT)/gen_ops
	@mkdir -p $(GEN)/dlc
	$< header > $@
$(GEN)/ops_api.c: $(OUT)/gen_ops
	$< source > $@
$(GEN)/operators.md: $(OUT)/gen_ops
	$< reference > $@
$(OUT)/gen/ops_api.o: $(GEN)/ops_api.c $(GEN)/dlc/ops.h
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@
api_objects := $(patsubst %.c,$(OUT)/%.o,$(filter graph/api%.c,$(graph_src)) $(jit_src))
$(api_objects): | $(GEN)/dlc/ops.h

# Everything internal in one archive for tests; hidden symbols stay visible to it.
$(OUT)/libdlc-internal.a: $(objects)
	@rm -f $@
	ar rcs $@ $^

# The same code with the operators' f64 references, for tests only.
reference_objects := $(patsubst %.c,$(OUT)/reference/%.o,$(wildcard graph/ops_*.c))
$(OUT)/reference/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -DDLC_REFERENCE=1 $(CFLAGS) -MMD -MP -c $< -o $@

test_src  := $(wildcard test/*/*.c)
test_bins := $(test_src:%.c=$(OUT)/%)
$(OUT)/test/%.o: CPPFLAGS += -Itest
$(OUT)/test/%.o: CFLAGS += -Wno-conversion
$(OUT)/test/%.o: | $(GEN)/dlc/ops.h
$(OUT)/test/%: $(OUT)/test/%.o $(reference_objects) $(OUT)/libdlc-internal.a
	$(CC) $(LDFLAGS) $(filter %.o,$^) $(OUT)/libdlc-internal.a $(LLVM_LIBS) $(FFI_LIBS) -lcmocka $(LDLIBS) -Wl,--gc-sections -o $@

.PHONY: lib tests clean
lib: $(OUT)/libdlc-internal.a
tests: $(test_bins)
clean:
	rm -rf $(BUILD)

-include $(objects:.o=.d) $(test_bins:=.d) $(reference_objects:.o=.d) $(OUT)/graph/gen_ops.d
