// SPDX-License-Identifier: Apache-2.0
/*
 * Turns what the kernel takes of the programs, one by one, into JSON for flextrace doctor.
 */
#include "survey.h"

#include <stdio.h>
#include <string.h>

#include "cleanup.h"
#include "json.h"
#include "privileges.h"
#include "residency.h"
#include "tracer.h"

int survey_say(const struct options *options)
{
	struct tracer tracer;
	const struct tracer_settings settings = {
		.wish = {.layer_vfs = true, .layer_block = true, .group = true},
		.survey = true,
		.ring_bytes = options->ring_bytes,
	};
	/* Why it failed stands on standard error. */
	int error = tracer_init(&tracer, &settings);

	printf("{\"schema\":\"flextrace.survey/1\",\"version\":\"" FLEXTRACE_VERSION "\",\"error\":");
	if (error)
		json_string(stdout, strerror(-error));
	else
		printf("null");
	printf(",\"cachestat\":%s,\"ring_bytes\":%llu,\"rings\":%d,\"capabilities\":[",
	       residency_has_cachestat() ? "true" : "false", (unsigned long long)tracer.ring_plan.bytes,
	       tracer.ring_plan.online_cpus);
	privileges_put(stdout);
	printf("],\"programs\":[");
	if (!error) {
		tracer_put_survey(&tracer, stdout);
		tracer_deinit(&tracer);
	}
	printf("]}\n");
	return error ? EXIT_FAILED : EXIT_OK;
}
