/* Finds speech in a recording, frame by frame as it would come from a microphone, with Silero's network. The network's state stays in the
 * runner, between the runs.
 *
 *   vad [RECORDING.wav]               16 bits, one channel, 8000 or 16000 samples a second
 *   vad --numbers [RECORDING.wav]     prints the probability of speech in each frame, and nothing else */
#include "data.h"

#include <dlc/onnx.h>
#include <stdint.h>
#include <string.h>

/* Samples of a frame, and samples before it that the network reads again, at 16000 samples a second; half of both at 8000. */
enum { FRAME = 512, BEFORE = 64, SHOWN = 62 /* frames in a line */ };

typedef struct recording {
    int rate;
    /* Frames of `frame` samples; `before` zeros lie before the first. */
    int frame, before, frames;
    float *samples;
} recording;

/* ---- the network ---------------------------------------------------------------------------------------------------- */

/* NULL: failed, dlc_error_message tells why. */
static dlc_onnx_runner *open_network(dlc_context *context, const char *path) {
    const dlc_onnx_state state = {.input = "state", .output = "stateN"}; /* it begins with zeros */
    dlc_onnx_runner_options options = DLC_ONNX_RUNNER_OPTIONS_INIT;
    dlc_onnx_model *model;
    dlc_onnx_runner *runner = NULL;
    options.states = &state, options.state_count = 1;
    if (dlc_onnx_open(context, path, NULL, &model) != DLC_OK) return NULL;
    dlc_onnx_runner_create(model, &options, &runner);
    dlc_onnx_destroy(model); /* the runner keeps what it uses */
    return runner;
}

/* *speech: the probability of speech in one frame. Inputs: input, sr, state; outputs: output, stateN. The runner keeps the state. */
static dlc_status hear(dlc_onnx_runner *runner, const recording *r, int frame, float *speech) {
    const DLDevice cpu = {kDLCPU, 0};
    int64_t rate = r->rate;
    DLTensor input = {.data = r->samples + (size_t)frame * (size_t)r->frame,
                      .device = cpu,
                      .ndim = 2,
                      .dtype = {kDLFloat, 32, 1},
                      .shape = (int64_t[]){1, r->before + r->frame}};
    DLTensor sr = {.data = &rate, .device = cpu, .ndim = 0, .dtype = {kDLInt, 64, 1}};
    DLTensor output = {
        .data = speech, .device = cpu, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = (int64_t[]){1, 1}};
    return dlc_onnx_run(runner, NULL, (const DLTensor *const[]){&input, &sr, NULL}, 3,
                        (dlc_output_slot[]){{&output, NULL}, {NULL, NULL}}, 2);
}

/* ---- the recording -------------------------------------------------------------------------------------------------- */

static uint32_t number_at(const unsigned char *bytes, int count) {
    uint32_t number = 0;
    for (int i = count; i-- > 0;) number = number << 8 | bytes[i];
    return number;
}

/* Skips to the chunk of that name; returns its size, -1: there is none. */
static long find_chunk(FILE *file, const char *name) {
    unsigned char head[8];
    while (fread(head, 1, 8, file) == 8) {
        const long size = (long)number_at(head + 4, 4);
        if (memcmp(head, name, 4) == 0) return size;
        if (fseek(file, size + size % 2, SEEK_CUR) != 0) break;
    }
    return -1;
}

/* Reads the samples. A header may claim more than the file has, if the file was written during a recording. */
static bool take_samples(recording *r, FILE *file, long size) {
    const long here = ftell(file);
    fseek(file, 0, SEEK_END);
    const long there = ftell(file) - here, count = (size < there ? size : there) / 2;
    fseek(file, here, SEEK_SET);
    r->frame = r->rate == 16000 ? FRAME : FRAME / 2, r->before = r->rate == 16000 ? BEFORE : BEFORE / 2;
    r->frames = (int)((count + r->frame - 1) / r->frame);
    r->samples = calloc((size_t)r->before + (size_t)r->frames * (size_t)r->frame, sizeof *r->samples);
    unsigned char pair[2];
    for (long i = 0; r->samples && i < count && fread(pair, 1, 2, file) == 2; i++)
        r->samples[r->before + i] = (float)(int16_t)number_at(pair, 2) / 32768;
    return r->samples && r->frames > 0;
}

static bool read_recording(recording *r, const char *path) {
    unsigned char riff[12], format[16];
    FILE *file = fopen(path, "rb");
    bool good =
        file && fread(riff, 1, 12, file) == 12 && memcmp(riff, "RIFF", 4) == 0 && memcmp(riff + 8, "WAVE", 4) == 0;
    const long header = good ? find_chunk(file, "fmt ") : -1;
    good = header >= 16 && fread(format, 1, 16, file) == 16 && fseek(file, header - 16, SEEK_CUR) == 0;
    r->rate = good ? (int)number_at(format + 4, 4) : 0;
    good = good && number_at(format, 2) == 1 && number_at(format + 2, 2) == 1 && number_at(format + 14, 2) == 16;
    const long size = good && (r->rate == 8000 || r->rate == 16000) ? find_chunk(file, "data") : -1;
    good = size > 0 && take_samples(r, file, size);
    if (file) fclose(file);
    if (!good)
        fprintf(stderr, "vad: %s: not found, or not a .wav of 16 bits, one channel, 8000 or 16000 samples a second\n",
                path);
    return good;
}

/* ---- what was found ------------------------------------------------------------------------------------------------- */

static void draw(const recording *r, const float *speech) {
    static const char shade[] = " .:-=+*#%@";
    const double seconds = (double)r->frame / r->rate;
    for (int i = 0; i < r->frames; i++) {
        if (i % SHOWN == 0) printf("%s%6.2f s |", i ? "|\n" : "", i * seconds);
        putchar(shade[(int)(speech[i] * 9 + 0.5F)]);
    }
    printf("|\n\n");
}

/* Speech begins above 0.5 and ends below 0.35. */
static void list(const recording *r, const float *speech) {
    const double seconds = (double)r->frame / r->rate;
    int begin = -1;
    for (int i = 0; i <= r->frames; i++) {
        if (begin < 0 && i < r->frames && speech[i] > 0.5F) begin = i;
        if (begin < 0 || (i < r->frames && speech[i] > 0.35F)) continue;
        printf("speech from %5.2f to %5.2f s\n", begin * seconds, i * seconds);
        begin = -1;
    }
}

static bool listen(dlc_context *context, dlc_onnx_runner *runner, const recording *r, bool numbers) {
    float *speech = calloc((size_t)r->frames, sizeof *speech);
    double begin = milliseconds(), first = 0;
    bool good = speech != NULL;
    for (int i = 0; good && i < r->frames; i++) {
        good = hear(runner, r, i, &speech[i]) == DLC_OK;
        if (i == 0) first = milliseconds() - begin;
    }
    const double rest = milliseconds() - begin - first;
    if (!good) fprintf(stderr, "vad: %s\n", speech ? dlc_error_message(context) : "no memory");
    for (int i = 0; good && numbers && i < r->frames; i++) printf("%d %.6f\n", i, (double)speech[i]);
    if (good && !numbers) {
        draw(r, speech);
        list(r, speech);
        printf("\n%d frames of %d ms; first call %.1f ms, then %.3f ms per call\n", r->frames,
               1000 * r->frame / r->rate, first, rest / (r->frames > 1 ? r->frames - 1 : 1));
    }
    free(speech);
    return good;
}

int main(int argc, char **argv) {
    const bool numbers = argc > 1 && strcmp(argv[1], "--numbers") == 0;
    char model[DATA_PATH], sound[DATA_PATH];
    if (!data_find(model, "silero_vad/data/silero_vad_op18_ifless.onnx")) return DATA_MISSING;
    if (argc > 1 + numbers)
        snprintf(sound, sizeof sound, "%s", argv[1 + numbers]);
    else if (!data_find(sound, "recording.wav"))
        return DATA_MISSING;
    recording r = {0};
    dlc_context *context = NULL;
    dlc_onnx_runner *runner = NULL;
    bool good = read_recording(&r, sound);
    if (good) {
        good = dlc_context_create(NULL, &context) == DLC_OK && (runner = open_network(context, model)) != NULL;
        if (!good) fprintf(stderr, "vad: %s\n", dlc_error_message(context));
    }
    good = good && listen(context, runner, &r, numbers);
    dlc_onnx_runner_destroy(runner);
    dlc_context_destroy(context);
    free(r.samples);
    return !good;
}
