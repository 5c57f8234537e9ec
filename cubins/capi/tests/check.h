/* What the C tests share: a check that says where it failed, and ends the program. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zinc_cuda.h"
#include "zinc_kernels.h"

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            if (zcu_last_error()) fprintf(stderr, "last failure: %s\n", zcu_last_error()->text); \
            exit(1); \
        } \
    } while (0)

/* A call that succeeds. */
#define OK(call) CHECK((call) == ZCU_STATUS_OK)

/* A call that fails with this status, which is also that of the last error. */
#define FAILS(call, wanted) \
    do { \
        CHECK((call) == (wanted)); \
        CHECK(zcu_last_error()->status == (wanted)); \
        CHECK(zcu_last_error()->text[0] != 0); \
    } while (0)

#define SAME(a, b) CHECK(strcmp((a), (b)) == 0)
#define CONTAINS(text, part) CHECK(strstr((text), (part)) != NULL)

#endif
