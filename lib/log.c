/* The log: lines passed to the host's callback. The library itself never prints. Lines are formatted on the stack, so
 * logging works when memory is short. */
#include "lib/lib.h"

#include <stdio.h>

void lib_log_write(const lib_log *log, const char *format, ...) {
    if (!log || !log->write) return;
    lib_error line;
    va_list arguments;
    va_start(arguments, format);
    lib_fail_v(&line, DLC_OK, format, arguments);
    va_end(arguments);
    log->write(log->user, line.message);
}

void lib_log_lines(const lib_log *log, const char *text) {
    if (!log || !log->write) return;
    while (*text) {
        char line[LIB_MESSAGE_MAX];
        size_t length = strcspn(text, "\n");
        size_t part = length < sizeof line ? length : sizeof line - 1;
        memcpy(line, text, part);
        line[part] = 0;
        log->write(log->user, line);
        text += part;
        if (*text == '\n') text++;
    }
}
