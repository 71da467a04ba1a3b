// SPDX-License-Identifier: Apache-2.0
/*
 * Turns the state of a recording into one line on the terminal, overwritten once a second.
 */
#include "status.h"

#include <limits.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "clock.h"

enum { INTERVAL_NS = 1000000000, LINE_BYTES = 160 };

void status_init(struct status *status, bool quiet)
{
	uint64_t now_ns = monotonic_ns();
	*status = (struct status){.shown = !quiet && isatty(STDERR_FILENO), .began_ns = now_ns, .drawn_ns = now_ns};
}

/*
 * Columns that a line may fill. One that wraps is not drawn over as a whole: what it leaves scrolls the terminal. One
 * that fills the last column may count as wrapped.
 */
static int room(void)
{
	struct winsize size = {};
	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || !size.ws_col)
		return INT_MAX;
	return size.ws_col - 1;
}

void status_update(struct status *status, const struct writer *writer, uint64_t lost)
{
	uint64_t now_ns = status->shown ? monotonic_ns() : 0;
	if (!status->shown || now_ns - status->drawn_ns < INTERVAL_NS)
		return;
	double seconds = (now_ns - status->drawn_ns) / 1e9;
	uint64_t records = writer->header.record_count;
	char line[LINE_BYTES];
	snprintf(line, sizeof(line), "%.0f s: %.0f records/s, %.1f MB written, %llu lost",
		 (now_ns - status->began_ns) / 1e9, (records - status->records_drawn) / seconds,
		 records * TRACE_RECORD_BYTES / 1e6, (unsigned long long)lost);
	/* \r and "erase to the end of the line": the line is drawn over the one before. */
	fprintf(stderr, "\r%.*s\033[K", room(), line);
	status->drawn_ns = now_ns;
	status->records_drawn = records;
	status->on_screen = true;
}

void status_clear(struct status *status)
{
	if (status->on_screen)
		fputs("\r\033[K", stderr);
	status->on_screen = false;
}
