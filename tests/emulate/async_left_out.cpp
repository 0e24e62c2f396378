/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions that are left out on purpose, so that a test can see that it would be noticed. A
 * place is known by the return address in the kernel, into which the functions of hopper.cuh are
 * inlined. */
#include "tests/emulate/async.h"
#include "tests/emulate/hopper.h"

#include <cstring>

namespace
{

struct site {
    const char *what;
    const void *address;
};

std::vector<site> &sites = *new std::vector<site>();
int left_out = -1;
bool weaker;

int find_site(const char *what, const void *address)
{
    for (size_t i = 0; i < sites.size(); i++)
        if (sites[i].address == address)
            return (int)i;
    sites.push_back({what, address});
    return (int)sites.size() - 1;
}

/* The place's number; a new one is added. Most calls are from where one of the last came. */
int number_of_site(const char *what, const void *address)
{
    enum { PLACES = 251 };
    static int last[PLACES]; /* by address; one that two share is looked up */
    size_t at = (uintptr_t)address % PLACES;
    if ((size_t)last[at] < sites.size() && sites[(size_t)last[at]].address == address)
        return last[at];
    return last[at] = find_site(what, address);
}

} // namespace

bool async_left_out(const char *what, const void *address)
{
    return number_of_site(what, address) == left_out && !weaker;
}

int async_weaker(const void *address)
{
    return left_out >= 0 && sites[(size_t)left_out].address == address && weaker ? 1 : 0;
}

int emulate_sites(void)
{
    return (int)sites.size();
}

const char *emulate_site(int i)
{
    return sites[(size_t)i].what;
}

bool emulate_site_counts(int i)
{
    return strstr(emulate_site(i), "wait_group") != nullptr;
}

void emulate_leave_out(int i, bool only_weaker)
{
    left_out = i;
    weaker = only_weaker;
}
