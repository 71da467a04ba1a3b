// SPDX-License-Identifier: Apache-2.0
/*
 * Turns texts and numbers into JSON.
 */
#include "json.h"

enum { CHARACTER_BYTES_MAX = 6 }; /* of one in a string */

size_t json_string_within(FILE *json, const char *text, size_t bytes_max)
{
	const unsigned char *at = (const unsigned char *)text;
	size_t left = bytes_max;

	fputc('"', json);
	for (; *at && left >= CHARACTER_BYTES_MAX; at++) {
		if (*at == '"' || *at == '\\')
			left -= fprintf(json, "\\%c", *at);
		else if (*at < 0x20 ||
			 *at >= 0x7f) /* bytes of unknown encoding: one escape each keeps the JSON valid */
			left -= fprintf(json, "\\u%04x", *at);
		else
			left -= fputc(*at, json) == *at;
	}
	fputs(*at ? "...\"" : "\"", json);
	return *at ? 0 : left;
}

void json_string(FILE *json, const char *text)
{
	json_string_within(json, text, SIZE_MAX);
}

void json_number(FILE *json, const char **separator, const char *name, uint64_t number)
{
	fprintf(json, "%s\"%s\":%llu", *separator, name, (unsigned long long)number);
	*separator = ",";
}
