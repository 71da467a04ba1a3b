/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scope guards: a variable declared with one of these gives its resource back when it goes out of scope.
 */
#ifndef FLEXTRACE_CLEANUP_H
#define FLEXTRACE_CLEANUP_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_free(void *pointer)
{
	free(*(void **)pointer);
}

static inline void cleanup_close(int *descriptor)
{
	if (*descriptor >= 0)
		close(*descriptor);
}

static inline void cleanup_fclose(FILE **stream)
{
	if (*stream)
		fclose(*stream);
}

static inline void cleanup_closedir(DIR **directory)
{
	if (*directory)
		closedir(*directory);
}

#define _cleanup_free_ __attribute__((cleanup(cleanup_free)))
#define _cleanup_close_ __attribute__((cleanup(cleanup_close)))
#define _cleanup_fclose_ __attribute__((cleanup(cleanup_fclose)))
#define _cleanup_closedir_ __attribute__((cleanup(cleanup_closedir)))

#endif /* FLEXTRACE_CLEANUP_H */
