/* Status texts, error messages, and scopes: how compiler code leaves on the first mistake. The rules of scopes are in
 * lib.h. Nothing here allocates, so that "out of memory" can always be reported. */
#include "lib/lib.h"

#include <stdio.h>

const char *lib_status_text(dlc_status status) {
    switch (status) {
#define X(code, text) \
    case code: return text;
        DLC_STATUS_TABLE(X)
#undef X
    }
    return "unknown status";
}

/* Cuts at a character boundary of UTF-8, so that a cut message is still valid text. */
static void mark_as_cut(char *message) {
    size_t at = LIB_MESSAGE_MAX - sizeof "...";
    while (at > 0 && ((unsigned char)message[at] & 0xc0) == 0x80) at--;
    memcpy(message + at, "...", sizeof "...");
}

dlc_status lib_fail_v(lib_error *error, dlc_status status, const char *format, va_list arguments) {
    if (!error) return status;
    /* The arguments may point into error->message (wrapping an error with context): format into a separate buffer first. */
    char message[LIB_MESSAGE_MAX];
    int length = vsnprintf(message, sizeof message, format, arguments);
    if (length < 0) message[0] = 0;
    if (length >= LIB_MESSAGE_MAX) mark_as_cut(message);
    error->status = status;
    memcpy(error->message, message, strlen(message) + 1);
    return status;
}

dlc_status lib_fail(lib_error *error, dlc_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    lib_fail_v(error, status, format, arguments);
    va_end(arguments);
    return status;
}

void lib_raise_v(lib_scope *scope, dlc_status status, const char *format, va_list arguments) {
    lib_fail_v(&scope->error, status, format, arguments);
    longjmp(scope->target, 1);
}

void lib_raise(lib_scope *scope, dlc_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    lib_fail_v(&scope->error, status, format, arguments);
    va_end(arguments);
    longjmp(scope->target, 1);
}

void lib_raise_error(lib_scope *scope, const lib_error *error) {
    if (error != &scope->error) scope->error = *error;
    longjmp(scope->target, 1);
}
