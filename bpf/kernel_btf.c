// SPDX-License-Identifier: Apache-2.0
/*
 * Name of a tracepoint -> its type, in the kernel or in a module that is loaded: distributions build file systems so; and
 * whether the kernel has a function.
 */
#include "kernel_btf.h"

#include <errno.h>
#include <stdio.h>

/* The file systems that say where a write begins (file_position.bpf.c). */
static const char *const modules[KERNEL_MODULES_MAX] = {"ext4", "xfs"};

int kernel_btf_init(struct kernel_btf *types, bool with_modules)
{
	*types = (struct kernel_btf){.kernel = btf__load_vmlinux_btf()};
	if (!types->kernel)
		return -errno;
	for (int i = 0; with_modules && i < KERNEL_MODULES_MAX; i++) {
		struct btf *module = btf__load_module_btf(modules[i], types->kernel);
		if (module)
			types->modules[types->module_count++] = module;
	}
	return 0;
}

static const struct btf_type *tracepoint_in(const struct btf *btf, const char *tracepoint)
{
	char name[128];
	snprintf(name, sizeof(name), "btf_trace_%s", tracepoint);
	int id = btf__find_by_name_kind(btf, name, BTF_KIND_TYPEDEF);
	const struct btf_type *type = id < 0 ? NULL : btf__type_by_id(btf, id);
	while (type && !btf_is_func_proto(type))
		type = btf__type_by_id(btf, type->type);
	return type;
}

const struct btf_type *kernel_btf_tracepoint(const struct kernel_btf *types, const char *tracepoint)
{
	const struct btf_type *type = tracepoint_in(types->kernel, tracepoint);
	for (int i = 0; !type && i < types->module_count; i++)
		type = tracepoint_in(types->modules[i], tracepoint);
	return type;
}

bool kernel_btf_has_function(const struct kernel_btf *types, const char *function)
{
	return btf__find_by_name_kind(types->kernel, function, BTF_KIND_FUNC) >= 0;
}

bool kernel_btf_offers(const struct kernel_btf *types, const char *name)
{
	return kernel_btf_tracepoint(types, name) || kernel_btf_has_function(types, name);
}

void kernel_btf_deinit(struct kernel_btf *types)
{
	/* Modules refer to the types of the kernel. */
	while (types->module_count)
		btf__free(types->modules[--types->module_count]);
	btf__free(types->kernel);
}
