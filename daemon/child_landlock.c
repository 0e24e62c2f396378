/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Landlock by its system calls: the C library has no functions for it. Rights and structures are
 * those of the kernel's user space interface, which headers older than the running kernel lack, so
 * they are spelled out here (Documentation/userspace-api/landlock.rst).
 */
#include "daemon/child_landlock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/compiler.h"

enum { VERSION_ASKED = 1, RULE_PATH_BENEATH = 1, PATH_MAX_ = 4096 };

enum rights {
    EXECUTE = 1 << 0,
    WRITE_FILE = 1 << 1,
    READ_FILE = 1 << 2,
    READ_DIR = 1 << 3,
    TRUNCATE = 1 << 14,
    IOCTL_DEV = 1 << 15,
    READ = READ_FILE | READ_DIR,
    OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV,
};

/* The rights that a version of Landlock knows. It refuses each of them unless a rule allows it. */
struct ruleset {
    uint64_t files, network, scopes;
};

static const struct {
    int version;
    size_t size;
    struct ruleset handled;
} versions[] = {
    {6, sizeof(struct ruleset), {0xffff, 3, 3}}, /* signals and abstract sockets */
    {5, 16, {0xffff, 3, 0}},                     /* ioctl of devices */
    {4, 16, {0x7fff, 3, 0}},                     /* TCP */
    {3, 8, {0x7fff, 0, 0}},                      /* truncation */
    {2, 8, {0x3fff, 0, 0}},                      /* links between folders */
    {1, 8, {0x1fff, 0, 0}},
};

struct beneath {
    uint64_t allowed;
    int32_t parent;
} __attribute__((packed)); /* as in the kernel */

static const struct place {
    const char *path;
    unsigned rights;
} common_places[] = {
    {"/usr", READ},
    {"/lib", READ},
    {"/lib64", READ},
    {"/etc/ld.so.cache", READ},
    {"/etc/ld.so.preload", READ},
    {"/dev/null", READ},
    {"/dev/zero", READ},
    {"/dev/random", READ},
    {"/dev/urandom", READ},
    {"/proc/cpuinfo", READ},
    {"/proc/meminfo", READ},
    {"/proc/stat", READ},
    {"/proc/sys/vm", READ},
    {"/sys/devices/system/cpu", READ},
    {"/sys/devices/system/node", READ},
    {"/sys/kernel/mm/transparent_hugepage", READ},
};

static const struct place device_places[] = {
    {"/sys", READ},          {"/proc/devices", READ},
    {"/proc/driver", READ},  {"/proc/filesystems", READ},
    {"/proc/modules", READ}, {"/proc/sys", READ},
    {"/proc/version", READ},
};

struct rules {
    int fd;
    uint64_t handled;
};

/* A file that is not there needs no rule. */
static void allow(const struct rules *rules, int fd, unsigned rights)
{
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0)
        return;
    if (!S_ISDIR(st.st_mode))
        rights &= OF_FILES;
    const struct beneath rule = {.allowed = rights & rules->handled, .parent = fd};
    syscall(SYS_landlock_add_rule, rules->fd, RULE_PATH_BENEATH, &rule, 0);
}

static void allow_path(const struct rules *rules, const char *path, unsigned rights)
{
    int fd = open(path, O_PATH | O_CLOEXEC);
    allow(rules, fd, rights);
    if (fd >= 0)
        close(fd);
}

/* inferctl has the loader of this program, and its libraries are in the folders of those that this
 * program has loaded, a device's libraries among them. */
static int allow_object(struct dl_phdr_info *object, size_t size UNUSED, void *user)
{
    const struct rules *rules = user;
    char folder[PATH_MAX_];
    for (size_t i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_INTERP)
            allow_path(rules, (const char *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr),
                       EXECUTE | READ_FILE);
    const char *slash = strrchr(object->dlpi_name, '/');
    if (object->dlpi_name[0] == '/' && slash != object->dlpi_name &&
        snprintf(folder, sizeof(folder), "%.*s", (int)(slash - object->dlpi_name),
                 object->dlpi_name) < (int)sizeof(folder))
        allow_path(rules, folder, READ);
    return 0;
}

/* Allows the folders where the loader looks first. */
static void allow_library_path(const struct rules *rules)
{
    const char *at = getenv("LD_LIBRARY_PATH");
    char folder[PATH_MAX_];
    while (at && *at) {
        size_t n = strcspn(at, ":;");
        if (n && *at == '/' && n < sizeof(folder)) {
            memcpy(folder, at, n);
            folder[n] = '\0';
            allow_path(rules, folder, READ);
        }
        at += n + (at[n] != '\0');
    }
}

static void allow_places(const struct rules *rules, const struct place *places, size_t n)
{
    for (size_t i = 0; i < n; i++)
        allow_path(rules, places[i].path, places[i].rights);
}

/* /dev/nvidiactl, /dev/nvidia0, /dev/nvidia-uvm and so on; /dev/nvidia-caps is a folder of them. */
static void allow_device_files(const struct rules *rules)
{
    char path[PATH_MAX_];
    DIR *dev = opendir("/dev");
    for (const struct dirent *entry; dev && (entry = readdir(dev));) {
        if (strncmp(entry->d_name, "nvidia", strlen("nvidia")) != 0)
            continue;
        snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
        allow_path(rules, path, READ | WRITE_FILE | IOCTL_DEV);
    }
    if (dev)
        closedir(dev);
}

static int rules_new(struct rules *rules)
{
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, VERSION_ASKED);
    rules->fd = -1;
    for (size_t i = 0; i < ARRAY_LEN(versions) && rules->fd < 0; i++) {
        if (version < versions[i].version)
            continue;
        rules->handled = versions[i].handled.files;
        rules->fd = (int)syscall(SYS_landlock_create_ruleset, &versions[i].handled,
                                 versions[i].size, 0); /* close-on-exec */
        break;
    }
    return rules->fd;
}

int child_landlock_new(int program, int folder, bool device)
{
    struct rules rules;
    if (rules_new(&rules) < 0)
        return -1;
    allow(&rules, program, EXECUTE | READ_FILE);
    allow(&rules, folder, READ);
    dl_iterate_phdr(allow_object, &rules);
    allow_library_path(&rules);
    allow_places(&rules, common_places, ARRAY_LEN(common_places));
    if (device) {
        allow_places(&rules, device_places, ARRAY_LEN(device_places));
        allow_device_files(&rules);
    }
    return rules.fd;
}

/* Only the child itself can open its /proc/self, so this rule is added here. Drivers write the
 * names of their threads there, and truncate what stood there. */
bool child_landlock_enter(int rules, bool device)
{
    int self = open("/proc/self", O_PATH | O_CLOEXEC);
    if (self >= 0) {
        const unsigned writes = device ? WRITE_FILE | TRUNCATE : 0;
        struct beneath rule = {.allowed = READ | writes, .parent = self};
        if (syscall(SYS_landlock_add_rule, rules, RULE_PATH_BENEATH, &rule, 0) != 0) {
            rule.allowed &= ~(uint64_t)TRUNCATE; /* older kernels do not refuse it */
            syscall(SYS_landlock_add_rule, rules, RULE_PATH_BENEATH, &rule, 0);
        }
        close(self);
    }
    return syscall(SYS_landlock_restrict_self, rules, 0) == 0;
}
