// SPDX-License-Identifier: Apache-2.0
// Turns what went wrong into one line on stderr.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
	if (error == EFBIG)
		return "; raise the limit on sizes of files (ulimit -f), or give a directory whose file system takes larger ones";
	return error == ENOSPC || error == EDQUOT ? "; make room there, or give another directory" : "";
}

const char *way_remedy(int error, const char *path)
{
	static char remedy[PATH_MAX + 128];
	char place[PATH_MAX];

	for (const char *end = path; error == EACCES && (end = strchr(end + 1, '/'));) {
		snprintf(place, sizeof(place), "%.*s", (int)(end - path), path);
		if (!faccessat(AT_FDCWD, place, X_OK, AT_EACCESS))
			continue;
		snprintf(remedy, sizeof(remedy),
			 ": directory %s may not be entered; run as its owner or as root, or have it opened", place);
		return remedy;
	}
	return "";
}
