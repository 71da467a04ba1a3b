/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns standard streams that are closed into ones that nothing can be written to: whatever is opened next would have their
 * numbers, and get what is printed.
 */
#ifndef FLEXTRACE_STANDARD_STREAMS_H
#define FLEXTRACE_STANDARD_STREAMS_H

#include <fcntl.h>
#include <unistd.h>

/* Before anything is opened. Programs that are started have them closed again. */
static inline void standard_streams_hold(void)
{
	int descriptor;

	do
		descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC);
	while (descriptor >= 0 && descriptor <= STDERR_FILENO);
	if (descriptor >= 0)
		close(descriptor);
}

#endif /* FLEXTRACE_STANDARD_STREAMS_H */
