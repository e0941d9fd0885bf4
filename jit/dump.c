#include "jit/internal.h"
