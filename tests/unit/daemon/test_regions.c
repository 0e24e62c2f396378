/* SPDX-License-Identifier: Apache-2.0 */
/* Regions of shared memory: what may be registered, and what a client can do to them afterwards. */
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/regions.h"
#include "tests/test.h"
#include "tests/unit/mock/mock.h"

enum { SIZE = 64 * 1024 };

static const struct regions_owner ann = {.name = "ann"}, bob = {.name = "bob"};
static char key[64], path[128];

static struct regions *made(uint32_t most, uint64_t bytes)
{
    struct config *config = config_new();
    struct regions *regions = NULL;
    struct error err;
    assert_non_null(config);
    assert_int_equal(regions_new(config, UINT32_MAX, NULL, &regions, &err), STATUS_OK);
    assert_null(regions);
    config->shared_memory = strdup("//inferd-unit-");
    config->limits.regions = most;
    config->limits.region_bytes = bytes;
    assert_int_equal(regions_new(config, UINT32_MAX, NULL, &regions, &err), STATUS_OK);
    config_free(config);
    return regions;
}

static int file_make(void **state)
{
    (void)state;
    snprintf(key, sizeof(key), "/inferd-unit-%d", (int)getpid());
    snprintf(path, sizeof(path), "/dev/shm%s", key);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    int failed = fd < 0 || ftruncate(fd, SIZE);
    close(fd);
    return failed;
}

static int file_remove(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

static enum status add(struct regions *regions, const struct regions_owner *owner, const char *name,
                       uint64_t offset, uint64_t size)
{
    const struct request_region wanted = {
        .name = message_text_of(name), .key = message_text_of(key), .offset = offset, .size = size};
    struct error err;
    return regions_register(regions, REGION_SYSTEM, owner, &wanted, &err);
}

static enum status take(struct regions *regions, const struct regions_owner *owner,
                        const char *name, uint64_t offset, uint64_t size, struct region **out)
{
    const struct message_region place = {message_text_of(name), offset, size, true};
    struct error err;
    return region_take(regions, owner, &place, out, &err);
}

static void bytes_come_and_go(void **state)
{
    (void)state;
    struct regions *regions = made(4, SIZE);
    struct region *region = NULL;
    struct error err;
    char got[8] = "";
    assert_int_equal(add(regions, &ann, "r", 100, 50), STATUS_OK);
    assert_int_equal(take(regions, &ann, "r", 10, 40, &region), STATUS_OK);
    assert_string_equal(region_name(region), "r");
    assert_int_equal(region_write(region, 10, "hello", 5, &err), STATUS_OK);
    assert_int_equal(region_read(region, 10, got, 5, &err), STATUS_OK);
    assert_string_equal(got, "hello");
    int fd = open(path, O_RDONLY);
    assert_int_equal(pread(fd, got, 5, 110), 5);
    close(fd);
    assert_string_equal(got, "hello");
    region_give(region);
    regions_free(regions);
}

/* No sum of offset and size may come round. */
static void r11_bounds_are_checked(void **state)
{
    (void)state;
    struct regions *regions = made(4, UINT64_MAX);
    struct region *region = NULL;
    static const uint64_t beyond[][2] = {{0, SIZE + 1},
                                         {SIZE, 1},
                                         {1, SIZE},
                                         {UINT64_MAX, 1},
                                         {1, UINT64_MAX},
                                         {UINT64_MAX, UINT64_MAX},
                                         {1ull << 63, 1ull << 63},
                                         {INT64_MAX, 1}};
    for (size_t i = 0; i < ARRAY_LEN(beyond); i++)
        assert_int_equal(add(regions, &ann, "r", beyond[i][0], beyond[i][1]),
                         STATUS_INVALID_ARGUMENT);
    assert_int_equal(add(regions, &ann, "r", 0, 0), STATUS_INVALID_ARGUMENT);
    assert_int_equal(add(regions, &ann, "r", 0, SIZE), STATUS_OK);
    for (size_t i = 0; i < ARRAY_LEN(beyond); i++)
        assert_int_equal(take(regions, &ann, "r", beyond[i][0], beyond[i][1], &region),
                         STATUS_INVALID_ARGUMENT);
    assert_null(region);
    assert_int_equal(take(regions, &ann, "r", SIZE, 0, &region), STATUS_OK);
    region_give(region);
    regions_free(regions);
}

static void r11_owners_do_not_see_each_other(void **state)
{
    (void)state;
    struct regions *regions = made(4, SIZE);
    struct arena *arena = arena_new(1 << 20);
    struct body_regions list;
    struct region *region = NULL;
    struct error err;
    const struct message_text all = {0}, r = message_text_of("r");
    assert_int_equal(add(regions, &ann, "r", 0, 10), STATUS_OK);
    assert_int_equal(add(regions, &ann, "r", 0, 10), STATUS_ALREADY_EXISTS);
    assert_int_equal(take(regions, &bob, "r", 0, 1, &region), STATUS_INVALID_ARGUMENT);
    assert_int_equal(regions_list(regions, REGION_SYSTEM, &bob, all, arena, &list, &err),
                     STATUS_OK);
    assert_int_equal(list.n, 0);
    assert_int_equal(regions_list(regions, REGION_SYSTEM, &bob, r, arena, &list, &err),
                     STATUS_NOT_FOUND);
    regions_unregister(regions, REGION_SYSTEM, &bob, all);
    assert_int_equal(add(regions, &bob, "r", 20, 30), STATUS_OK);
    assert_int_equal(regions_list(regions, REGION_SYSTEM, &ann, r, arena, &list, &err), STATUS_OK);
    assert_int_equal(list.n, 1);
    assert_string_equal(list.items[0].key, key);
    assert_int_equal(list.items[0].size, 10);
    regions_unregister(regions, REGION_SYSTEM, &ann, r);
    assert_int_equal(take(regions, &bob, "r", 0, 30, &region), STATUS_OK);
    region_give(region);
    arena_free(arena);
    regions_free(regions);
}

/* A user at a unix socket registers files of its own alone. */
static void r11_files_of_other_users_are_refused(void **state)
{
    (void)state;
    struct regions *regions = made(4, SIZE);
    const struct regions_owner mine = {.name = "a@1", .has_user = true, .user = geteuid()};
    const struct regions_owner other = {.name = "a@2", .has_user = true, .user = geteuid() + 7};
    assert_int_equal(add(regions, &other, "r", 0, 10), STATUS_PERMISSION_DENIED);
    assert_int_equal(add(regions, &mine, "r", 0, 10), STATUS_OK);
    regions_free(regions);
}

static void number_and_bytes_are_limited(void **state)
{
    (void)state;
    struct regions *regions = made(2, 100);
    const struct message_text all = {0};
    uint32_t n;
    uint64_t bytes;
    assert_int_equal(add(regions, &ann, "a", 0, 101), STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(add(regions, &ann, "a", 0, 60), STATUS_OK);
    assert_int_equal(add(regions, &bob, "a", 0, 41), STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(add(regions, &bob, "a", 0, 40), STATUS_OK);
    regions_unregister(regions, REGION_SYSTEM, &ann, all);
    assert_int_equal(add(regions, &bob, "b", 0, 1), STATUS_OK);
    assert_int_equal(add(regions, &bob, "c", 0, 1), STATUS_RESOURCE_EXHAUSTED);
    regions_count(regions, &n, &bytes);
    assert_int_equal(n, 2);
    assert_int_equal(bytes, 41);
    regions_free(regions);
}

/* Of two that are known neither takes all; who is not known has no share of its own. */
static void r11_an_owner_has_half(void **state)
{
    (void)state;
    struct regions *regions = made(4, 100);
    const struct regions_owner eve = {.name = "eve", .has_share = true};
    const struct regions_owner joe = {.name = "joe", .has_share = true};
    const struct message_text all = {0};
    assert_int_equal(add(regions, &eve, "a", 0, 51), STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(add(regions, &eve, "a", 0, 49), STATUS_OK);
    assert_int_equal(add(regions, &eve, "b", 0, 2), STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(add(regions, &joe, "a", 0, 50), STATUS_OK);
    regions_unregister(regions, REGION_SYSTEM, &joe, all);
    assert_int_equal(add(regions, &eve, "b", 0, 1), STATUS_OK);
    regions_unregister(regions, REGION_SYSTEM, &eve, message_text_of("a"));
    assert_int_equal(add(regions, &eve, "c", 0, 1), STATUS_OK);
    assert_int_equal(add(regions, &eve, "d", 0, 1), STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(add(regions, &joe, "a", 0, 1), STATUS_OK);
    regions_unregister(regions, REGION_SYSTEM, &eve, all);
    assert_int_equal(add(regions, &ann, "a", 0, 99), STATUS_OK);
    regions_free(regions);
}

/* Addresses have their own shares, though they see the same regions. */
static void r11_an_address_has_half(void **state)
{
    (void)state;
    struct regions *regions = made(4, 100);
    const struct regions_owner here = {.name = "anonymous", .has_share = true, .address = {1, 10}};
    const struct regions_owner there = {.name = "anonymous", .has_share = true, .address = {1, 11}};
    struct region *region = NULL;
    assert_int_equal(add(regions, &here, "a", 0, 50), STATUS_OK);
    assert_int_equal(add(regions, &here, "b", 0, 1), STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(add(regions, &there, "a", 0, 1), STATUS_ALREADY_EXISTS);
    assert_int_equal(add(regions, &there, "b", 0, 50), STATUS_OK);
    assert_int_equal(take(regions, &there, "a", 0, 50, &region), STATUS_OK);
    region_give(region);
    regions_free(regions);
}

/* Its owner has gone, or could register nothing else. */
static void r11_regions_without_a_file_make_room(void **state)
{
    (void)state;
    struct regions *regions = made(2, 100);
    const struct regions_owner eve = {.name = "eve", .has_share = true};
    struct region *region = NULL;
    uint32_t n;
    uint64_t bytes;
    assert_int_equal(add(regions, &ann, "a", 0, 100), STATUS_OK);
    assert_int_equal(add(regions, &bob, "b", 0, 1), STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(file_make(NULL), 0);
    assert_int_equal(take(regions, &ann, "a", 0, 100, &region), STATUS_OK);
    assert_int_equal(add(regions, &bob, "b", 0, 1), STATUS_RESOURCE_EXHAUSTED); /* it is in use */
    region_give(region);
    assert_int_equal(add(regions, &bob, "b", 0, 40), STATUS_OK);
    assert_int_equal(take(regions, &ann, "a", 0, 1, &region), STATUS_INVALID_ARGUMENT);
    assert_int_equal(add(regions, &eve, "a", 0, 50), STATUS_OK);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(file_make(NULL), 0);
    assert_int_equal(add(regions, &eve, "b", 0, 50), STATUS_OK); /* of its own share */
    regions_count(regions, &n, &bytes);
    assert_int_equal(n, 2); /* bob's has no name either, but there was no need of it */
    assert_int_equal(bytes, 90);
    regions_free(regions);
}

static int connected(int listening, struct sockaddr *address, socklen_t size, socklen_t room,
                     int *client)
{
    *client = socket(address->sa_family, SOCK_STREAM, 0);
    assert_int_equal(bind(listening, address, size), 0);
    assert_int_equal(listen(listening, 1), 0);
    assert_int_equal(getsockname(listening, address, &room), 0);
    assert_int_equal(connect(*client, address, room), 0);
    return accept(listening, NULL, NULL);
}

/* Local clients by TCP are one, so half would be half for all of them. */
static void shares_are_of_whom_one_can_tell(void **state)
{
    (void)state;
    struct config *config = config_new();
    struct identities *identities = NULL;
    struct error err;
    struct regions_owner owner;
    struct peer local = {.key = {1, 127}, .local = true}, other = {.key = {1, 10}};
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un un = {.sun_family = AF_UNIX}; /* without a name it gets one */
    int tcp = socket(AF_INET, SOCK_STREAM, 0), local_socket = socket(AF_UNIX, SOCK_STREAM, 0);
    int clients[2];
    int by_tcp = connected(tcp, (struct sockaddr *)&in, sizeof(in), sizeof(in), &clients[0]);
    int by_unix = connected(local_socket, (struct sockaddr *)&un, sizeof(sa_family_t), sizeof(un),
                            &clients[1]);
    assert_int_equal(identities_new(config, NULL, &identities, &err), STATUS_OK);
    const struct identity *who = identities_anonymous(identities);
    regions_owner_of(identities, who, by_tcp, &local, &owner);
    assert_false(owner.has_share);
    regions_owner_of(identities, who, by_tcp, &other, &owner);
    assert_true(owner.has_share);
    assert_memory_equal(owner.address, other.key, PEER_KEY);
    regions_owner_of(identities, who, by_unix, &local, &owner);
    assert_true(owner.has_share && owner.has_user);
    assert_int_equal(owner.address[0], 0);
    for (int i = 0; i < 2; i++)
        close(clients[i]);
    close(by_tcp);
    close(by_unix);
    close(tcp);
    close(local_socket);
    identities_unref(identities);
    config_free(config);
}

/* Whatever the configuration says. */
static void there_are_no_more_than_descriptors(void **state)
{
    (void)state;
    struct config *config = config_new();
    struct regions *regions = NULL;
    struct error err;
    config->shared_memory = strdup("inferd-unit-");
    assert_int_equal(regions_new(config, 2, NULL, &regions, &err), STATUS_OK);
    assert_int_equal(add(regions, &ann, "a", 0, 1), STATUS_OK);
    assert_int_equal(add(regions, &ann, "b", 0, 1), STATUS_OK);
    assert_int_equal(add(regions, &ann, "c", 0, 1), STATUS_RESOURCE_EXHAUSTED);
    regions_free(regions);
    config_free(config);
}

static void r11_a_shortened_file_fails_its_own_calls(void **state)
{
    (void)state;
    struct regions *regions = made(4, SIZE);
    struct region *region = NULL;
    struct error err;
    struct stat st;
    static char data[SIZE];
    assert_int_equal(add(regions, &ann, "r", 0, SIZE), STATUS_OK);
    assert_int_equal(take(regions, &ann, "r", 0, SIZE, &region), STATUS_OK);
    assert_int_equal(truncate(path, SIZE - 1), 0);
    assert_int_equal(region_read(region, 0, data, SIZE, &err), STATUS_INVALID_ARGUMENT);
    assert_int_equal(region_read(region, 0, data, SIZE - 1, &err), STATUS_OK);
    assert_int_equal(region_write(region, 0, data, SIZE, &err), STATUS_INVALID_ARGUMENT);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, SIZE - 1);
    /* unregistered and unlinked, it serves who has it */
    regions_unregister(regions, REGION_SYSTEM, &ann, message_text_of("r"));
    unlink(path);
    assert_int_equal(region_write(region, 0, data, SIZE - 1, &err), STATUS_OK);
    region_give(region);
    regions_free(regions);
}

static _Atomic bool stop;

static void *cut(void *user)
{
    (void)user;
    while (!atomic_load(&stop)) {
        if (truncate(path, 0) || truncate(path, SIZE))
            return path;
    }
    return NULL;
}

/* Nothing but an error may come of it, however the calls meet. */
static void r11_files_are_cut_while_they_are_used(void **state)
{
    (void)state;
    struct regions *regions = made(4, SIZE);
    struct region *region = NULL;
    struct error err;
    static char data[SIZE];
    pthread_t thread;
    void *failed = NULL;
    assert_int_equal(add(regions, &ann, "r", 0, SIZE), STATUS_OK);
    assert_int_equal(take(regions, &ann, "r", 0, SIZE, &region), STATUS_OK);
    assert_int_equal(pthread_create(&thread, NULL, cut, NULL), 0);
    for (int i = 0; i < 500; i++) {
        enum status read = region_read(region, 0, data, SIZE, &err);
        enum status written = region_write(region, 0, data, SIZE, &err);
        assert_true(!read || read == STATUS_INVALID_ARGUMENT);
        assert_true(!written || written == STATUS_INVALID_ARGUMENT);
    }
    atomic_store(&stop, true);
    pthread_join(thread, &failed);
    assert_null(failed);
    region_give(region);
    regions_free(regions);
}

static void *come_and_go(void *user)
{
    for (int i = 0; i < 300; i++) {
        if (add(user, &ann, "r", 0, 10) == STATUS_OK)
            regions_unregister(user, REGION_SYSTEM, &ann, (struct message_text){0});
    }
    return NULL;
}

static void threads_register_and_use(void **state)
{
    (void)state;
    struct regions *regions = made(4, SIZE);
    struct region *region = NULL;
    struct error err;
    pthread_t threads[2];
    char got[10];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, regions), 0);
    for (int i = 0; i < 1000; i++)
        if (!take(regions, &ann, "r", 0, 10, &region)) {
            assert_int_equal(region_read(region, 0, got, 10, &err), STATUS_OK);
            region_give(region);
        }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    regions_free(regions);
}

static enum status add_memory(struct regions *regions, const struct request_region *wanted)
{
    struct error err;
    return regions_register(regions, REGION_CUDA, &ann, wanted, &err);
}

/* Over a device that is not there: the other process's memory is its own, which nobody can read. */
static void memory_of_a_device(void **state)
{
    (void)state;
    struct device *device = mock_open();
    struct config *config = config_new();
    struct regions *regions = NULL;
    struct region *region = NULL;
    struct error err;
    void *memory;
    char handle[ENGINE_HANDLE_BYTES] = {0}, got[8] = "";
    config->cuda_shared_memory = true;
    assert_int_equal(regions_new(config, UINT32_MAX, device, &regions, &err), STATUS_OK);
    assert_true(regions_offered(regions, REGION_CUDA));
    assert_false(regions_offered(regions, REGION_SYSTEM));
    assert_int_equal(device->backend->memory_alloc(device, MEMORY_DEVICE, 100, "x", &memory, &err),
                     STATUS_OK);
    struct request_region wanted = {
        .name = message_text_of("r"), .key = {handle, sizeof(handle)}, .size = 100};
    assert_int_equal(add_memory(regions, &wanted), STATUS_INVALID_ARGUMENT);
    memcpy(handle, &memory, sizeof(memory));
    wanted.size = 101;
    assert_int_equal(add_memory(regions, &wanted), STATUS_INVALID_ARGUMENT);
    wanted.size = 100;
    wanted.device = 1;
    assert_int_equal(add_memory(regions, &wanted), STATUS_INVALID_ARGUMENT);
    wanted.device = 0;
    wanted.key.len--;
    assert_int_equal(add_memory(regions, &wanted), STATUS_INVALID_ARGUMENT);
    wanted.key.len++;
    assert_int_equal(add_memory(regions, &wanted), STATUS_OK);
    assert_int_equal(add_memory(regions, &wanted), STATUS_ALREADY_EXISTS);
    assert_int_equal(take(regions, &bob, "r", 0, 100, &region), STATUS_INVALID_ARGUMENT);
    assert_int_equal(take(regions, &ann, "r", 1, 100, &region), STATUS_INVALID_ARGUMENT);
    assert_int_equal(take(regions, &ann, "r", 0, 1, &region), STATUS_OK);
    region_give(region);
    regions_unregister(regions, REGION_SYSTEM, &ann, message_text_of("r"));
    assert_int_equal(take(regions, &ann, "r", 50, 50, &region), STATUS_OK);
    regions_unregister(regions, REGION_CUDA, &ann, message_text_of("r"));
    assert_int_equal(region_write(region, 95, "hello", 5, &err), STATUS_OK);
    assert_int_equal(region_read(region, 95, got, 5, &err), STATUS_OK);
    assert_string_equal(got, "hello");
    region_give(region);
    regions_free(regions);
    config_free(config);
    device->backend->memory_free(device, MEMORY_DEVICE, memory);
    engine_device_close(device);
}

/* A device that reads the host's memory shares none of its own. */
static void a_cpu_offers_none(void **state)
{
    (void)state;
    struct device *device = NULL;
    struct config *config = config_new();
    struct regions *regions = NULL;
    struct backend_shared *shared;
    struct error err;
    char handle[ENGINE_HANDLE_BYTES] = {0};
    assert_int_equal(engine_device_open("cpu", NULL, &device, &err), STATUS_OK);
    config->cuda_shared_memory = true;
    assert_int_equal(regions_new(config, UINT32_MAX, device, &regions, &err), STATUS_OK);
    assert_false(regions_offered(regions, REGION_CUDA));
    assert_int_equal(engine_shared_open(device, handle, 1, &shared, &err), STATUS_UNIMPLEMENTED);
    regions_free(regions);
    config_free(config);
    engine_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bytes_come_and_go, file_make, file_remove),
        cmocka_unit_test_setup_teardown(r11_bounds_are_checked, file_make, file_remove),
        cmocka_unit_test_setup_teardown(r11_owners_do_not_see_each_other, file_make, file_remove),
        cmocka_unit_test_setup_teardown(r11_files_of_other_users_are_refused, file_make,
                                        file_remove),
        cmocka_unit_test_setup_teardown(number_and_bytes_are_limited, file_make, file_remove),
        cmocka_unit_test_setup_teardown(r11_an_owner_has_half, file_make, file_remove),
        cmocka_unit_test_setup_teardown(r11_an_address_has_half, file_make, file_remove),
        cmocka_unit_test_setup_teardown(r11_regions_without_a_file_make_room, file_make,
                                        file_remove),
        cmocka_unit_test(shares_are_of_whom_one_can_tell),
        cmocka_unit_test_setup_teardown(there_are_no_more_than_descriptors, file_make, file_remove),
        cmocka_unit_test_setup_teardown(r11_a_shortened_file_fails_its_own_calls, file_make,
                                        file_remove),
        cmocka_unit_test_setup_teardown(r11_files_are_cut_while_they_are_used, file_make,
                                        file_remove),
        cmocka_unit_test(memory_of_a_device),
        cmocka_unit_test(a_cpu_offers_none),
        cmocka_unit_test_setup_teardown(threads_register_and_use, file_make, file_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
