/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_PROGRAMS_H
#define FLEXTRACE_PROGRAMS_H

#include <stdbool.h>
#include <stdio.h>

struct bpf_link;
struct bpf_map;
struct bpf_object;
struct bpf_program;
struct kernel_btf;

enum { PROGRAMS_MAX = 64, PROGRAM_NAME_BYTES = 128 };

/* What is attached. */
struct programs {
	struct bpf_link *links[PROGRAMS_MAX];
	int link_count;
};

/* What is to be recorded. */
struct programs_wish {
	bool layer_vfs;
	bool layer_block;
	bool group; /* tasks of a control group */
};

enum program_state {
	PROGRAM_LOADS,
	PROGRAM_MISSING,
	PROGRAM_REPLACED,
	PROGRAM_FOR_OTHERS,
	PROGRAM_REFUSED,
};

/* A program that the kernel did not take. */
struct refusal {
	char *program;
	int error; /* negative errno */
	char *words; /* what the kernel said last, NULL = nothing */
};

/* 0, or -ENOENT after saying which tracepoint is missing that recording cannot do without. */
int programs_check(struct bpf_object *object, const struct programs_wish *wish, const struct kernel_btf *types);
/* Switches on what this kernel has the tracepoints and functions for and what is wished, and off the rest. */
void programs_choose(struct bpf_object *object, const struct programs_wish *wish, const struct kernel_btf *types);
/* Where it is attached; of an iterator also which it is. */
void programs_put_name(const struct bpf_program *program, char *name, size_t room);
bool programs_is_required(const char *name);
/* Whether a run that the kernel leaves out, as the program is running on that CPU, may be a record that is missing. */
bool programs_makes_records(const char *name);
/* One line for each program that is wished: whether it is loaded, and why not. */
void programs_describe(struct bpf_object *object, const struct programs_wish *wish, const struct kernel_btf *types,
		       FILE *stream);
/* Each program, what became of it, and what is lost without it, as elements of a JSON array. */
void programs_put(struct bpf_object *object, const struct kernel_btf *types, const struct refusal *refusals,
		  int refusal_count, FILE *json);
/* Attaches a program if it is switched on. 0 or a negative errno. The links end with the process, also if it is killed. */
int programs_attach(struct programs *programs, struct bpf_object *object, const char *name);
/*
 * Whether those at functions can be attached: not every architecture can, which shows only then. 0, or a negative errno with
 * the name of the program in *refused.
 */
int programs_try_functions(struct bpf_object *object, const char **refused);
/* Attaches all that are switched on, but those of the table that are attached apart. 0 or a negative errno. */
int programs_attach_all(struct programs *programs, struct bpf_object *object);
/* In the reverse order. */
void programs_detach(struct programs *programs);
/* What is done at each byte that an iterator writes. 0 or a negative errno. */
struct between {
	int (*act)(void *context);
	void *context;
};

/*
 * Runs an iterator once, over all there is, or all of `map`, if it is switched on. 0 or a negative errno. between: NULL =
 * nothing is done.
 */
int programs_run_iterator(struct bpf_object *object, const char *name, const struct bpf_map *map,
			  const struct between *between);

#endif /* FLEXTRACE_PROGRAMS_H */
