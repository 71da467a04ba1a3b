/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_SUMMARY_H
#define FLEXTRACE_SUMMARY_H

#include <stdint.h>

#include "metadata.h"

/* What the user is told at the end of a recording. */
void summary_say(const struct metadata *metadata, const char *path, uint64_t lost, bool command_goes_on);
/* While recording, at the first loss. */
void summary_say_losing(const struct options *options, const struct tracer *tracer, uint64_t lost);
/* Says so if the trace file is written to the disk that the target most likely works on. process 0 = not known. */
void summary_say_same_disk(struct topology *topology, const char *path, dev_t trace_filesystem, pid_t process,
			   const char *prefix, FILE *stream);
/* Says so if there is nothing below which files are recorded; "" = all are. */
void summary_say_missing_prefix(const char *prefix, FILE *stream);

#endif /* FLEXTRACE_SUMMARY_H */
