// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The least that a tracer of system calls can cost: a pair of programs that do nothing.
 */
#define SEC(name) __attribute__((section(name), used))

SEC("tp_btf/sys_enter")
int empty_enter(void *context)
{
	return 0;
}

SEC("tp_btf/sys_exit")
int empty_exit(void *context)
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
