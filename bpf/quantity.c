// SPDX-License-Identifier: Apache-2.0
/*
 * Turns "64M" into bytes and "5m" into nanoseconds, as characterize/units.py does. An unknown unit is an error, not a guess.
 */
#include "quantity.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool quantity_bytes(const char *text, uint64_t *bytes)
{
	static const char letters[] = "KMGT";
	char *end = NULL;
	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	unsigned long long number = strtoull(text, &end, 10);
	if (errno)
		return false;
	const char *letter = *end ? strchr(letters, *end == 'k' ? 'K' : *end) : NULL;
	uint64_t unit = 1;
	if (letter) {
		end++;
		uint64_t base = !strcmp(end, "B") ? 1000 : 1024;
		for (const char *power = letters; power <= letter; power++)
			unit *= base;
	}
	if (*end && strcmp(end, "B") && (!letter || strcmp(end, "iB")))
		return false;
	return !__builtin_mul_overflow((uint64_t)number, unit, bytes);
}

bool quantity_duration_ns(const char *text, uint64_t *duration_ns)
{
	static const struct {
		const char *name;
		double ns;
	} units[] = {{"", 1e9},	 {"ns", 1},   {"us", 1e3},   {"ms", 1e6},
		     {"s", 1e9}, {"m", 60e9}, {"min", 60e9}, {"h", 3600e9}};
	char *end = NULL;
	if (*text < '0' || *text > '9')
		return false;
	double number = strtod(text, &end);
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		double ns = number * units[i].ns;
		if (strcmp(end, units[i].name) || !(ns < 0x1p63))
			continue;
		*duration_ns = ns;
		return true;
	}
	return false;
}
