/* Trains two layers of LSTM (Hochreiter and Schmidhuber 1997) to continue a text, character by character, and lets them write. The rows of a batch follow
 * the text: the state that a step ends with is carried to the next one, without gradients (truncated backpropagation, Williams and Peng 1990).
 *
 *   train_lstm [FILE [STEPS [CHECKPOINT]]]      as text.h says */
#include "text.h"

enum { WIDTH = 128, LAYERS = 2 };

/* The state begins with zeros: a step's with what the one before left, evaluation's anew. */
static dlc_value lstm(dlc_training *t, int layer, dlc_value x) {
    static const char *const names[] = {"w", "r", "bias", "h", "c"};
    const int64_t rows = 4 * WIDTH;
    const bool is_step = dlc_training_is_step(t);
    const double deviation = 1 / sqrt((double)WIDTH);
    char full[5][32];
    dlc_value h = DLC_NONE, c = DLC_NONE, result[3];
    dlc_lstm_options options = DLC_LSTM_OPTIONS_INIT;
    options.layout = DLC_LSTM_LAYOUT_BATCH;
    for (int i = 0; i < 5; i++) snprintf(full[i], sizeof full[i], "layer%d.%s", layer, names[i]);
    dlc_value w = parameter(t, full[0], 3, (int64_t[]){1, rows, WIDTH}, deviation);
    dlc_value r = parameter(t, full[1], 3, (int64_t[]){1, rows, WIDTH}, deviation);
    dlc_value bias = parameter(t, full[2], 2, (int64_t[]){1, 2 * rows}, 0);
    if (is_step) h = dlc_training_carried(t, full[3], DLC_F32, 3, (int64_t[]){BATCH, 1, WIDTH}, NULL);
    if (is_step) c = dlc_training_carried(t, full[4], DLC_F32, 3, (int64_t[]){BATCH, 1, WIDTH}, NULL);
    dlc_lstm_with(x, w, r, bias, DLC_NONE, h, c, DLC_NONE, &options, 3, result);
    if (is_step) dlc_training_carry(t, full[3], result[1]);
    if (is_step) dlc_training_carry(t, full[4], result[2]);
    return dlc_reshape(result[0], 3, (dlc_dim[]){dlc_value_dim(x, 0), {CONTEXT, NULL}, {WIDTH, NULL}});
}

static dlc_status build(void *user, dlc_training *t, dlc_value *loss) {
    const text *from = user;
    dlc_value x = dlc_embedding(parameter(t, "characters", 2, (int64_t[]){from->kinds, WIDTH}, 1), input_of(t, "ids"));
    for (int layer = 0; layer < LAYERS; layer++) x = lstm(t, layer, x);
    *loss =
        loss_of(t, dlc_matmul(x, parameter(t, "scores", 2, (int64_t[]){WIDTH, from->kinds}, 1 / sqrt((double)WIDTH))));
    return DLC_OK;
}

int main(int count, char **words) {
    return train_on_text(count, words, build, 0.005, true);
}
