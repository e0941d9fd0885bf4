/* The main function of libdlc-compiler: the cpu target serves compile requests until the connection closes. */
#include "jit/jit.h"

#include <stdio.h>

int dlc_compiler_main(int count, char **words) {
    if (count != 2 || strcmp(words[1], "--compile") != 0) {
        fprintf(stderr, "libdlc-compiler is started by libdlc, where a context has the option isolate_compiler\n");
        return 2;
    }
#ifdef DLC_TARGET_cpu
    return target_cpu.serve();
#else
    return 2;
#endif
}
