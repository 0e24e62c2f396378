/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The blocking client: asks a model for its inputs, fills them with numbers, prints the outputs.
 *
 *   cc blocking.c $(pkg-config --cflags --libs inferd-client)
 *   ./a.out 127.0.0.1:8003 digits
 *
 * A server that asks for a token gets the first line of the file that INFERD_TOKEN_FILE names.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <inferd/client.h>

static size_t elements(const struct inferd_tensor *t)
{
    size_t n = 1;
    for (uint32_t i = 0; i < t->rank; i++)
        n *= (size_t)t->dim[i];
    return n;
}

/* One instance of the input that the metadata describes: 0, 1, 2, .. if it is fp32, else zeros. */
static int make_input(const struct inferd_metadata_tensor *m, struct inferd_tensor *out)
{
    *out = (struct inferd_tensor){.name = strdup(m->name), .dtype = m->dtype, .rank = m->rank};
    for (uint32_t i = 0; i < m->rank; i++)
        out->dim[i] = m->dim[i] < 0 ? 1 : m->dim[i];
    out->size = elements(out) * inferd_dtype_size(out->dtype);
    float *data = calloc(1, out->size ? out->size : 1);
    if (!data || !out->name) {
        free(data);
        return -1;
    }
    for (size_t i = 0; out->dtype == INFERD_FP32 && i < elements(out); i++)
        data[i] = (float)(i % 16);
    out->data = data;
    return 0;
}

static void print_output(const struct inferd_tensor *t)
{
    size_t n = elements(t);
    printf("%s %s:", t->name, inferd_dtype_name(t->dtype));
    for (size_t i = 0; i < n && i < 10 && t->dtype == INFERD_FP32; i++) {
        float value; /* received data has no particular alignment */
        memcpy(&value, (const char *)t->data + i * sizeof(value), sizeof(value));
        printf(" %g", (double)value);
    }
    printf("%s\n", n > 10 ? " ..." : "");
}

/* NULL: no token is sent. */
static const char *read_token(void)
{
    static char token[256];
    const char *path = getenv("INFERD_TOKEN_FILE");
    FILE *f = path ? fopen(path, "re") : NULL;
    if (path && (!f || !fgets(token, sizeof(token), f)))
        perror(path);
    if (f)
        fclose(f);
    token[strcspn(token, "\r\n")] = '\0';
    return *token ? token : NULL;
}

static enum inferd_status infer(struct inferd_client *client, const char *model,
                                struct inferd_error *err)
{
    const char *token = read_token(); /* goes with every request */
    struct inferd_tensor inputs[INFERD_MAX_TENSORS];
    const struct inferd_response *response;
    struct inferd_request request = {.kind = INFERD_MODEL_METADATA, .model = model, .token = token};
    enum inferd_status status = inferd_client_call(client, &request, &response, err);
    if (status)
        return status;

    uint32_t n = response->metadata->n_inputs;
    for (uint32_t i = 0; i < n && i < INFERD_MAX_TENSORS; i++) {
        if (make_input(&response->metadata->inputs[i], &inputs[i]) != 0)
            abort();
    }
    request = (struct inferd_request){
        .model = model, .token = token, .n_inputs = n, .inputs = inputs, .timeout_us = 5000000};
    status = inferd_client_call(client, &request, &response, err);
    for (uint32_t i = 0; i < response->n_outputs && !status; i++)
        print_output(&response->outputs[i]);
    for (uint32_t i = 0; i < n; i++) {
        free((void *)(uintptr_t)inputs[i].data);
        free((void *)(uintptr_t)inputs[i].name);
    }
    return status;
}

int main(int argc, char **argv)
{
    struct inferd_client *client = NULL;
    struct inferd_error err = {0};
    if (argc != 3) {
        fprintf(stderr, "usage: %s ADDRESS MODEL\n", argv[0]);
        return 2;
    }
    int failed = inferd_client_open(argv[1], NULL, &client, &err) || infer(client, argv[2], &err);
    if (failed)
        fprintf(stderr, "%s: %s\n", inferd_status_name(err.status), err.text);
    inferd_client_close(client);
    return failed;
}
