/* SPDX-License-Identifier: Apache-2.0 */
/* Turns what went wrong into one line on stderr; stdout belongs to the result. */
#ifndef FLEXTRACE_MESSAGE_H
#define FLEXTRACE_MESSAGE_H

/* Prints "flextrace-replay: ..." and a newline. Says what failed, on which object, why, and what to do. */
__attribute__((format(printf, 1, 2))) void complain(const char *format, ...);

/* Name of an errno such as "ENOSPC"; takes the positive number. */
const char *errno_name(int error);

/* What to do where there is no room for what was to be written, to stand behind what the error says; else "". */
const char *room_remedy(int error);

/* What to do where a directory on the way to `path` may not be entered; else "". Stays until the next call. */
const char *way_remedy(int error, const char *path);

#endif
