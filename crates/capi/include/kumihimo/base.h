/* kumihimo/base.h: version and error text. See kumihimo.h. */
#ifndef KUMIHIMO_BASE_H
#define KUMIHIMO_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define KUMI_BEGIN extern "C" {
#define KUMI_END }
#else
#define KUMI_BEGIN
#define KUMI_END
#endif

KUMI_BEGIN

#define KUMI_VERSION_MAJOR 0
#define KUMI_VERSION_MINOR 2
#define KUMI_VERSION_PATCH 0
#define KUMI_VERSION ((KUMI_VERSION_MAJOR << 16) | (KUMI_VERSION_MINOR << 8) | KUMI_VERSION_PATCH)

/* Returns the library's version. It is compatible with KUMI_VERSION if the major numbers are equal
 * and, while those are 0, the minor numbers are equal too. */
uint32_t kumi_version(void);

/* Returns the message of the last function that failed on this thread or microprocess, "" if none
 * has. Never NULL. Valid until the next failure there. */
const char *kumi_error_text(void);

/* No time limit, where a function takes one in nanoseconds. 0 means: only if the function need not
 * wait. */
#define KUMI_FOREVER (-1)

/* Size of an object in the program's memory, such as a kumi_mutex, in words. */
#define KUMI_OBJECT_WORDS 16

KUMI_END

#endif
