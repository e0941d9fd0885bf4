# Rules of bench/: one program, a plug-in for each peer whose headers are there, and programs that see inside.

bench_parts := bench cases figures measure peers roof shape
bench_peers :=
bench_hash  := \#
ifneq ($(shell echo '$(bench_hash)include <cblas.h>' | $(CC) -E -x c - 2>/dev/null | grep openblas_get_corename),)
bench_peers += openblas
endif
ifneq ($(shell echo '$(bench_hash)include <oneapi/dnnl/dnnl_version.h>' | $(CC) -E -dM -x c - 2>/dev/null | grep 'VERSION_MAJOR 2$$'),)
bench_peers += onednn
endif
peer_libs_openblas := -lopenblas
# The OpenMP run time that this build of oneDNN uses.
peer_libs_onednn   := -ldnnl -l:libgomp.so.1
peer_objects       := $(bench_peers:%=$(OUT)/bench/peer_%.o)
bench_objects      := $(bench_parts:%=$(OUT)/bench/%.o)
bench_plugins      := $(bench_peers:%=$(OUT)/bench/peer_%.so)
bench_inside       := $(patsubst bench/%.c,$(OUT)/bench/%,$(wildcard bench/overhead.c))

# a*x + b on vectors becomes one instruction.
$(OUT)/bench/roof.o: private CFLAGS_ALL += -ffp-contract=fast
$(bench_objects): | $(GEN)/dlc/ops.h
check: $(bench_objects)

$(OUT)/bench/bench: $(bench_objects) $(OUT)/libdlc.so
	$(call say,LINK,$@)
	$(Q)$(call link_public,-ldl)
$(bench_plugins): $(OUT)/bench/%.so: $(OUT)/bench/%.o $(OUT)/bench/shape.o
	$(call say,LINK,$@)
	$(Q)$(CC) -shared $(LDFLAGS_ALL) $^ $(peer_libs_$(*:peer_%=%)) $(LDLIBS_ALL) -o $@
$(bench_inside): $(OUT)/bench/%: $(OUT)/bench/%.o $(all_layers)
	$(call say,LINK,$@)
	$(Q)$(call link_internal)

# FILTER=text, THREADS=1,2, SAMPLES=15, PEERS=openblas,onednn|none. With a filter only the cases it selects.
THREADS ?= 1
bench_run = mkdir -p $(BUILD)/bench; status=0; $(OUT)/bench/bench --json $(BUILD)/bench --threads $(THREADS) \
            $(if $(SAMPLES),--samples $(SAMPLES)) $(if $(FILTER),--filter '$(FILTER)',--figures) bench/default.txt $(1) || status=1
bench_see_inside = for program in $(if $(FILTER),,$(bench_inside)); do to=$(BUILD)/bench/$$(basename $$program).json; \
                   $$program > $$to || status=1; cat $$to; done; exit $$status

.PHONY: bench bench-all
bench: $(OUT)/bench/bench $(bench_plugins) $(bench_inside)
	@$(call bench_run); $(bench_see_inside)
bench-all: $(OUT)/bench/bench $(bench_plugins) $(bench_inside)
	@$(call bench_run,bench/shapes.txt); $(bench_see_inside)

-include $(bench_objects:.o=.d) $(peer_objects:.o=.d) $(bench_inside:=.d)
