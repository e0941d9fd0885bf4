/* Golden files: text in, text out, in one file.
 *   ; words for people
 *   what goes in
 *   ==== mark
 *   what is expected to come out
 * With DLC_BLESS=1 the files take what comes out now; review the difference like code. */
#ifndef TEST_GOLDEN_FILES_H
#define TEST_GOLDEN_FILES_H

#include "lib/lib.h"

/* Writes to `out` the output for `input`, the text before the mark without leading comment lines. An error that it raises is expected text
 * like any other: `error: MESSAGE`. */
typedef void golden_make(lib_arena *arena, lib_text *out, const char *input);

/* A cmocka group with one test for each FOLDER/x.txt, by name. mark: the whole line, as "==== loops\n". */
int golden_run(const char *group, const char *folder, const char *mark, golden_make *make);

#endif
