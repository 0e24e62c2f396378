/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The asynchronous client on a libuv loop: keeps 16 requests on their way until N are answered.
 *
 *   cc async.c $(pkg-config --cflags --libs inferd-client libuv)
 *   ./a.out 127.0.0.1:8003 identity 1000 x 1024        (fp32 input "x" of shape [1,1024])
 */
#include <stdio.h>
#include <stdlib.h>

#include <inferd/client.h>
#include <uv.h>

enum { IN_FLIGHT = 16 };

struct run {
    struct inferd_async *connection;
    struct inferd_request request;
    long to_send, to_come, failed;
};

static void on_answer(void *user, const struct inferd_response *response);

static void send_one(struct run *run)
{
    struct inferd_error err;
    run->to_send--;
    if (inferd_async_send(run->connection, &run->request, on_answer, run, NULL, &err)) {
        fprintf(stderr, "%s\n", err.text);
        run->failed++;
        run->to_come--;
    }
}

static void on_answer(void *user, const struct inferd_response *response)
{
    struct run *run = user;
    run->to_come--;
    if (response->status) {
        run->failed++;
        fprintf(stderr, "%s: %s\n", inferd_status_name(response->status), response->message);
        run->to_send = 0; /* the example ends with the first error */
    }
    if (run->to_send > 0)
        send_one(run);
    else if (inferd_async_in_flight(run->connection) == 0)
        inferd_async_close(run->connection, NULL, NULL); /* the loop then has nothing left to do */
}

int main(int argc, char **argv)
{
    struct inferd_error err;
    uv_loop_t loop;
    if (argc != 6) {
        fprintf(stderr, "usage: %s ADDRESS MODEL N INPUT ELEMENTS\n", argv[0]);
        return 2;
    }
    size_t elements = strtoul(argv[5], NULL, 10);
    float *data = calloc(elements, sizeof(*data));
    if (!data)
        abort();
    struct inferd_tensor input = {.name = argv[4],
                                  .dtype = INFERD_FP32,
                                  .rank = 2,
                                  .dim = {1, (int64_t)elements},
                                  .data = data,
                                  .size = elements * sizeof(*data)};
    struct run run = {.request = {.model = argv[2], .n_inputs = 1, .inputs = &input},
                      .to_send = strtol(argv[3], NULL, 10)};
    run.to_come = run.to_send;

    uv_loop_init(&loop);
    if (inferd_async_open(&loop, argv[1], NULL, NULL, NULL, &run.connection, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    uint64_t begin = uv_hrtime();
    for (int i = 0; i < IN_FLIGHT && run.to_send > 0; i++)
        send_one(&run);
    uv_run(&loop, UV_RUN_DEFAULT);
    double seconds = (double)(uv_hrtime() - begin) * 1e-9;
    uv_loop_close(&loop);
    free(data);
    printf("%ld not answered, %ld failed, %.3f s\n", run.to_come, run.failed, seconds);
    return run.failed || run.to_come ? 1 : 0;
}
