/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a directory into its entries, and tells its end from a failure. */
#ifndef FLEXTRACE_LISTING_H
#define FLEXTRACE_LISTING_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* Of a descriptor, which stays as it is. NULL with errno. */
static inline DIR *listing_open(int directory)
{
	int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *listing = copy < 0 ? NULL : fdopendir(copy);

	if (!listing && copy >= 0) {
		int error = errno;

		close(copy);
		errno = error;
	}
	return listing;
}

/* NULL at the end, where errno is 0, and where the directory cannot be read. */
static inline const struct dirent *listing_next(DIR *listing)
{
	errno = 0;
	return readdir(listing);
}

#endif
