/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_KERNEL_BTF_H
#define FLEXTRACE_KERNEL_BTF_H

#include <bpf/btf.h>
#include <stdbool.h>

enum { KERNEL_MODULES_MAX = 2 };

/* Types of the running kernel, and of those of its modules that have tracepoints for the recorder. */
struct kernel_btf {
	struct btf *kernel;
	struct btf *modules[KERNEL_MODULES_MAX];
	int module_count;
};

/* A module that is not loaded is left out. 0 or a negative errno. */
int kernel_btf_init(struct kernel_btf *types, bool with_modules);
/* The function that a tracepoint calls, its first parameter a void *; NULL if there is no such tracepoint. */
const struct btf_type *kernel_btf_tracepoint(const struct kernel_btf *types, const char *tracepoint);
bool kernel_btf_has_function(const struct kernel_btf *types, const char *function);
/* Whether there is a tracepoint or a function of that name. */
bool kernel_btf_offers(const struct kernel_btf *types, const char *name);
void kernel_btf_deinit(struct kernel_btf *types);

#endif /* FLEXTRACE_KERNEL_BTF_H */
