/* libdlc-compiler: where contexts with the option isolate_compiler generate code. The library starts it and talks to it; it is of no
 * use to anybody else. */
#include <dlc/dlc.h>

int main(int count, char **words) {
    return dlc_compiler_main(count, words);
}
