/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks the engine's library through its installed header alone.
 *
 *   check CASE PLAN     PLAN: the bundled digits, with profiles for batches of 1, 2 and 4
 */
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <inferd_engine.h>

enum { PIXELS = 64, CLASSES = 10, MOST = 4, THREADS = 4, ROUNDS = 50 };

static _Alignas(64) float images[MOST * PIXELS];
static struct inferd_engine_error err;

#define EXPECT(what)                                                                               \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #what, err.text);                      \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define FAILS(call, expected, words)                                                               \
    EXPECT((call) == INFERD_ENGINE_##expected && err.status == INFERD_ENGINE_##expected &&         \
           strstr(err.text, words))

/* --- the layout of structs as the first version had them --- */

#define MEMBER(type, name, offset)                                                                 \
    _Static_assert(offsetof(struct inferd_engine_##type, name) == (offset), #type "." #name)
#define SIZE(type, bytes) _Static_assert(sizeof(struct inferd_engine_##type) >= (bytes), #type)

_Static_assert(sizeof(struct inferd_engine_error) == 520, "errors stay as they are");
MEMBER(error, scope, 4);
MEMBER(error, text, 8);
MEMBER(allocator, user, 8);
MEMBER(allocator, take, 16);
MEMBER(allocator, give, 24);
MEMBER(layer, name, 8);
MEMBER(layer, op, 16);
MEMBER(layer, tactic, 24);
MEMBER(layer, time_ns, 32);
MEMBER(device_options, threads, 8);
MEMBER(device_options, plan, 16);
MEMBER(device_options, log, 24);
MEMBER(device_options, log_user, 32);
MEMBER(device_options, log_level, 40);
MEMBER(device_options, allocator, 48);
MEMBER(plan_info, name, 8);
MEMBER(plan_info, digest, 24);
MEMBER(plan_info, batched, 32);
MEMBER(plan_info, max_batch, 36);
MEMBER(plan_info, n_inputs, 40);
MEMBER(plan_info, n_outputs, 44);
MEMBER(plan_info, n_profiles, 48);
MEMBER(plan_info, weight_bytes, 56);
MEMBER(tensor, name, 8);
MEMBER(tensor, dtype, 16);
MEMBER(tensor, rank, 20);
MEMBER(tensor, dim, 24);
MEMBER(tensor, instance_bytes, 88);
MEMBER(profile, batch, 8);
MEMBER(profile, arena_bytes, 16);
MEMBER(profile, output_bytes, 24);
MEMBER(profile, time_ns, 32);
MEMBER(context_options, batch, 8);
MEMBER(context_options, no_capture, 12);
MEMBER(times, input_ns, 8);
MEMBER(times, output_ns, 24);
MEMBER(view, data, 8);
MEMBER(view, bytes, 16);
MEMBER(view, dtype, 24);
MEMBER(view, rank, 28);
MEMBER(view, dim, 32);
SIZE(view, 96);
MEMBER(device_options, plugins, 56);
MEMBER(device_options, n_plugins, 64);
SIZE(device_options, 72);

/* --- an allocator that counts, fails on demand, and gives dirty memory --- */

struct purse {
    int taken, held, fail_at; /* fail_at: the take that fails, from 1; 0: none */
    int crooked;              /* gives addresses that are no multiple of 64 */
};

static void *take(void *user, enum inferd_engine_memory kind, size_t bytes, size_t align,
                  const char *tag)
{
    struct purse *purse = user;
    (void)kind;
    if (++purse->taken == purse->fail_at || !*tag)
        return NULL;
    char *memory = aligned_alloc(align, (bytes / align + 2) * align);
    if (!memory)
        return NULL;
    memset(memory, 0xaa, (bytes / align + 2) * align);
    purse->held++;
    return memory + (purse->crooked ? 1 : 0);
}

static void give(void *user, enum inferd_engine_memory kind, void *memory)
{
    struct purse *purse = user;
    (void)kind;
    purse->held--;
    free((char *)memory - (purse->crooked ? 1 : 0));
}

/* --- what the cases share --- */

struct all {
    struct inferd_engine_device *device;
    struct inferd_engine_plan *plan;
    struct inferd_engine_context *ctx;
};

static enum inferd_engine_status open_all(struct all *a, const char *path, struct purse *purse)
{
    struct inferd_engine_device_options options = inferd_engine_device_options_init();
    struct inferd_engine_allocator allocator = inferd_engine_allocator_init();
    allocator.user = purse;
    allocator.take = take;
    allocator.give = give;
    options.plan = path;
    options.allocator = purse ? &allocator : NULL;
    memset(a, 0, sizeof(*a));
    enum inferd_engine_status status = inferd_engine_device_open("cpu", &options, &a->device, &err);
    if (!status)
        status = inferd_engine_plan_load(a->device, path, &a->plan, &err);
    if (!status)
        status = inferd_engine_context_new(a->plan, NULL, &a->ctx, &err);
    return status;
}

static void close_all(const struct all *a)
{
    inferd_engine_context_free(a->ctx);
    inferd_engine_plan_free(a->plan);
    inferd_engine_device_close(a->device);
}

static void fill(void)
{
    for (int i = 0; i < MOST * PIXELS; i++)
        images[i] = (float)((i * 7 + i / PIXELS) % 17);
}

static enum inferd_engine_status run(struct inferd_engine_context *ctx, int n)
{
    enum inferd_engine_status status =
        inferd_engine_bind_input(ctx, 0, images, (size_t)n * PIXELS * sizeof(float), 0, NULL, &err);
    if (!status)
        status = inferd_engine_enqueue(ctx, &err);
    return status ? status : inferd_engine_wait(ctx, NULL, &err);
}

static const float *outputs(const struct inferd_engine_context *ctx)
{
    struct inferd_engine_view y = inferd_engine_view_init();
    EXPECT(!inferd_engine_output(ctx, 0, &y, &err));
    return y.data;
}

static int near(const float *a, const float *b, int n)
{
    for (int i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= 1e-5F))
            return 0;
    return 1;
}

/* --- cases --- */

static void runs(const char *path)
{
    struct all a;
    struct inferd_engine_view y = inferd_engine_view_init();
    struct inferd_engine_times times = inferd_engine_times_init();
    float alone[MOST * CLASSES], copy[MOST * CLASSES] = {0};
    EXPECT(!open_all(&a, path, NULL));
    for (int i = 0; i < MOST; i++) {
        EXPECT(!inferd_engine_bind_input(a.ctx, 0, images + i * PIXELS, PIXELS * sizeof(float), 0,
                                         NULL, &err));
        EXPECT(!inferd_engine_enqueue(a.ctx, &err) && !inferd_engine_wait_inputs(a.ctx, &err) &&
               !inferd_engine_wait(a.ctx, &times, &err));
        EXPECT(times.compute_ns > 0);
        memcpy(alone + i * CLASSES, outputs(a.ctx), CLASSES * sizeof(float));
    }
    EXPECT(!inferd_engine_bind_output(a.ctx, 0, copy, sizeof(copy), &err));
    for (int n = 1; n <= MOST; n++) { /* 3 instances run on the profile for 4 */
        memset(copy, 0, sizeof(copy));
        EXPECT(!run(a.ctx, n) && near(outputs(a.ctx), alone, n * CLASSES));
        EXPECT(!memcmp(copy, outputs(a.ctx), (size_t)n * CLASSES * sizeof(float)));
        EXPECT(!inferd_engine_output(a.ctx, 0, &y, &err) && y.rank == 2 && y.dim[0] == n &&
               y.dim[1] == CLASSES && y.bytes == (size_t)n * CLASSES * sizeof(float));
    }
    const int64_t dim[] = {2, 1, 8, 8};
    EXPECT(!inferd_engine_bind_input(a.ctx, 0, images, 2 * PIXELS * sizeof(float), 4, dim, &err));
    EXPECT(!inferd_engine_enqueue(a.ctx, &err));
    close_all(&a); /* while it runs */
}

static void describes(const char *path)
{
    struct all a;
    struct inferd_engine_plan_info info = inferd_engine_plan_info_init();
    struct inferd_engine_tensor t = inferd_engine_tensor_init();
    struct inferd_engine_profile p = inferd_engine_profile_init();
    struct inferd_engine_layer layer = inferd_engine_layer_init();
    EXPECT(inferd_engine_api() >= 1 && strchr(inferd_engine_version(), '.'));
    EXPECT(!strcmp(inferd_engine_status_name(INFERD_ENGINE_DATA_LOSS), "DATA_LOSS"));
    EXPECT(!strcmp(inferd_engine_dtype_name(INFERD_ENGINE_FP32), "FP32"));
    EXPECT(inferd_engine_dtype_size(INFERD_ENGINE_FP16) == 2);
    EXPECT(!open_all(&a, path, NULL));
    EXPECT(!inferd_engine_device_apart(a.device));
    EXPECT(!inferd_engine_plan_describe(a.plan, &info, &err));
    EXPECT(info.batched && info.max_batch == 4 && info.n_profiles == 3 && info.n_inputs == 1);
    EXPECT(strlen(info.digest) == 32 && !strncmp(info.device, "cpu;", 4) && info.weight_bytes);
    EXPECT(!inferd_engine_plan_input(a.plan, 0, &t, &err) && !strcmp(t.name, "image"));
    EXPECT(t.rank == 4 && t.dim[0] == -1 && t.dim[3] == 8 && t.instance_bytes == 256);
    EXPECT(!inferd_engine_plan_output(a.plan, 0, &t, &err) && t.dtype == INFERD_ENGINE_FP32);
    EXPECT(!inferd_engine_plan_profile(a.plan, 2, &p, &err) && p.batch == 4 && p.output_bytes);
    EXPECT(!inferd_engine_plan_layer(a.plan, 4, 0, &layer, &err) && *layer.op && *layer.tactic);
    FAILS(inferd_engine_plan_input(a.plan, 1, &t, &err), NOT_FOUND, "the plan has 1");
    FAILS(inferd_engine_plan_profile(a.plan, 3, &p, &err), NOT_FOUND, "the plan has 3");
    FAILS(inferd_engine_plan_layer(a.plan, 5, 0, &layer, &err), NOT_FOUND, "takes 1 to 4");
    FAILS(inferd_engine_plan_layer(a.plan, 4, 9999, &layer, &err), NOT_FOUND, "layer 9999");
    inferd_engine_plan_settle(a.plan);
    close_all(&a);
}

/* Programs of an older header have shorter structs, those of a newer one longer ones. */
static void grows(const char *path)
{
    struct {
        struct inferd_engine_device_options known;
        char unknown[16];
    } longer = {.known.size = sizeof(longer)};
    struct {
        size_t size;
        const char *name, *after;
    } shorter = {.size = offsetof(struct inferd_engine_plan_info, device), .after = "kept"};
    struct {
        struct inferd_engine_profile known;
        uint64_t unknown;
    } profile = {.known.size = sizeof(profile), .unknown = 7};
    struct all a;
    struct inferd_engine_device *device;
    EXPECT(!inferd_engine_device_open("cpu", &longer.known, &device, &err));
    inferd_engine_device_close(device);
    longer.unknown[3] = 1;
    FAILS(inferd_engine_device_open("cpu", &longer.known, &device, &err), INVALID_ARGUMENT,
          "does not know");
    longer.known.size = 0;
    FAILS(inferd_engine_device_open("cpu", &longer.known, &device, &err), INVALID_ARGUMENT,
          "init function");
    EXPECT(!open_all(&a, path, NULL));
    EXPECT(!inferd_engine_plan_describe(a.plan, (void *)&shorter, &err));
    EXPECT(shorter.name && !strcmp(shorter.after, "kept"));
    EXPECT(!inferd_engine_plan_profile(a.plan, 0, &profile.known, &err));
    EXPECT(profile.known.batch == 1 && profile.unknown == 0);
    close_all(&a);
}

static void refuses(const char *path)
{
    struct all a, none;
    const int64_t wide[] = {1, 1, 8, 9}, many[] = {5, 1, 8, 8}, negative[] = {-1, 1, 8, 8};
    size_t one = PIXELS * sizeof(float);
    FAILS(inferd_engine_device_open("tpu", NULL, &none.device, &err), INVALID_ARGUMENT, "tpu");
    EXPECT(!open_all(&a, path, NULL));
    FAILS(inferd_engine_plan_load(a.device, "/nowhere/a.plan", &none.plan, &err), NOT_FOUND,
          "/nowhere/a.plan");
    FAILS(inferd_engine_plan_load(a.device, "/proc/self/exe", &none.plan, &err), DATA_LOSS, "exe");
    FAILS(inferd_engine_plan_load_fd(a.device, -1, "it", &none.plan, &err), INVALID_ARGUMENT, "it");
    FAILS(inferd_engine_enqueue(a.ctx, &err), FAILED_PRECONDITION, "not bound");
    FAILS(inferd_engine_wait(a.ctx, NULL, &err), FAILED_PRECONDITION, "not running");
    FAILS(inferd_engine_bind_input(a.ctx, 1, images, one, 0, NULL, &err), NOT_FOUND, "has 1");
    FAILS(inferd_engine_bind_input(a.ctx, 0, NULL, one, 0, NULL, &err), INVALID_ARGUMENT, "data");
    FAILS(inferd_engine_bind_input(a.ctx, 0, images, one + 1, 0, NULL, &err), INVALID_ARGUMENT,
          "bytes");
    FAILS(inferd_engine_bind_input(a.ctx, 0, images, 0, 0, NULL, &err), INVALID_ARGUMENT, "1 to 4");
    FAILS(inferd_engine_bind_input(a.ctx, 0, images, 5 * one, 0, NULL, &err), INVALID_ARGUMENT,
          "1 to 4");
    FAILS(inferd_engine_bind_input(a.ctx, 0, images, one, 4, wide, &err), INVALID_ARGUMENT, "[1,1");
    FAILS(inferd_engine_bind_input(a.ctx, 0, images, one, 4, negative, &err), INVALID_ARGUMENT,
          "shape");
    FAILS(inferd_engine_bind_input(a.ctx, 0, images, one, 99, many, &err), INVALID_ARGUMENT,
          "shape");
    FAILS(inferd_engine_bind_input(a.ctx, 0, images, 5 * one, 4, many, &err), INVALID_ARGUMENT,
          "1 to 4");
    FAILS(inferd_engine_output(a.ctx, 0, NULL, &err), FAILED_PRECONDITION, "no batch");
    EXPECT(!inferd_engine_bind_output(a.ctx, 0, images, 4, &err));
    FAILS(run(a.ctx, 2), INVALID_ARGUMENT, "bound to 4 bytes");
    EXPECT(!inferd_engine_bind_output(a.ctx, 0, NULL, 0, &err) && !run(a.ctx, 2));
    EXPECT(!inferd_engine_enqueue(a.ctx, NULL));
    FAILS(inferd_engine_enqueue(a.ctx, &err), FAILED_PRECONDITION, "wait for it");
    FAILS(inferd_engine_bind_input(a.ctx, 0, images, one, 0, NULL, &err), FAILED_PRECONDITION,
          "wait for it");
    EXPECT(!inferd_engine_wait(a.ctx, NULL, NULL));
    close_all(&a);
    inferd_engine_context_free(NULL);
    inferd_engine_plan_free(NULL);
    inferd_engine_device_close(NULL);
}

static void asks_the_allocator(const char *path)
{
    struct all a;
    float expected[MOST * CLASSES];
    struct purse purse = {0}, crooked = {.crooked = 1};
    EXPECT(!open_all(&a, path, NULL) && !run(a.ctx, MOST));
    memcpy(expected, outputs(a.ctx), sizeof(expected));
    close_all(&a);

    EXPECT(!open_all(&a, path, &purse));
    int taken = purse.taken;
    EXPECT(taken >= 2 && purse.held == taken);
    for (int n = 1; n <= MOST; n++)
        EXPECT(!run(a.ctx, n) && near(outputs(a.ctx), expected, n * CLASSES));
    EXPECT(purse.taken == taken); /* batches take nothing */
    close_all(&a);
    EXPECT(purse.held == 0);

    for (int i = 1; i <= taken; i++) {
        struct purse poor = {.fail_at = i};
        FAILS(open_all(&a, path, &poor), RESOURCE_EXHAUSTED, "allocator");
        close_all(&a);
        EXPECT(poor.held == 0);
    }
    FAILS(open_all(&a, path, &crooked), INVALID_ARGUMENT, "multiple of 64");
    close_all(&a);
    EXPECT(crooked.held == 0);
}

struct heard {
    int lines, layers;
    uint64_t ns;
    char all[4096];
};

static void hear_line(void *user, enum inferd_engine_log_level level, const char *line)
{
    struct heard *h = user;
    EXPECT(level <= INFERD_ENGINE_LOG_INFO && !strchr(line, '\n'));
    snprintf(h->all + strlen(h->all), sizeof(h->all) - strlen(h->all), "%s\n", line);
    h->lines++;
}

static void hear_layer(void *user, uint32_t index, const struct inferd_engine_layer *layer)
{
    struct heard *h = user;
    EXPECT(index == (uint32_t)h->layers && *layer->name && *layer->op && *layer->tactic);
    h->layers++;
    h->ns += layer->time_ns;
}

static void calls_back(const char *path)
{
    struct heard heard = {0};
    struct all a;
    struct inferd_engine_times times = inferd_engine_times_init();
    struct inferd_engine_device_options options = inferd_engine_device_options_init();
    options.log = hear_line;
    options.log_user = &heard;
    options.log_level = INFERD_ENGINE_LOG_INFO;
    options.plan = path;
    EXPECT(!inferd_engine_device_open("cpu", &options, &a.device, &err));
    EXPECT(!inferd_engine_plan_load(a.device, path, &a.plan, &err));
    EXPECT(!inferd_engine_context_new(a.plan, NULL, &a.ctx, &err));
    EXPECT(heard.lines == 3 && strstr(heard.all, path) && strstr(heard.all, "made ready"));
    EXPECT(!run(a.ctx, 4) && !heard.layers);
    EXPECT(!inferd_engine_profile_layers(a.ctx, hear_layer, &heard, &err));
    EXPECT(!inferd_engine_enqueue(a.ctx, &err) && !inferd_engine_wait(a.ctx, &times, &err));
    int once = heard.layers;
    EXPECT(once >= 3 && heard.ns > 0 && heard.ns <= times.compute_ns * 11 / 10);
    heard.layers = 0;
    EXPECT(!run(a.ctx, 4) && heard.layers == once);
    EXPECT(!inferd_engine_profile_layers(a.ctx, NULL, NULL, &err));
    EXPECT(!run(a.ctx, 4) && heard.layers == once);
    close_all(&a);
}

static struct inferd_engine_plan *shared;
static float expected_of_all[MOST * CLASSES];

static void *work(void *user)
{
    struct inferd_engine_context *ctx;
    struct inferd_engine_error own = {0};
    (void)user;
    if (inferd_engine_context_new(shared, NULL, &ctx, &own))
        return own.text[0] ? user : NULL;
    for (int i = 0; i < ROUNDS; i++) {
        struct inferd_engine_view y = inferd_engine_view_init();
        int n = 1 + i % MOST;
        if (inferd_engine_bind_input(ctx, 0, images, (size_t)n * PIXELS * sizeof(float), 0, NULL,
                                     &own) ||
            inferd_engine_enqueue(ctx, &own) || inferd_engine_wait(ctx, NULL, &own) ||
            inferd_engine_output(ctx, 0, &y, &own) || !near(y.data, expected_of_all, n * CLASSES)) {
            fprintf(stderr, "thread: %s\n", own.text);
            exit(1);
        }
    }
    inferd_engine_context_free(ctx);
    return &shared;
}

/* The plan and the device are freed first: contexts keep what they need. */
static void runs_in_threads(const char *path)
{
    pthread_t threads[THREADS];
    struct all a;
    EXPECT(!open_all(&a, path, NULL) && !run(a.ctx, MOST));
    memcpy(expected_of_all, outputs(a.ctx), sizeof(expected_of_all));
    shared = a.plan;
    for (int i = 0; i < THREADS; i++)
        EXPECT(!pthread_create(&threads[i], NULL, work, NULL));
    for (int i = 0; i < THREADS; i++) {
        void *done;
        EXPECT(!pthread_join(threads[i], &done) && done == &shared);
    }
    inferd_engine_device_close(a.device);
    inferd_engine_plan_free(a.plan);
    EXPECT(!run(a.ctx, 1) && near(outputs(a.ctx), expected_of_all, CLASSES));
    inferd_engine_context_free(a.ctx);
}

static void loads_a_descriptor(const char *path)
{
    struct all a;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    EXPECT(!open_all(&a, path, NULL));
    inferd_engine_context_free(a.ctx);
    inferd_engine_plan_free(a.plan);
    EXPECT(fd >= 0 && !inferd_engine_plan_load_fd(a.device, fd, "mine", &a.plan, &err));
    EXPECT(close(fd) == 0);
    struct inferd_engine_context_options options = inferd_engine_context_options_init();
    options.batch = 2;
    EXPECT(!inferd_engine_context_new(a.plan, &options, &a.ctx, &err) && !run(a.ctx, 2));
    FAILS(run(a.ctx, 4), INVALID_ARGUMENT, "made for batches of 2");
    close_all(&a);
}

/* --- sizes that are chosen --- */

/* One batch of a plan with x [3,n,m] and y = 2 x of its shape. */
static void run_sizes(struct inferd_engine_context *ctx, int64_t n, int64_t m)
{
    static float x[3 * 4 * 16];
    const int64_t dim[] = {3, n, m};
    size_t bytes = 3 * (size_t)(n * m) * sizeof(float);
    struct inferd_engine_view y = inferd_engine_view_init();
    for (size_t i = 0; i < bytes / sizeof(float); i++)
        x[i] = (float)i;
    EXPECT(!inferd_engine_bind_input(ctx, 0, x, bytes, 3, dim, &err));
    EXPECT(!inferd_engine_enqueue(ctx, &err) && !inferd_engine_wait(ctx, NULL, &err));
    EXPECT(!inferd_engine_output(ctx, 0, &y, &err));
    EXPECT(y.bytes == bytes && y.rank == 3 && y.dim[1] == n && y.dim[2] == m);
    for (size_t i = 0; i < bytes / sizeof(float); i++)
        EXPECT(fabsf(((const float *)y.data)[i] - 2 * x[i]) < 1e-6F);
}

/* The plan has profiles of 8 and 16 for m, and takes 2..16; n counts up to 4 instances. */
static void takes_sizes(const char *path)
{
    static const float x[3 * 17];
    const int64_t large[] = {3, 1, 17}, one[] = {3, 1, 1}, many[] = {3, 5, 1};
    struct all a;
    EXPECT(!open_all(&a, path, NULL));
    for (int64_t m = 2; m <= 16; m++)
        run_sizes(a.ctx, 1 + m % 4, m);
    FAILS(inferd_engine_bind_input(a.ctx, 0, x, sizeof(x), 0, NULL, &err), INVALID_ARGUMENT,
          "bind it with its shape");
    FAILS(inferd_engine_bind_input(a.ctx, 0, x, sizeof(x), 3, many, &err), INVALID_ARGUMENT,
          "its shape has");
    EXPECT(!inferd_engine_bind_input(a.ctx, 0, x, sizeof(x), 3, large, &err));
    FAILS(inferd_engine_enqueue(a.ctx, &err), FAILED_PRECONDITION, "no profile of the plan is for");
    EXPECT(!inferd_engine_bind_input(a.ctx, 0, x, 3 * sizeof(*x), 3, one, &err));
    FAILS(inferd_engine_enqueue(a.ctx, &err), FAILED_PRECONDITION, "m=1");
    run_sizes(a.ctx, 2, 9);
    close_all(&a);
}

/* The plan is ragged: y is twice x [sequences, tokens, 3], where the mask has a token. */
static void takes_sequences(const char *path)
{
    enum { N = 2, S = 3, WIDTH = 3 };
    static const int64_t dims[] = {N, S, WIDTH}, mask_dims[] = {N, S};
    int64_t mask[N][S] = {{1, 1, 0}, {1, 0, 0}};
    float x[N][S][WIDTH], y[N][S][WIDTH];
    struct all a;
    for (int i = 0; i < N * S * WIDTH; i++)
        (&x[0][0][0])[i] = (float)(i + 1);
    EXPECT(!open_all(&a, path, NULL));
    EXPECT(!inferd_engine_bind_input(a.ctx, 0, x, sizeof(x), 3, dims, &err));
    EXPECT(!inferd_engine_bind_input(a.ctx, 1, mask, sizeof(mask), 2, mask_dims, &err));
    EXPECT(!inferd_engine_bind_output(a.ctx, 0, y, sizeof(y), &err));
    EXPECT(!inferd_engine_enqueue(a.ctx, &err));
    EXPECT(!inferd_engine_wait(a.ctx, NULL, &err));
    for (int n = 0; n < N; n++)
        for (int s = 0; s < S; s++)
            for (int i = 0; i < WIDTH; i++)
                EXPECT(y[n][s][i] == (mask[n][s] ? 2 * x[n][s][i] : 0));
    mask[1][2] = 1;
    FAILS(inferd_engine_enqueue(a.ctx, &err), INVALID_ARGUMENT, "row 1 hides token 1");
    close_all(&a);
}

static const struct {
    const char *name;
    void (*run)(const char *path);
} cases[] = {
    {"runs", runs},
    {"describes", describes},
    {"grows", grows},
    {"refuses", refuses},
    {"asks_the_allocator", asks_the_allocator},
    {"calls_back", calls_back},
    {"runs_in_threads", runs_in_threads},
    {"loads_a_descriptor", loads_a_descriptor},
};

int main(int argc, char **argv)
{
    fill();
    if (argc == 3 && !strcmp(argv[1], "takes_sizes")) { /* of another plan */
        takes_sizes(argv[2]);
        return 0;
    }
    if (argc == 3 && !strcmp(argv[1], "takes_sequences")) { /* likewise */
        takes_sequences(argv[2]);
        return 0;
    }
    for (size_t i = 0; argc == 3 && i < sizeof(cases) / sizeof(cases[0]); i++)
        if (!strcmp(argv[1], cases[i].name)) {
            cases[i].run(argv[2]);
            return 0;
        }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        puts(cases[i].name);
    return argc == 1 ? 0 : 2;
}
