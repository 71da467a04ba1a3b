// SPDX-License-Identifier: Apache-2.0
// Turns the begin of a path into whether it is one of the operating system's own files.
#include <string.h>

#include "replayer/engine/system_path.h"

bool is_system_path(const struct text_record *text)
{
	static const char *const directories[] = {"/usr/",  "/lib/", "/lib32/",	    "/lib64/",	  "/bin/",
						  "/sbin/", "/etc/", "/nix/store/", "/gnu/store/"};
	static const char local[] = "/usr/local/";

	if (!strncmp(text->text, local, strlen(local)))
		return false;
	for (size_t i = 0; i < sizeof(directories) / sizeof(*directories); i++) {
		if (!strncmp(text->text, directories[i], strlen(directories[i])))
			return true;
	}
	return false;
}
