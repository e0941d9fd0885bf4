/* Operators of the standard that libdlc leaves to the host, as functions that the conformance program registers. */
#ifndef TEST_ONNX_REGISTERED_H
#define TEST_ONNX_REGISTERED_H

#include <dlc/onnx.h>

/* RegexFullMatch by libc's regular expressions, ImageDecoder of uncompressed PNM, BMP and TIFF. */
dlc_status registered_all(dlc_context *context);
/* How often these functions have been called. */
int registered_calls(void);

#endif
