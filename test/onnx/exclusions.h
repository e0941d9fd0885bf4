/* test/onnx/excluded.txt: the cases that do not pass, a line for each: its name and the reason. */
#ifndef TEST_ONNX_EXCLUSIONS_H
#define TEST_ONNX_EXCLUSIONS_H

#define EXCLUSIONS_PATH "test/onnx/excluded.txt"

/* Beginnings of the reasons for which libdlc will never pass a case: random numbers of another generator, formats of images that no decoder
 * is registered for, gradients, data that contradict the standard. All other cases lack an import. */
enum { EXCLUSIONS_CLASSES = 4 };
extern const char *const exclusions_class[EXCLUSIONS_CLASSES];

void exclusions_read(void);
void exclusions_write(void);
/* The number of a case's line; -1: it is not excluded. */
int exclusions_find(const char *name);
void exclusions_remove(int number);
/* Excludes the case with this reason; the class of an excluded case is kept. Returns the class. */
int exclusions_set(const char *name, const char *why);
/* EXCLUSIONS_CLASSES: none. */
int exclusions_class_of(int number);

#endif
