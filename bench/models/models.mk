# Rules of bench/models/: networks by the public API, their files, those of wheels, and the program that measures files.

# ---- networks ----------------------------------------------------------------------------------------------------------

# By the public API: a program, and a shared object for hosts that load it.
model_objects := $(patsubst %,$(OUT)/bench/models/%.o,models quantise blocks networks resnet bert)
$(OUT)/bench/models/models: $(OUT)/bench/models/main.o $(model_objects) $(OUT)/libdlc.so
	$(call say,LINK,$@)
	$(Q)$(call link_public)
$(OUT)/bench/models/libmodels.so: $(model_objects) $(OUT)/libdlc.so
	$(call say,LINK,$@)
	$(Q)$(CC) -shared $(LDFLAGS_ALL) $(filter %.o,$^) -L$(OUT) -ldlc -Wl,-rpath,'$$ORIGIN/../..' $(LDLIBS_ALL) -o $@

# ---- files -------------------------------------------------------------------------------------------------------------

# Written by the networks, each with the bits of its network's result: 1.4 GB.
built_models   = $(sort $(shell awk '$$2 ~ /^(standard|odd|quantised)$$/ { print $$1 } /^@/ && $$2 != "-" { print $$2 }' $(1)))
MODELS_BUILD  ?= $(BUILD)/models
$(MODELS_BUILD)/%.onnx: $(OUT)/bench/models/models
	@mkdir -p $(@D)
	$(call say,MODEL,$@)
	$(Q)$< $* --onnx $@ > $@.json || { cat $@.json; exit 1; }

# Of wheels; they stay when the build folder is removed.
MODELS_DIR    ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/libdlc-models
models_size   := 45 MB to download, 25 MB on disk
models_wheels  = $(call wheels_of,bench/models/requirements.txt,$(MODELS_DIR)/wheels)
.PHONY: model-files
model-files:
	@echo 'Models for $(MODELS_DIR): $(models_size)'
	@echo 'Command: $(models_wheels)'
	@if [ -n '$(NO_INSTALL)' ]; then echo 'NO_INSTALL is set: nothing was fetched.' >&2; exit 1; fi
	@mkdir -p $(MODELS_DIR)/wheels
	$(Q)$(models_wheels)
	$(Q)python3 bench/unpack_wheels.py models $(MODELS_DIR)/wheels $(MODELS_DIR)
	$(Q)rm -rf $(MODELS_DIR)/wheels
	@du -sh $(MODELS_DIR)

# ---- the suite ---------------------------------------------------------------------------------------------------------

engines := dlc
ifneq ($(wildcard $(PEERS_DIR)/onnxruntime/lib/libonnxruntime.so.1),)
engines += onnxruntime
endif
openvino_lib := $(notdir $(wildcard $(PEERS_DIR)/openvino/lib/libopenvino_c.so.*))
ifneq ($(openvino_lib),)
engines += openvino
endif

engine_dlc         := $(OUT)/libdlc.so $(patsubst %,$(OUT)/bench/models/%.o,decode_dlc costs_dlc) $(OUT)/bench/stats.o
engine_onnxruntime := $(patsubst %,$(OUT)/bench/%.o,onnxruntime measure stats models/decode_onnxruntime)
engine_libs_dlc         = -L$(OUT) -ldlc -Wl,-rpath,'$$ORIGIN/../..'
engine_libs_onnxruntime = $(call from_folder,$(PEERS_DIR)/onnxruntime/lib,libonnxruntime.so.1)
engine_libs_openvino    = $(call from_folder,$(PEERS_DIR)/openvino/lib,$(openvino_lib))
$(OUT)/bench/models/engine_openvino.o: CPPFLAGS_ALL += -isystem $(PEERS_DIR)/openvino/include
define engine_rule
$(OUT)/bench/models/engine_$(1).so: $(OUT)/bench/models/engine_$(1).o $(engine_$(1))
	$$(call say,LINK,$$@)
	$$(Q)$$(CC) -shared $$(LDFLAGS_ALL) $$(filter %.o,$$^) $$(engine_libs_$(1)) $$(LDLIBS_ALL) -o $$@
endef
$(foreach e,$(engines),$(eval $(call engine_rule,$(e))))
engine_plugins := $(engines:%=$(OUT)/bench/models/engine_%.so)

suite_objects := $(patsubst %,$(OUT)/bench/models/%.o,suite cases child first measures decoding clients report figures) $(patsubst %,$(OUT)/bench/%.o,measure peers stats)
$(OUT)/bench/models/suite: $(suite_objects)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $(filter %.o,$^) $(LDLIBS_ALL) -o $@

# FILTER=text, THREADS=1,2, SAMPLES=15, PEERS=onnxruntime,openvino|none, WINOGRAD=1
models_run = $(OUT)/bench/models/suite --models $(MODELS_BUILD) --models $(MODELS_DIR) --cache $(BUILD)/bench/kernels \
             --json $(BUILD)/bench/models.json --threads $(1) $(if $(SAMPLES),--samples $(SAMPLES)) \
             $(if $(FILTER),--filter '$(FILTER)') $(if $(PEERS),--peers $(PEERS)) $(if $(WINOGRAD),--winograd) $(2)

.PHONY: models models-short models-build
models-build: $(OUT)/bench/models/suite $(OUT)/bench/models/models $(OUT)/bench/models/libmodels.so $(engine_plugins)
models: models-build $(patsubst %,$(MODELS_BUILD)/%.onnx,$(call built_models,bench/models/suite.txt))
	@rm -rf $(BUILD)/bench/kernels; mkdir -p $(BUILD)/bench/kernels
	@$(call models_run,$(if $(filter file,$(origin THREADS)),1$(comma)2,$(THREADS)),bench/models/suite.txt)
models-short: models-build $(patsubst %,$(MODELS_BUILD)/%.onnx,$(call built_models,bench/models/short.txt))
	@rm -rf $(BUILD)/bench/kernels; mkdir -p $(BUILD)/bench/kernels
	@$(call models_run,1 --samples 3 --seconds 1,bench/models/short.txt)

-include $(suite_objects:.o=.d)
