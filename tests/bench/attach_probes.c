// SPDX-License-Identifier: Apache-2.0
/*
 * Attaches all programs of a BPF object, says so, and waits for a signal: nothing stays attached when it has ended.
 */
#include <bpf/libbpf.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int fail(const char *what, const char *object)
{
	fprintf(stderr, "attach_probes: cannot %s %s: %m\n", what, object);
	return 1;
}

int main(int argc, char **argv)
{
	struct bpf_object *object = NULL;
	struct bpf_program *program;

	if (argc != 2) {
		fprintf(stderr, "usage: attach_probes OBJECT\n");
		return 2;
	}
	object = bpf_object__open_file(argv[1], NULL);
	if (!object || bpf_object__load(object))
		return fail("load", argv[1]);
	bpf_object__for_each_program(program, object)
	{
		if (!bpf_program__attach(program))
			return fail("attach", bpf_program__name(program));
	}
	printf("attached\n");
	fflush(stdout);
	pause();
	return 0;
}
