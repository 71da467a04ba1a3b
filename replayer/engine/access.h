/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns a record into the resources that it touches, and how: files, names, and the entries of directories, as ROOT has
 * them (Weiss et al., SOSP 2013, section 3), as far as this engine replays them.
 *
 * A name is a path. Which file has which name changes as creations and renames end, so that records have to be looked at in
 * the order of their starts.
 */
#ifndef FLEXTRACE_ACCESS_H
#define FLEXTRACE_ACCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "replayer/engine/files.h"
#include "replayer/engine/trace_reader.h"

/* What is left behind by an access, for others to wait for. */
enum access_kind {
	ACCESS_USE, /* of data, by a read or a sync; of a name, by looking it up */
	ACCESS_WRITE, /* of data or size */
	ACCESS_OPEN,
	ACCESS_CLOSE,
	ACCESS_CHANGE, /* the file or name is made, renamed or removed */
	ACCESS_KINDS,
};

/* Sets of kinds, bits by their numbers. */
struct access_rule {
	uint8_t kind;
	uint8_t waits; /* for these, whoever made them */
	uint8_t waits_own; /* for these of its own process, whose descriptors they may be */
	/* Who waits for one of these, if it ended before this access began, waits for this access too. */
	uint8_t replaces;
	uint8_t replaces_own; /* of its own process */
};

struct access {
	uint32_t resource;
	const struct access_rule *rule;
};

enum { ACCESSES_MAX = 10 }; /* of a rename: the file, the one it replaces, two names and directories twice */

struct accesses {
	struct access list[ACCESSES_MAX];
	uint32_t count;
};

enum { NAME_CHANGES_MAX = 1024 };

/* A creation or a rename that has not ended yet. */
struct name_change {
	uint64_t start_ns, end_ns;
	uint32_t file;
	uint32_t taken; /* path that it had; 0 = the one that it has by then */
	uint32_t path; /* its new one; 0 = the one that it has */
	bool exchanges;
};

/* Which file has which name now. */
struct names {
	const struct file_table *table;
	uint32_t *path_of; /* the latest path of a file, by file; named by the first file that had it */
	uint32_t *owner_of; /* the file at a path, by path */
	struct name_change changes[NAME_CHANGES_MAX]; /* by their ends */
	uint32_t changes_count;
};

int names_init(struct names *names, const struct file_table *table);
void names_reset(struct names *names); /* as before the first operation */
void names_free(struct names *names);

/* What a record finds as it starts: at its end there may be others. */
struct names_found {
	uint32_t path; /* of its file; the one that it takes away, where it says which */
	uint32_t replaced; /* by a rename; 0 = no file */
};

/* In the order of the starts. */
struct names_found names_start(struct names *names, const union record *record);

/* How many resources there are: numbers are below it. */
uint32_t access_resources(const struct file_table *table);

/* What a record touches. None where only one thread ever does. */
void access_of(const struct file_table *table, const union record *record, struct names_found found,
	       struct accesses *accesses);

#endif
