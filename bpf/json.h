/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLEXTRACE_JSON_H
#define FLEXTRACE_JSON_H

#include <stdint.h>
#include <stdio.h>

/* A string in quotation marks. */
void json_string(FILE *json, const char *text);
/* One that takes no more than about so many bytes, "..." at its end if it is cut. How many are left; 0: it was cut. */
size_t json_string_within(FILE *json, const char *text, size_t bytes_max);
/* "name":number, after a comma unless it is the first. */
void json_number(FILE *json, const char **separator, const char *name, uint64_t number);

#endif /* FLEXTRACE_JSON_H */
