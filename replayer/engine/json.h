/* SPDX-License-Identifier: Apache-2.0 */
/* Turns values into a JSON document on stdout, with commas and indents where they belong. */
#ifndef FLEXTRACE_JSON_H
#define FLEXTRACE_JSON_H

#include <stdbool.h>
#include <stdint.h>

/* A name of NULL is for the members of a list and for the whole document. */
void json_open(const char *name, char bracket);
void json_close(char bracket);
void json_text(const char *name, const char *value);
void json_count(const char *name, uint64_t value);
void json_number(const char *name, double value);
void json_flag(const char *name, bool value);

#endif
