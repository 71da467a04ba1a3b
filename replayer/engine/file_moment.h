/* SPDX-License-Identifier: Apache-2.0 */
/* Turns what one operation does to a file into what is known of the file from then on, while a trace is gone through. */
#ifndef FLEXTRACE_FILE_MOMENT_H
#define FLEXTRACE_FILE_MOMENT_H

#include "replayer/engine/file_list.h"

/*
 * What a file takes beyond its part of the image; less than nothing, modulo 2^64, where it has given some of that back. A
 * removed one is there for as long as a replay has it open (descriptors.c): up to its last recorded close.
 */
uint64_t moment_growth(const struct file *file, const struct moment *moment);

/* A request needs the file to be there up to `end`, which the trace has not made so itself. */
void moment_need(struct file *file, struct moment *moment, uint64_t end);

/* A request moved data up to `end`. */
void moment_run(const struct io_record *io, uint64_t end, struct file *file, struct moment *moment);

/* An operation uses a descriptor of this class. */
void moment_use(struct file *file, const struct moment *moment, uint8_t class);

/*
 * Whether the replay makes it without a name. What is linked, or opened again, after all is made with one, and keeps it.
 */
void moment_nameless(struct file *file, struct moment *moment, bool nameless);

void moment_resize(struct file *file, struct moment *moment, uint64_t size_bytes);
void moment_allocate(const struct fileop_record *op, struct file *file, struct moment *moment);

#endif
