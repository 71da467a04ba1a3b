/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_FAIL_H
#define FLEXTRACE_FAIL_H

#include <stdio.h>
#include <string.h>

#include "options.h"

/* Says what cannot be done with which object, and why. The exit code. remedy: what follows that, may be empty. */
static inline int fail(const char *what, const char *object, int error, const char *remedy)
{
	fprintf(stderr, "flextrace record: cannot %s %s: %s%s\n", what, object, strerror(-error), remedy);
	return EXIT_FAILED;
}

#endif /* FLEXTRACE_FAIL_H */
