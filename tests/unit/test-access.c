/* Who may do what, as a table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/access.h"

#define OWNER   1000U
#define FRIEND  1001U
#define OTHER   1002U
#define GROUP   500U
#define STARTER 900U

static gid_t group_of_friends[] = {7, GROUP};
static gid_t group_of_starters[] = {STARTER};

static const VarlinkPeer root = {.uid = 0, .gid = 0};
static const VarlinkPeer owner = {.uid = OWNER, .gid = OWNER};
static const VarlinkPeer friend = {.uid = FRIEND, .gid = FRIEND, .groups = group_of_friends, .n_groups = 2};
static const VarlinkPeer primary = {.uid = OTHER, .gid = GROUP};
static const VarlinkPeer other = {.uid = OTHER, .gid = OTHER};
static const VarlinkPeer starter = {.uid = OTHER, .gid = OTHER, .groups = group_of_starters, .n_groups = 1};

static const AccessPolicy system_policy = {.scope = SCOPE_SYSTEM, .manager_uid = 0, .starters_gid = STARTER};
static const AccessPolicy bare_policy = {.scope = SCOPE_SYSTEM, .manager_uid = 0, .starters_gid = (gid_t) -1};
static const AccessPolicy user_policy = {
        .scope = SCOPE_USER, .manager_uid = OWNER, .starters_gid = (gid_t) -1};

static void seeing_follows_owner_group_and_mode(void **state)
{
        static const struct {
                const VarlinkPeer *peer;
                mode_t mode;
                bool sees;
        } table[] = {
                {&root, 0400, true},   {&owner, 0400, true},    {&friend, 0400, false},
                {&friend, 0440, true}, {&primary, 0440, true},  {&primary, 0400, false},
                {&other, 0400, false}, {&other, 0440, false},   {&other, 0444, true},
                {&friend, 0404, true}, {&starter, 0440, false},
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++)
                assert_int_equal(access_may_see(&system_policy, table[i].peer, OWNER, GROUP, table[i].mode),
                                 table[i].sees);
}

static void only_owner_and_root_change(void **state)
{
        assert_true(access_may_change(&system_policy, &root, OWNER));
        assert_true(access_may_change(&system_policy, &owner, OWNER));
        assert_false(access_may_change(&system_policy, &friend, OWNER));
        assert_false(access_may_change(&system_policy, &starter, OWNER));
}

static void starting_takes_root_or_the_group(void **state)
{
        assert_true(access_may_start(&system_policy, &root));
        assert_true(access_may_start(&system_policy, &starter));
        assert_false(access_may_start(&system_policy, &other));
        assert_false(access_may_start(&system_policy, &owner));
        /* Without the group, a peer's group of (gid_t) -1 is no way in. */
        assert_false(access_may_start(&bare_policy, &starter));
        assert_false(access_may_start(&bare_policy, &(const VarlinkPeer){.uid = OTHER, .gid = (gid_t) -1}));
}

static void privileges_are_roots(void **state)
{
        assert_true(access_is_privileged(&system_policy, &root));
        assert_false(access_is_privileged(&system_policy, &owner));
        assert_false(access_is_privileged(&system_policy, &starter));
        assert_true(access_is_privileged(&user_policy, &owner));
        assert_true(access_is_privileged(&user_policy, &root));
        assert_false(access_is_privileged(&user_policy, &other));
}

static void a_users_manager_knows_nobody_else(void **state)
{
        assert_true(access_may_connect(&user_policy, &owner));
        assert_true(access_may_connect(&user_policy, &root));
        assert_false(access_may_connect(&user_policy, &other));
        assert_false(access_may_see(&user_policy, &other, OWNER, OTHER, 0444));
        assert_false(access_may_start(&user_policy, &starter));
        assert_true(access_may_connect(&system_policy, &other));
}

static void trust_is_the_owners(void **state)
{
        assert_true(access_may_reuse(OTHER, 0, (uid_t) -1));
        assert_true(access_may_reuse(OTHER, OTHER, (uid_t) -1));
        assert_true(access_may_reuse(OTHER, OWNER, OWNER));
        assert_false(access_may_reuse(OTHER, OWNER, (uid_t) -1));
        assert_false(access_may_reuse(OTHER, OWNER, FRIEND));
        /* Root, too, does not trust what another user's worker can change. */
        assert_false(access_may_reuse(0, OWNER, (uid_t) -1));
        /* "No owner" is nobody's uid. */
        assert_false(access_may_reuse(OTHER, (uid_t) -1, (uid_t) -1));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(seeing_follows_owner_group_and_mode),
                cmocka_unit_test(only_owner_and_root_change),
                cmocka_unit_test(starting_takes_root_or_the_group),
                cmocka_unit_test(privileges_are_roots),
                cmocka_unit_test(a_users_manager_knows_nobody_else),
                cmocka_unit_test(trust_is_the_owners),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
