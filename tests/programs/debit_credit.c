// SPDX-License-Identifier: Apache-2.0
/*
 * Turns a number of transactions into the I/O of a small bank on SQLite: the debit-credit transaction of TPC-B (Chen 1992,
 * section 2.4.1.2; TPC Benchmark B, clauses 1.2 and 3.2), embedded, without a server.
 *
 * Durability (journal mode, synchronous) is whatever the SQLite library defaults to; it is printed, never set, so that
 * a trace shows what an application gets that asks for nothing. Loading, running and checking are separate calls, so
 * that a recording of a run has no scan of the whole database in it.
 */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	ACCOUNTS_PER_BRANCH = 100000, /* TPC-B clause 4.2 */
	TELLERS_PER_BRANCH = 10,
	HOME_BRANCH_PERCENT = 85, /* of the transactions are on an account of the teller's own branch (clause 5.3.5) */
	DELTA_MAX = 999999,
	COUNT_MAX = 1000 * 1000 * 1000,
};

/* Fillers bring a row to the 100 bytes (history: 50) of TPC-B clause 3.2. */
static const char SCHEMA[] =
	"BEGIN;"
	"CREATE TABLE branches(bid INTEGER PRIMARY KEY, balance INTEGER NOT NULL, filler TEXT);"
	"CREATE TABLE tellers(tid INTEGER PRIMARY KEY, bid INTEGER NOT NULL, balance INTEGER NOT NULL, filler TEXT);"
	"CREATE TABLE accounts(aid INTEGER PRIMARY KEY, bid INTEGER NOT NULL, balance INTEGER NOT NULL, filler TEXT);"
	"CREATE TABLE history(tid INTEGER NOT NULL, bid INTEGER NOT NULL, aid INTEGER NOT NULL, delta INTEGER NOT NULL,"
	" time INTEGER NOT NULL, filler TEXT);";

struct settings {
	const char *path;
	int64_t accounts;
	int64_t transactions;
	uint64_t seed;
	bool check;
};

static const struct argp_option OPTIONS[] = {
	{"accounts", 'a', "N", 0, "make the database with N accounts, if it is not there (default 100000)", 1},
	{"transactions", 't', "N", 0, "run N transactions (default 0)", 1},
	{"seed", 's', "N", 0, "seed of the random numbers (default 1)", 1},
	{"check", 'c', NULL, 0, "check that the balances of all tables agree; reads the whole database", 1},
	{0},
};

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
	struct settings *settings = state->input;
	char *end = NULL;
	int64_t value = 0;

	if (key == 'a' || key == 't' || key == 's') {
		errno = 0;
		value = strtoll(argument, &end, 10);
		if (errno || *end || end == argument || value < (key == 'a') || value > COUNT_MAX)
			argp_error(state, "'%s' is not a number from %d to %d", argument, key == 'a', COUNT_MAX);
	}
	switch (key) {
	case 'a':
		settings->accounts = value;
		return 0;
	case 't':
		settings->transactions = value;
		return 0;
	case 's':
		settings->seed = (uint64_t)value;
		return 0;
	case 'c':
		settings->check = true;
		return 0;
	case ARGP_KEY_ARG:
		if (settings->path)
			argp_error(state, "one DATABASE only");
		settings->path = argument;
		return 0;
	case ARGP_KEY_END:
		if (!settings->path)
			argp_error(state, "DATABASE is missing");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* xorshift64*: the same sequence on every machine, without a system call. */
static uint64_t random_next(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * UINT64_C(2685821657736338717);
}

/* Uniform in 0 ... limit - 1; the bias at these limits is below 2^-30. */
static int64_t random_below(uint64_t *state, int64_t limit)
{
	return (int64_t)((random_next(state) >> 1) % (uint64_t)limit);
}

static void close_database(sqlite3 **database)
{
	sqlite3_close(*database);
}

static void finalize_statement(sqlite3_stmt **statement)
{
	sqlite3_finalize(*statement);
}

#define SCOPED_STATEMENT sqlite3_stmt *__attribute__((cleanup(finalize_statement)))

static int fail(sqlite3 *database, const char *what)
{
	fprintf(stderr, "debit_credit: %s: %s\n", what, sqlite3_errmsg(database));
	return -EIO;
}

static int prepare(sqlite3 *database, const char *sql, sqlite3_stmt **ret)
{
	return sqlite3_prepare_v2(database, sql, -1, ret, NULL) == SQLITE_OK ? 0 : fail(database, sql);
}

/* Binds COUNT integers, runs the statement to its end and makes it ready for the next time. */
static int execute(sqlite3_stmt *statement, const int64_t *values, int count, int64_t *ret)
{
	for (int i = 0; i < count; i++)
		sqlite3_bind_int64(statement, i + 1, values[i]);
	int status = sqlite3_step(statement);
	if (status == SQLITE_ROW && ret)
		*ret = sqlite3_column_int64(statement, 0);
	if (sqlite3_reset(statement) != SQLITE_OK)
		return fail(sqlite3_db_handle(statement), sqlite3_sql(statement));
	return 0;
}

static int64_t count_branches(int64_t accounts)
{
	return (accounts + ACCOUNTS_PER_BRANCH - 1) / ACCOUNTS_PER_BRANCH;
}

static int load(sqlite3 *database, const struct settings *settings)
{
	const int64_t branches = count_branches(settings->accounts);

	if (sqlite3_exec(database, SCHEMA, NULL, NULL, NULL) != SQLITE_OK)
		return fail(database, "cannot make the tables");
	SCOPED_STATEMENT branch = NULL;
	SCOPED_STATEMENT teller = NULL;
	SCOPED_STATEMENT account = NULL;
	if (prepare(database, "INSERT INTO branches VALUES(?1, 0, hex(zeroblob(44)))", &branch) ||
	    prepare(database, "INSERT INTO tellers VALUES(?1, ?2, 0, hex(zeroblob(42)))", &teller) ||
	    prepare(database, "INSERT INTO accounts VALUES(?1, ?2, 0, hex(zeroblob(42)))", &account))
		return -EIO;
	for (int64_t i = 0; i < branches; i++)
		if (execute(branch, (int64_t[]){i + 1}, 1, NULL))
			return -EIO;
	for (int64_t i = 0; i < branches * TELLERS_PER_BRANCH; i++)
		if (execute(teller, (int64_t[]){i + 1, i / TELLERS_PER_BRANCH + 1}, 2, NULL))
			return -EIO;
	for (int64_t i = 0; i < settings->accounts; i++)
		if (execute(account, (int64_t[]){i + 1, i / ACCOUNTS_PER_BRANCH + 1}, 2, NULL))
			return -EIO;
	if (sqlite3_exec(database, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
		return fail(database, "cannot commit the tables");
	printf("made %s: %" PRId64 " accounts, %" PRId64 " tellers, %" PRId64 " branches\n", settings->path,
	       settings->accounts, branches * TELLERS_PER_BRANCH, branches);
	return 0;
}

static int query_number(sqlite3 *database, const char *sql, int64_t *ret)
{
	SCOPED_STATEMENT statement = NULL;
	int error = prepare(database, sql, &statement);

	return error ? error : execute(statement, NULL, 0, ret);
}

static int print_durability(sqlite3 *database)
{
	SCOPED_STATEMENT journal = NULL;
	int64_t synchronous = 0;

	if (prepare(database, "PRAGMA journal_mode", &journal) ||
	    query_number(database, "PRAGMA synchronous", &synchronous))
		return -EIO;
	if (sqlite3_step(journal) != SQLITE_ROW)
		return fail(database, "cannot read the journal mode");
	static const char *const LEVELS[] = {"off", "normal", "full", "extra"};
	printf("SQLite %s, journal mode %s, synchronous %s (its defaults)\n", sqlite3_libversion(),
	       (const char *)sqlite3_column_text(journal, 0), LEVELS[synchronous & 3]);
	return 0;
}

/* TPC-B clause 1.2: account, history, teller, branch, and the account's new balance goes back to the customer. */
static int run(sqlite3 *database, const struct settings *settings)
{
	SCOPED_STATEMENT begin = NULL;
	SCOPED_STATEMENT account = NULL;
	SCOPED_STATEMENT teller = NULL;
	SCOPED_STATEMENT branch = NULL;
	SCOPED_STATEMENT history = NULL;
	SCOPED_STATEMENT commit = NULL;
	int64_t accounts = 0, balance = 0;

	/* Keys are 1 ... n; max() is found in the index, count() would scan. */
	if (query_number(database, "SELECT max(aid) FROM accounts", &accounts) || prepare(database, "BEGIN", &begin) ||
	    prepare(database, "UPDATE accounts SET balance = balance + ?1 WHERE aid = ?2 RETURNING balance",
		    &account) ||
	    prepare(database, "UPDATE tellers SET balance = balance + ?1 WHERE tid = ?2", &teller) ||
	    prepare(database, "UPDATE branches SET balance = balance + ?1 WHERE bid = ?2", &branch) ||
	    prepare(database, "INSERT INTO history VALUES(?1, ?2, ?3, ?4, ?5, hex(zeroblob(11)))", &history) ||
	    prepare(database, "COMMIT", &commit))
		return -EIO;
	const int64_t branches = count_branches(accounts);
	uint64_t random = settings->seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
	struct timespec start, end;
	clock_gettime(CLOCK_MONOTONIC, &start);
	for (int64_t i = 0; i < settings->transactions; i++) {
		const int64_t tid = random_below(&random, branches * TELLERS_PER_BRANCH) + 1;
		const int64_t bid = (tid - 1) / TELLERS_PER_BRANCH + 1;
		const int64_t first = (bid - 1) * ACCOUNTS_PER_BRANCH;
		const int64_t own = accounts - first < ACCOUNTS_PER_BRANCH ? accounts - first : ACCOUNTS_PER_BRANCH;
		const bool home = random_below(&random, 100) < HOME_BRANCH_PERCENT;
		const int64_t aid = home ? first + random_below(&random, own) + 1 : random_below(&random, accounts) + 1;
		const int64_t delta = random_below(&random, 2 * DELTA_MAX + 1) - DELTA_MAX;
		if (execute(begin, NULL, 0, NULL) || execute(account, (int64_t[]){delta, aid}, 2, &balance) ||
		    execute(teller, (int64_t[]){delta, tid}, 2, NULL) ||
		    execute(branch, (int64_t[]){delta, bid}, 2, NULL) ||
		    execute(history, (int64_t[]){tid, bid, aid, delta, i}, 5, NULL) || execute(commit, NULL, 0, NULL))
			return -EIO;
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	const double seconds = (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
	printf("%" PRId64 " transactions in %.3f s: %.1f tps\n", settings->transactions, seconds,
	       seconds > 0 ? (double)settings->transactions / seconds : 0.0);
	return 0;
}

/* TPC-B clause 2.3.2: what the branches hold is what their tellers, their accounts and the history say. */
static int check(sqlite3 *database)
{
	static const char *const SUMS[] = {
		"SELECT total(balance) FROM branches",
		"SELECT total(balance) FROM tellers",
		"SELECT total(balance) FROM accounts",
		"SELECT total(delta) FROM history",
	};
	int64_t sums[4] = {0};

	for (int i = 0; i < 4; i++)
		if (query_number(database, SUMS[i], &sums[i]))
			return -EIO;
	const bool equal = sums[0] == sums[1] && sums[0] == sums[2] && sums[0] == sums[3];
	printf("balances: branches %" PRId64 ", tellers %" PRId64 ", accounts %" PRId64 ", history %" PRId64 ": %s\n",
	       sums[0], sums[1], sums[2], sums[3], equal ? "consistent" : "NOT CONSISTENT");
	return equal ? 0 : -EIO;
}

int main(int argc, char **argv)
{
	const struct argp argp = {
		.options = OPTIONS,
		.parser = parse_option,
		.args_doc = "DATABASE",
		.doc = "Debit-credit transactions (TPC-B) on SQLite with its default durability.",
	};
	struct settings settings = {.accounts = 100000, .seed = 1};
	sqlite3 *__attribute__((cleanup(close_database))) database = NULL;

	if (argp_parse(&argp, argc, argv, 0, NULL, &settings))
		return 2;
	const bool exists = access(settings.path, F_OK) == 0;
	if (sqlite3_open(settings.path, &database) != SQLITE_OK) {
		fail(database, settings.path);
		return 1;
	}
	if ((!exists && load(database, &settings)) || print_durability(database))
		return 1;
	if (settings.transactions && run(database, &settings))
		return 1;
	if (settings.check && check(database))
		return 1;
	return 0;
}
