/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_PRIVILEGES_H
#define FLEXTRACE_PRIVILEGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Whether a capability that recording cannot do without is missing; names the missing ones. */
bool privileges_missing(char *names, size_t room);
/* Each capability that recording can make use of: whether it is there, whether it is required, what is lost without it. */
void privileges_put(FILE *json);
/* Whether the kernel lets this process see the types of its modules, which takes CAP_SYS_ADMIN. */
bool privileges_reach_modules(void);
/* Whether processes have other numbers here than in the kernel's programs: those of a container. */
bool privileges_in_pid_namespace(void);

#endif /* FLEXTRACE_PRIVILEGES_H */
