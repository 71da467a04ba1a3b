// SPDX-License-Identifier: Apache-2.0
/*
 * Turns the directory of a control group, of version 1 or 2, into its hierarchy and id in the kernel.
 */
#include "control_group.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#include "cleanup.h"

/* Options of the file system on a device, e.g. "rw,memory" or "rw,xattr,name=systemd". */
static bool mount_options(dev_t device, char *options, size_t room)
{
	char wanted[32];
	_cleanup_free_ char *line = NULL;
	size_t line_room = 0;
	_cleanup_fclose_ FILE *mounts = fopen("/proc/self/mountinfo", "re");
	snprintf(wanted, sizeof(wanted), "%u:%u", major(device), minor(device));
	while (mounts && getline(&line, &line_room, mounts) > 0) {
		char number[32];
		char *last = strrchr(line, ' ');
		if (sscanf(line, "%*d %*d %31s", number) != 1 || strcmp(number, wanted) || !last)
			continue;
		last[strcspn(last, "\n")] = '\0';
		snprintf(options, room, ",%s,", last + 1);
		return true;
	}
	return false;
}

/* Lines of /proc/self/cgroup are HIERARCHY:CONTROLLER[,CONTROLLER...]:PATH; any of the controllers names the hierarchy. */
static int find_hierarchy(const char *options, int32_t *hierarchy)
{
	_cleanup_free_ char *line = NULL;
	size_t line_room = 0;
	_cleanup_fclose_ FILE *groups = fopen("/proc/self/cgroup", "re");
	if (!groups)
		return -errno;
	while (getline(&line, &line_room, groups) > 0) {
		char controller[64], option[72];
		if (sscanf(line, "%d:%63[^:,]", hierarchy, controller) != 2)
			continue;
		snprintf(option, sizeof(option), ",%s,", controller);
		if (strstr(options, option))
			return 0;
	}
	return -EINVAL;
}

int control_group_find(struct control_group *group, const char *directory)
{
	struct stat stat_of;
	struct statfs filesystem;
	char options[512];

	*group = (struct control_group){};
	if (stat(directory, &stat_of) || statfs(directory, &filesystem))
		return -errno;
	if (!S_ISDIR(stat_of.st_mode))
		return -EINVAL;
	group->id = stat_of.st_ino;
	if (filesystem.f_type == CGROUP2_SUPER_MAGIC)
		return 0;
	if (filesystem.f_type != CGROUP_SUPER_MAGIC || !mount_options(stat_of.st_dev, options, sizeof(options)))
		return -EINVAL;
	return find_hierarchy(options, &group->hierarchy);
}
