// SPDX-License-Identifier: Apache-2.0
/*
 * Turns texts and numbers into JSON.
 */
#include "json.h"

void json_string(FILE *json, const char *text)
{
	fputc('"', json);
	for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
		if (*at == '"' || *at == '\\')
			fprintf(json, "\\%c", *at);
		else if (*at < 0x20 ||
			 *at >= 0x7f) /* bytes of unknown encoding: one escape each keeps the JSON valid */
			fprintf(json, "\\u%04x", *at);
		else
			fputc(*at, json);
	}
	fputc('"', json);
}

void json_number(FILE *json, const char **separator, const char *name, uint64_t number)
{
	fprintf(json, "%s\"%s\":%llu", *separator, name, (unsigned long long)number);
	*separator = ",";
}
