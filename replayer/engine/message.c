// SPDX-License-Identifier: Apache-2.0
// Turns what went wrong into one line on stderr.
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "replayer/engine/message.h"

void complain(const char *format, ...)
{
	int error = errno; /* callers return it afterwards */
	va_list arguments;

	va_start(arguments, format);
	fputs("flextrace-replay: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
	errno = error;
}

const char *errno_name(int error)
{
	const char *name = strerrorname_np(error);

	return name ? name : "EUNKNOWN";
}

const char *room_remedy(int error)
{
	return error == ENOSPC || error == EDQUOT ? "; make room there, or give another directory" : "";
}
