/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_PRIVILEGES_H
#define FLEXTRACE_PRIVILEGES_H

#include <stdbool.h>
#include <stddef.h>

/* Whether a capability that recording cannot do without is missing; names the missing ones. */
bool privileges_missing(char *names, size_t room);

#endif /* FLEXTRACE_PRIVILEGES_H */
