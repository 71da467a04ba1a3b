// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Takes in the tasks of a control group and of those below it: who is in it when recording begins, who is moved or born
 * into it later. Who leaves it stays traced.
 */
#include "adoption.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum {
	GROUP_DEPTH_MAX = 32,
	HIERARCHIES_MAX = 32,
};

/* Filled by the recorder before load. */
const volatile __u64 wanted_group = 0;
const volatile __s32 wanted_hierarchy = 0; /* 0 = version 2 */

static __always_inline bool is_below_wanted(struct cgroup *group)
{
	if (BPF_CORE_READ(group, root, hierarchy_id) != wanted_hierarchy)
		return false;
	for (int i = 0; i < GROUP_DEPTH_MAX && group; i++) {
		if (BPF_CORE_READ(group, kn, id) == wanted_group)
			return true;
		struct cgroup_subsys_state *parent = BPF_CORE_READ(group, self.parent);
		group = parent ? BPF_CORE_READ(parent, cgroup) : NULL;
	}
	return false;
}

/* The group of a task in the wanted hierarchy. */
static __always_inline struct cgroup *group_of(struct task_struct *task)
{
	struct css_set *set = BPF_CORE_READ(task, cgroups);
	if (!wanted_hierarchy)
		return BPF_CORE_READ(set, dfl_cgrp);
	struct list_head *next = BPF_CORE_READ(set, cgrp_links.next);
	for (int i = 0; i < HIERARCHIES_MAX; i++) {
		if ((void *)next == (void *)set + bpf_core_field_offset(struct css_set, cgrp_links))
			break;
		struct cgrp_cset_link *link = (void *)next - bpf_core_field_offset(struct cgrp_cset_link, cgrp_link);
		struct cgroup *group = BPF_CORE_READ(link, cgrp);
		if (BPF_CORE_READ(group, root, hierarchy_id) == wanted_hierarchy)
			return group;
		next = BPF_CORE_READ(next, next);
	}
	return NULL;
}

SEC("iter/task")
int adopt_group(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	recorder_root = root_of(bpf_get_current_task_btf());
	if (!task)
		return 0;
	struct cgroup *group = group_of(task);
	if (group && is_below_wanted(group))
		adopt_task(task);
	return 0;
}

SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(cgroup_attach_task, struct cgroup *group, const char *path, struct task_struct *leader, bool all_threads)
{
	if (!is_below_wanted(group))
		return 0;
	/* Its other threads are not told here: the recorder, which sees that there is something new, runs adopt_group again. */
	adopt_task(leader);
	if (all_threads)
		count_adoption();
	return 0;
}

/* clone3 with CLONE_INTO_CGROUP starts a child in a group that its parent is not in. */
SEC("tp_btf/task_newtask")
int BPF_PROG(group_newtask, struct task_struct *task, __u64 clone_flags)
{
	struct cgroup *group = group_of(task);
	if (group && is_below_wanted(group))
		adopt_task(task);
	return 0;
}
