// SPDX-License-Identifier: Apache-2.0
/*
 * Turns "64M" into bytes and "5m" into nanoseconds, as characterize/units.py does. An unknown unit is an error, not a guess.
 */
#include "quantity.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNIT_ROOM = 8 };

static const long double DURATION_MAX_NS = 1e18L; /* thirty years */

/*
 * A decimal number without sign, and the unit behind it; spaces may stand around both. strtold would take "inf" and hexadecimal
 * digits as well. A long double holds every number of 64 bits.
 */
static bool take(const char *text, long double *number, char unit[static UNIT_ROOM])
{
	char *rest;
	int bytes = 0;
	text += strspn(text, " ");
	if (!isdigit((unsigned char)text[text[0] == '.']) || text[1] == 'x' || text[1] == 'X')
		return false;
	*number = strtold(text, &rest);
	*unit = '\0';
	sscanf(rest, " %7[A-Za-z]%n", unit, &bytes);
	rest += bytes;
	return !rest[strspn(rest, " ")];
}

bool quantity_bytes(const char *text, uint64_t *bytes)
{
	static const char letters[] = "KMGT";
	char unit[UNIT_ROOM];
	long double number;
	if (!take(text, &number, unit))
		return false;
	const char *letter = *unit ? strchr(letters, *unit == 'k' ? 'K' : *unit) : NULL;
	const char *end = letter ? unit + 1 : unit;
	if (*end && strcmp(end, "B") && (!letter || *unit == 'k' || strcmp(end, "iB")))
		return false;
	for (const char *power = letters; letter && power <= letter; power++)
		number *= *end == 'B' ? 1000 : 1024;
	number += 0.5L;
	if (!(number < 0x1p63L))
		return false;
	*bytes = number;
	return true;
}

bool quantity_duration_ns(const char *text, uint64_t *duration_ns)
{
	static const struct {
		const char *name;
		long double ns;
	} units[] = {{"", 1e9L},  {"ns", 1},	{"us", 1e3L},	{"ms", 1e6L},
		     {"s", 1e9L}, {"m", 60e9L}, {"min", 60e9L}, {"h", 3600e9L}};
	char unit[UNIT_ROOM];
	long double number;
	if (!take(text, &number, unit))
		return false;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(unit, units[i].name) || !(number * units[i].ns <= DURATION_MAX_NS))
			continue;
		*duration_ns = number * units[i].ns + 0.5L;
		return true;
	}
	return false;
}
