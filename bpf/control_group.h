/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_CONTROL_GROUP_H
#define FLEXTRACE_CONTROL_GROUP_H

#include <stdint.h>

/* What the BPF programs know a control group by. */
struct control_group {
	int32_t hierarchy; /* as in /proc/cgroups; 0 = version 2 */
	uint64_t id; /* number of its directory, unique in the hierarchy; 0 = none */
};

/* 0, -EINVAL if the directory is not one of a control group, or another negative errno. */
int control_group_find(struct control_group *group, const char *directory);

#endif /* FLEXTRACE_CONTROL_GROUP_H */
