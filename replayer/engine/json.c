// SPDX-License-Identifier: Apache-2.0
// Turns values into a JSON document on stdout.
#include <math.h>
#include <stdio.h>

#include "replayer/engine/json.h"

static int depth;
static bool comma; /* the next value needs one before it */

static void print_text(const char *text)
{
	putchar('"');
	for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
		if (*at == '"' || *at == '\\')
			printf("\\%c", *at);
		else if (*at < 0x20)
			printf("\\u%04x", *at);
		else
			putchar(*at);
	}
	putchar('"');
}

static void start(const char *name)
{
	if (comma)
		putchar(',');
	if (depth)
		printf("\n%*s", 2 * depth, "");
	if (name) {
		print_text(name);
		printf(": ");
	}
	comma = true;
}

void json_open(const char *name, char bracket)
{
	start(name);
	putchar(bracket);
	depth++;
	comma = false;
}

void json_close(char bracket)
{
	depth--;
	if (comma)
		printf("\n%*s", 2 * depth, "");
	putchar(bracket);
	comma = true;
	if (!depth) {
		putchar('\n');
		comma = false;
	}
}

void json_text(const char *name, const char *value)
{
	start(name);
	print_text(value);
}

void json_count(const char *name, uint64_t value)
{
	start(name);
	printf("%llu", (unsigned long long)value);
}

void json_number(const char *name, double value)
{
	start(name);
	printf("%.9g", isfinite(value) ? value : 0.0);
}

void json_flag(const char *name, bool value)
{
	start(name);
	printf(value ? "true" : "false");
}
